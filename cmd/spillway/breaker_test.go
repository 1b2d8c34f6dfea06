package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// goldenText compares with a file below testdata, or rewrites it.
func goldenText(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant\n%s", path, got, want)
	}
}

func TestBreakerSimulateSaysWhatItSaid(t *testing.T) {
	t.Parallel()
	settings := example(t)
	code, out, errs := spill(t, nil, "breaker", "simulate", "--help")
	if code != exitOK || errs != "" {
		t.Fatalf("exit %d, %s", code, errs)
	}
	goldenText(t, "help/breaker-simulate.txt", out)
	for name, args := range map[string][]string{
		"usual": {"--generate", "rate=100,for=1m,fail=1%; for=30s,fail=55%; for=1m,fail=1%"},
		"set": {
			"--generate", "rate=100,for=1m,fail=1%; for=30s,slow=60%; for=1m,slow=0%", "--set", "downstream.slow=0s",
			"--set", "slow_window=30s,slow_minimum_calls=200", "--seed", "7",
		},
		"trace": {"--trace", "testdata/breaker/calls.csv", "--set", "consecutive=3"},
		"json":  {"--trace", "testdata/breaker/calls.csv", "--set", "consecutive=3", "--json"},
	} {
		code, out, errs := spill(t, nil, append([]string{"breaker", "simulate", "-c", settings}, args...)...)
		if code != exitOK || errs != "" {
			t.Errorf("%s: exit %d, %s", name, code, errs)
		}
		goldenText(t, "breaker/"+name+".txt", out)
		if name == "json" {
			var report struct {
				Route    string
				Moves    []struct{ Rule string }
				Settings []struct{ Opened int }
			}
			if err := json.Unmarshal([]byte(out), &report); err != nil || report.Route != "wallet" || len(report.Settings) != 2 ||
				report.Settings[0].Opened != 0 || report.Settings[1].Opened != 1 {
				t.Errorf("%v: %+v", err, report)
			}
		}
	}
}

func TestBreakerSimulateNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	settings := example(t)
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{}, "missing flags: --trace=FILE or --generate=SPEC"},
		{[]string{"--generate", "for=1s", "--trace", "x"}, "--trace and --generate can't be used together"},
		{[]string{"--generate", "for=1s", "--route", "bank"}, "--route: bank is none of wallet"},
		{[]string{"--generate", "for=1"}, `--generate: phase 1: "for=1" is no time`},
		{[]string{"--generate", "for=1s", "--set", "failure_rate"}, "--set failure_rate: want KEY=VALUE"},
		{[]string{"--generate", "for=1s", "--set", "failure_rat=1%"}, "--set failure_rat=1%: failure_rat is not a setting"},
		{[]string{"--generate", "for=1s", "--set", "failure_rate=200%"}, "routes.wallet.breaker.failure_rate: 200% is too large; accepted: a percentage, 0% to 100%"},
		{[]string{"--generate", "for=1s", "--set", "open_wait=10m,open_wait_max=5m"}, "routes.wallet.breaker.open_wait_max: 5m is shorter than open_wait 10m; accepted: at least 10m"},
		{[]string{"--trace", "testdata/breaker/missing.csv"}, "--trace: open testdata/breaker/missing.csv"},
		{[]string{"--trace", "testdata/breaker/usual.txt"}, "testdata/breaker/usual.txt:1:1: names no column time"},
		{[]string{"--trace", "-"}, "standard input:1:1: is empty"},
	} {
		code, out, errs := spill(t, nil, append([]string{"breaker", "simulate", "-c", settings}, x.args...)...)
		if code != exitUsage || out != "" || !strings.Contains(errs, x.want) {
			t.Errorf("%v: exit %d\n%s%s\nwant %s", x.args, code, out, errs, x.want)
		}
	}
	if code, _, errs := spill(t, nil, "breaker", "simulate", "-c", "no-such.yaml", "--generate", "for=1s"); code != exitUsage || !strings.Contains(errs, "no-such.yaml") {
		t.Errorf("exit %d, %s", code, errs)
	}
}
