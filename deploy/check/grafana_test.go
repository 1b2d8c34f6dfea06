package check

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	sdk "github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"spillway/deploy/check/dashboard"
)

const dashboardFile = "deploy/grafana/spillway.json"

func TestDashboardIsWhatTheCodeDraws(t *testing.T) {
	t.Parallel()
	got, err := dashboard.Build()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, dashboardFile, got)
}

// board is a dashboard of the first format.
type board = sdk.Dashboard //nolint:staticcheck // what Grafana 10 and 11 read too

// load reads the dashboard back, strictly: an unknown field or a missing one is an error.
func load(t *testing.T) board {
	t.Helper()
	plugins.RegisterDefaultPlugins()
	var d board
	if err := told(d.UnmarshalJSONStrict(read(t, dashboardFile))); err != nil {
		t.Fatal(err)
	}
	return d
}

// told turns the library's empty list of errors into no error.
func told(err error) error {
	var list cog.BuildErrors
	if errors.As(err, &list) && len(list) == 0 {
		return nil
	}
	return err
}

func TestDashboardIsReadBackStrictly(t *testing.T) { //nolint:paralleltest // the plugins' registry is a global
	d := load(t)
	if err := told(d.Validate()); err != nil {
		t.Error(err)
	}
	changed := strings.Replace(string(read(t, dashboardFile)), `"refresh"`, `"refesh"`, 1)
	var again board
	if err := again.UnmarshalJSONStrict([]byte(changed)); err == nil || !strings.Contains(err.Error(), "refesh") {
		t.Errorf("a misspelt field passes: %v", err)
	}
}

// box is a panel as the file has it.
type box struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct {
		Expr, RefID, LegendFormat string
		Datasource                struct{ UID string }
	}
}

func boxes(t *testing.T) []box {
	t.Helper()
	var d struct{ Panels []box }
	if err := json.Unmarshal(read(t, dashboardFile), &d); err != nil {
		t.Fatal(err)
	}
	return d.Panels
}

func TestPanelsSayWhatTheyShowAndDoNotOverlap(t *testing.T) {
	t.Parallel()
	ids := map[int]bool{}
	taken := map[[2]int]string{}
	for _, p := range boxes(t) {
		if p.ID == 0 || ids[p.ID] {
			t.Errorf("%s: id %d", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s lies on %q at %d, %d", p.Title, other, x, y)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Title == "" || !strings.HasSuffix(p.Description, ".") || len(p.Targets) == 0 {
			t.Errorf("%q: description %q, %d queries", p.Title, p.Description, len(p.Targets))
		}
		for _, q := range p.Targets {
			if q.Datasource.UID != "${datasource}" || q.LegendFormat == "" && p.Type != "stat" {
				t.Errorf("%s: %+v", p.Title, q)
			}
		}
	}
}

func TestBacklogComesFirstThenLimitsLeftAndBreakersRight(t *testing.T) {
	t.Parallel()
	var rows []string
	at := map[string]box{}
	for _, p := range boxes(t) {
		if p.Type == "row" {
			rows = append(rows, p.Title)
		} else if _, seen := at[p.Title]; !seen {
			at[p.Title] = p
		}
	}
	if want := []string{"Backlog", "Limits · Breakers", "Outcomes", "Kafka and the stores"}; !slices.Equal(rows, want) {
		t.Errorf("rows %v, want %v", rows, want)
	}
	for _, left := range []string{"Permits in use", "Paused partitions", "Prefetch", "What limits each worker"} {
		if p := at[left]; p.ID == 0 || p.GridPos.X+p.GridPos.W > 12 {
			t.Errorf("%s is not on the left: %+v", left, p.GridPos)
		}
	}
	for _, right := range []string{"Breakers", "Moves of breakers", "Refused", "How long calls take", "Calls: 99 of 100 are faster"} {
		if p := at[right]; p.GridPos.X < 12 {
			t.Errorf("%s is not on the right: %+v", right, p.GridPos)
		}
	}
}

func TestProvisioningFindsTheDashboardAndItsSource(t *testing.T) {
	t.Parallel()
	var sources struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name, UID, Type, Access, URL string
			IsDefault                    bool `yaml:"isDefault"`
			Editable                     bool
			JSONData                     map[string]string `yaml:"jsonData"`
		}
	}
	strict := func(file string, into any) {
		if err := yaml.UnmarshalWithOptions(read(t, file), into, yaml.Strict()); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	strict("deploy/grafana/provisioning/datasources/prometheus.yaml", &sources)
	if len(sources.Datasources) != 1 || sources.Datasources[0].URL != "http://prometheus:9090" || !sources.Datasources[0].IsDefault {
		t.Errorf("data sources %+v", sources)
	}
	var boards struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name, Type     string
			AllowUIUpdates bool `yaml:"allowUiUpdates"`
			Options        struct{ Path string }
		}
	}
	strict("deploy/grafana/provisioning/dashboards/spillway.yaml", &boards)
	mounted := false
	for _, v := range compose(t, nil).Services["grafana"].Volumes {
		mounted = mounted || v.Target == boards.Providers[0].Options.Path+"/spillway.json"
	}
	if !mounted {
		t.Errorf("the dashboard is not mounted where Grafana looks: %+v", boards)
	}
}
