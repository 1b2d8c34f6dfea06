package dashboard

import (
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// Colours, by what they say.
const (
	good  = "green"
	watch = "yellow"
	bad   = "red"
	quiet = "text"
)

// query is a PromQL expression, in which @ stands for the selection of routes and workers, and @route for that of
// routes alone (what a worker says of all workers' orders), and the legend of its series.
type query struct {
	expr, legend string
}

func (q query) String() string {
	e := strings.ReplaceAll(q.expr, "@route", `route=~"$route"`)
	return strings.ReplaceAll(e, "@", `route=~"$route", instance=~"$instance"`)
}

func source() common.DataSourceRef {
	return common.DataSourceRef{Type: new("prometheus"), Uid: new("${datasource}")}
}

func target(i int, q query) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().
		Datasource(source()).
		RefId(string("ABCDEFGH"[i])).
		Expr(q.String()).
		LegendFormat(q.legend).
		Range()
}

// lines draws time series.
func lines(title, about, unit string, qs ...query) *timeseries.PanelBuilder {
	p := timeseries.NewPanelBuilder().
		Title(title).Description(about).Datasource(source()).
		Unit(unit).Min(0).
		LineWidth(1).FillOpacity(10).ShowPoints(common.VisibilityModeNever).
		Legend(common.NewVizLegendOptionsBuilder().
			DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(true)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	for i, q := range qs {
		p.WithTarget(target(i, q))
	}
	return p
}

// stacked draws time series whose sum means something.
func stacked(title, about, unit string, qs ...query) *timeseries.PanelBuilder {
	return lines(title, about, unit, qs...).FillOpacity(40).
		Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A"))
}

// limit draws the series of a name as a dashed line that is not stacked upon the others.
func limit(p *timeseries.PanelBuilder, name string) *timeseries.PanelBuilder {
	return p.OverrideByName(name, []dashboard.DynamicConfigValue{
		{Id: "custom.stacking", Value: map[string]any{"group": "A", "mode": "none"}},
		{Id: "custom.fillOpacity", Value: 0},
		{Id: "custom.lineWidth", Value: 2},
		{Id: "custom.lineStyle", Value: map[string]any{"dash": []int{10, 10}, "fill": "dash"}},
		{Id: "color", Value: map[string]any{"fixedColor": bad, "mode": "fixed"}},
	})
}

// step is where a number changes its colour.
type step struct {
	from  float64
	color string
}

func thresholds(steps ...step) *dashboard.ThresholdsConfigBuilder {
	all := []dashboard.Threshold{{Color: good}}
	for _, s := range steps {
		all = append(all, dashboard.Threshold{Value: new(s.from), Color: s.color})
	}
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(all)
}

// figure draws one number with its recent course.
func figure(title, about, unit, expr string, steps ...step) panel {
	return panel{3, stat.NewPanelBuilder().
		Title(title).Description(about).Datasource(source()).
		Unit(unit).Thresholds(thresholds(steps...)).
		ColorMode(common.BigValueColorModeValue).GraphMode(common.BigValueGraphModeArea).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
		WithTarget(target(0, query{expr, "{{route}}"}))}
}

// word is how a number of a state timeline is written and coloured.
type word struct {
	number, text, color string
}

// states draws which state held when.
func states(title, about string, q query, words ...word) *statetimeline.PanelBuilder {
	options := map[string]dashboard.ValueMappingResult{}
	for i, w := range words {
		options[w.number] = dashboard.ValueMappingResult{
			Text: new(w.text), Color: new(w.color), Index: new(int32(i)),
		}
	}
	return statetimeline.NewPanelBuilder().
		Title(title).Description(about).Datasource(source()).
		Mappings([]dashboard.ValueMapping{{
			ValueMap: &dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: options},
		}}).
		ShowValue(common.VisibilityModeNever).RowHeight(0.8).MergeValues(true).FillOpacity(80).LineWidth(0).
		Legend(common.NewVizLegendOptionsBuilder().
			DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(true)).
		WithTarget(target(0, q))
}

// heat draws how a histogram's buckets fill.
func heat(title, about, unit, expr string) *heatmap.PanelBuilder {
	return heatmap.NewPanelBuilder().
		Title(title).Description(about).Datasource(source()).
		Calculate(false).
		YAxis(heatmap.NewYAxisConfigBuilder().Unit(unit)).
		Color(heatmap.NewHeatmapColorOptionsBuilder().
			Mode(heatmap.HeatmapColorModeScheme).Scheme("Spectral").Steps(64).
			Scale(heatmap.HeatmapColorScaleExponential).Exponent(0.5).Fill("dark-orange").Reverse(false)).
		WithTarget(target(0, query{expr, "{{le}}"}).Format(prometheus.PromQueryFormatHeatmap))
}
