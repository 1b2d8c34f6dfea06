package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spillway/internal/config"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// spill runs the command line in a world without variables.
func spill(t *testing.T, env []string, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(args, &surroundings{
		ctx: context.WithoutCancel(t.Context()), in: strings.NewReader(""), out: &stdout, err: &stderr, env: env, version: "test",
	})
	return code, stdout.String(), stderr.String()
}

// example writes a settings file that passes, with changes.
func example(t *testing.T, changes ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "spillway.yaml")
	text := strings.NewReplacer(changes...).Replace(string(config.Example()))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestHelpOfTheConfigCommandsIsAsWritten(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"config", "config check", "config init", "config show", "config schema"} {
		code, out, errs := spill(t, nil, append(strings.Fields(command), "--help")...)
		if code != exitOK || errs != "" {
			t.Errorf("%s --help: exit %d, %s", command, code, errs)
		}
		path := filepath.Join("testdata", "help", strings.ReplaceAll(command, " ", "-")+".txt")
		if *update {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(out), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if out != string(want) {
			t.Errorf("%s --help is\n%s\nwant\n%s", command, out, want)
		}
	}
}

func TestHelpNamesTheExitCodesAndTheCommands(t *testing.T) {
	t.Parallel()
	code, out, _ := spill(t, nil, "--help")
	if code != exitOK {
		t.Errorf("exit %d", code)
	}
	for _, want := range []string{"Exit codes: 0 done, 1 it did not succeed, 2 the command line or the settings are", "config check", "config init"} {
		if !strings.Contains(out, want) {
			t.Errorf("--help does not say %q:\n%s", want, out)
		}
	}
	if code, out, _ := spill(t, nil, "--version"); code != exitOK || out != "spillway test\n" {
		t.Errorf("--version: exit %d, %q", code, out)
	}
}

func TestAWrongCommandLineIsExitTwo(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"config"}, {"frobnicate"}, {"config", "check", "--no-such-flag"}, {"config", "check", "surplus"}} {
		code, out, errs := spill(t, nil, args...)
		if code != exitUsage || out != "" || !strings.HasPrefix(errs, "spillway: ") {
			t.Errorf("%q: exit %d, out %q, err %q", args, code, out, errs)
		}
	}
}

func TestCheckPassesTheExample(t *testing.T) {
	t.Parallel()
	path := example(t)
	code, out, errs := spill(t, nil, "config", "check", "-c", path)
	if code != exitOK || out != path+": ok, 1 route(s): [wallet]\n" || errs != "" {
		t.Errorf("exit %d, out %q, err %q", code, out, errs)
	}
}

func TestCheckReportsEveryMistake(t *testing.T) {
	t.Parallel()
	path := example(t, "#heartbeat: 2s", "heartbeat: 5s", "#wait: 20ms", "wait: 250", "#level: info", "lvl: info")
	env := []string{"SPILLWAY_HTTP_LISTEN=nowhere"}
	code, out, errs := spill(t, env, "config", "check", "-c", path)
	lines := strings.Split(strings.TrimSuffix(errs, "\n"), "\n")
	if code != exitUsage || out != "" || len(lines) != 4 {
		t.Fatalf("exit %d, out %q, err %q", code, out, errs)
	}
	for i, want := range []string{"kafka.heartbeat: 5s is more", "log.lvl: is not a setting; accepted: level or format", "wait: 250 has no unit", "SPILLWAY_HTTP_LISTEN: http.listen: nowhere is not an address"} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d is %q, want %q in it", i+1, lines[i], want)
		}
	}

	code, out, errs = spill(t, env, "config", "check", "--json", "-c", path)
	var verdict struct {
		OK       bool
		File     string
		Problems []config.Problem
	}
	if err := json.Unmarshal([]byte(out), &verdict); err != nil {
		t.Fatal(err)
	}
	if code != exitUsage || errs != "" || verdict.OK || verdict.File != path || len(verdict.Problems) != 4 {
		t.Errorf("exit %d, err %q, verdict %+v", code, errs, verdict)
	}
	if p := verdict.Problems[2]; p.Path != "routes.wallet.permits.wait" || p.Value != "250" || p.Line == 0 || p.Accepted == "" {
		t.Errorf("problem %+v", p)
	}
}

func TestCheckOfAMissingFileSaysHowToGetOne(t *testing.T) {
	t.Parallel()
	code, _, errs := spill(t, nil, "config", "check", "-c", filepath.Join(t.TempDir(), "none.yaml"))
	if code != exitUsage || !strings.Contains(errs, "no such file") || !strings.Contains(errs, "spillway config init") {
		t.Errorf("exit %d, err %q", code, errs)
	}
}

func TestInitWritesAFileThatPassesAndNeverOverwrites(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new.yaml")
	if code, out, errs := spill(t, nil, "config", "init", "-o", path); code != exitOK || out+errs != "" {
		t.Fatalf("exit %d, out %q, err %q", code, out, errs)
	}
	if code, _, errs := spill(t, nil, "config", "check", "-c", path); code != exitOK {
		t.Errorf("the example does not pass: %s", errs)
	}
	if code, _, errs := spill(t, nil, "config", "init", "-o", path); code != exitFailure || !strings.Contains(errs, "is there already") {
		t.Errorf("exit %d, err %q", code, errs)
	}
	if code, out, _ := spill(t, nil, "config", "init"); code != exitOK || out != string(config.Example()) {
		t.Errorf("exit %d, out %q", code, out)
	}
}

func TestShowHidesSecrets(t *testing.T) {
	t.Parallel()
	path := example(t, "redis://127.0.0.1:6379/0", "redis://:C4NARY@127.0.0.1:6379/0")
	code, out, errs := spill(t, []string{"SPILLWAY_ROUTES_WALLET_DOWNSTREAM_BEARER_TOKEN=C4NARY"}, "config", "show", "-c", path)
	if code != exitOK || errs != "" || strings.Contains(out, "C4NARY") ||
		!strings.Contains(out, "redis://***@127.0.0.1:6379/0") || !strings.Contains(out, `bearer_token: "***"`) {
		t.Errorf("exit %d, err %q\n%s", code, errs, out)
	}
}

func TestSchemaIsJSON(t *testing.T) {
	t.Parallel()
	code, out, errs := spill(t, nil, "config", "schema")
	if code != exitOK || errs != "" || !json.Valid([]byte(out)) {
		t.Errorf("exit %d, err %q", code, errs)
	}
}
