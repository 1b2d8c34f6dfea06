package worker_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spillway/worker"
)

// blocks are the code blocks of a page, fenced or indented, with the fences and the indentation.
func blocks(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	var block strings.Builder
	fenced := false
	for line := range strings.Lines(string(text)) {
		fence := strings.HasPrefix(line, "```")
		switch {
		case fence || fenced || strings.HasPrefix(line, "    "):
			block.WriteString(line)
			fenced = fenced != fence
		case block.Len() > 0:
			found = append(found, block.String())
			block.Reset()
		}
	}
	return append(found, block.String())
}

func TestBothReadmesShowTheSameCommandsAndOutputs(t *testing.T) {
	t.Parallel()
	english, chinese := blocks(t, "../README.md"), blocks(t, "../README.zh-CN.md")
	if len(english) < 10 {
		t.Fatalf("README.md has %d code blocks: want them found", len(english))
	}
	for i := range min(len(english), len(chinese)) {
		if english[i] != chinese[i] {
			t.Fatalf("block %d of README.md is\n%s\nand of README.zh-CN.md\n%s", i+1, english[i], chinese[i])
		}
	}
	if len(english) != len(chinese) {
		t.Errorf("README.md has %d code blocks, README.zh-CN.md %d", len(english), len(chinese))
	}
}

func TestSettingsOfTheReadmePassTheCheck(t *testing.T) {
	t.Parallel()
	const fence = "```yaml\n"
	all := blocks(t, "../README.md")
	i := slices.IndexFunc(all, func(b string) bool { return strings.HasPrefix(b, fence) })
	if i < 0 {
		t.Fatal("README.md has no settings")
	}
	path := filepath.Join(t.TempDir(), "spillway.yaml")
	if err := os.WriteFile(path, []byte(strings.TrimSuffix(strings.TrimPrefix(all[i], fence), "```\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := worker.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Routes) != 1 || cfg.Routes[0].Name != "wallet" {
		t.Errorf("settings have routes %v, want wallet", cfg.Routes)
	}
}
