// Package dashboard draws the Grafana dashboard of Spillway: deploy/grafana/spillway.json is what Build returns.
//
// From top to bottom: how deep each backlog is; on the left what limits the route, on the right what its breakers do;
// what became of the orders; how Kafka and the stores fare.
package dashboard

import (
	"encoding/json"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// Build returns the dashboard as the JSON that Grafana reads, indented, with a line break at its end.
func Build() ([]byte, error) {
	// The first format of dashboards, not the second: Grafana 10 and 11 read it too.
	b := dashboard.NewDashboardBuilder("Spillway") //nolint:staticcheck // see above
	b.Uid("spillway").
		Description("How deep each backlog is, what limits a route, what its breakers do, and what became of the orders.").
		Tags([]string{"spillway"}).
		Editable().
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Time("now-1h", "now").
		Refresh("10s").
		Timezone("browser").
		Variables(variables())
	y := uint32(0)
	for _, s := range []section{backlog(), limitsAndBreakers(), outcomes(), services()} {
		b.WithRow(dashboard.NewRowBuilder(s.title).GridPos(dashboard.GridPos{X: 0, Y: y, W: width, H: 1}))
		y++
		for _, line := range s.lines {
			x := uint32(0)
			for _, p := range line.panels {
				b.WithPanel(placed{p.draw, dashboard.GridPos{X: x, Y: y, W: p.width, H: line.height}})
				x += p.width
			}
			y += line.height
		}
	}
	d, err := b.Build()
	if err != nil {
		return nil, err
	}
	number(&d)
	out, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(out, '\n'), nil
}

// width of Grafana's grid.
const width = 24

// section is a row's title and the lines of panels below it.
type section struct {
	title string
	lines []line
}

// line is panels side by side, of one height.
type line struct {
	height uint32
	panels []panel
}

// panel is a drawing and the columns it takes.
type panel struct {
	width uint32
	draw  cog.Builder[dashboard.Panel]
}

// placed gives a panel its place.
type placed struct {
	cog.Builder[dashboard.Panel]

	at dashboard.GridPos
}

// Build implements cog.Builder.
func (p placed) Build() (dashboard.Panel, error) {
	built, err := p.Builder.Build()
	built.GridPos = &p.at
	return built, err
}

// number gives every panel an id, which links to single panels need.
func number(d *dashboard.Dashboard) { //nolint:staticcheck // the first format, as above
	id := uint32(0)
	for i := range d.Panels {
		id++
		if p := d.Panels[i].Panel; p != nil {
			p.Id = new(id)
		}
		if r := d.Panels[i].RowPanel; r != nil {
			r.Id = id
		}
	}
}

func variables() []cog.Builder[dashboard.VariableModel] {
	query := func(name, label, q string) *dashboard.QueryVariableBuilder {
		return dashboard.NewQueryVariableBuilder(name).
			Label(label).
			Datasource(source()).
			Query(dashboard.StringOrMap{String: &q}).
			Definition(q).
			Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
			Sort(dashboard.VariableSortAlphabeticalAsc).
			Multi(true).IncludeAll(true).AllValue(".*")
	}
	return []cog.Builder[dashboard.VariableModel]{
		dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus"),
		query("route", "Route", "label_values(spillway_permits, route)"),
		query("instance", "Worker", `label_values(spillway_permits{route=~"$route"}, instance)`),
	}
}
