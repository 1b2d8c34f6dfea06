package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"spillway/internal/config"
)

const unitFile = "deploy/systemd/spillway.service"

// unit reads the settings of a section; a setting given twice has both values.
func unit(t *testing.T, section string) map[string][]string {
	t.Helper()
	settings, in := map[string][]string{}, ""
	for line := range strings.Lines(string(read(t, unitFile))) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if line[0] == '[' {
			in = strings.Trim(line, "[]")
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			t.Errorf("%q is no setting", line)
		}
		if in == section {
			settings[key] = append(settings[key], value)
		}
	}
	return settings
}

func TestUnitIsHardenedAndLetsTheWorkerDrain(t *testing.T) {
	t.Parallel()
	s := unit(t, "Service")
	for key, want := range map[string]string{
		"DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "PrivateTmp": "yes",
		"CapabilityBoundingSet": "", "KillSignal": "SIGTERM", "Restart": "on-failure", "RestartPreventExitStatus": "2",
		"SystemCallFilter": "@system-service", "ExecStartPre": "/usr/bin/spillway config check -c /etc/spillway/spillway.yaml",
		"ExecReload": "/usr/bin/spillway config check -c /etc/spillway/spillway.yaml",
		"ExecStart":  "/usr/bin/spillway worker -c /etc/spillway/spillway.yaml",
	} {
		if got := s[key]; len(got) == 0 || got[0] != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if reload := s["ExecReload"]; len(reload) != 2 || reload[1] != "/bin/kill -HUP $MAINPID" {
		t.Errorf("ExecReload is %q, want a check and then SIGHUP", reload)
	}
	for _, key := range []string{"MemoryMax", "TasksMax", "EnvironmentFile"} {
		if len(s[key]) != 1 || s[key][0] == "" {
			t.Errorf("%s is %q", key, s[key])
		}
	}
	cfg, err := config.Parse("default", config.Example(), nil)
	if err != nil {
		t.Fatal(err)
	}
	stop, err := time.ParseDuration(s["TimeoutStopSec"][0])
	if err != nil || stop < cfg.Shutdown.Grace+5*time.Second {
		t.Errorf("stopped after %v (%v), and the default drain takes %v", stop, err, cfg.Shutdown.Grace)
	}
	for _, env := range s["Environment"] {
		if name, _, _ := strings.Cut(env, "="); regexp.MustCompile(`PASSWORD|TOKEN|SECRET|URL`).MatchString(name) {
			t.Errorf("%s is in the unit, which everybody may read", name)
		}
	}
}

// TestSystemdFindsNothingWrong reads the standard error too: systemd-analyze is content with a key it does not know.
func TestSystemdFindsNothingWrong(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not on this machine")
	}
	// The unit's program is looked for: the one just built stands in for it.
	text := strings.ReplaceAll(string(read(t, unitFile)), "/usr/bin/spillway ", spillway(t)+" ")
	verify := func(text string) string {
		file := filepath.Join(t.TempDir(), "spillway.service")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := output(t, nil, "systemd-analyze", "verify", file)
		if err != nil {
			out += err.Error()
		}
		return out
	}
	if out := verify(text); out != "" {
		t.Error(out)
	}
	if out := verify(strings.Replace(text, "NoNewPrivileges=", "NoNewPrivilege=", 1)); !strings.Contains(out, "NoNewPrivilege") {
		t.Errorf("a misspelt setting passes: %q", out)
	}
	file := filepath.Join(t.TempDir(), "spillway.service")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// Tenths of the scale from 0, safe, to 10.
	if out, err := output(t, nil, "systemd-analyze", "security", "--offline=true", "--threshold=20", file); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
