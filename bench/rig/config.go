package rig

import (
	"os"
	"path/filepath"

	"spillway/worker"
)

// WorkerConfig reads settings given as text, as the command does.
func WorkerConfig(text string) (*worker.Config, error) {
	path, remove, err := SettingsFile(text)
	if err != nil {
		return nil, err
	}
	defer remove()
	return worker.Load(path, nil)
}

// SettingsFile writes settings down for a command to read; call remove after that.
func SettingsFile(text string) (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "spillway-bench-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	path = filepath.Join(dir, "spillway.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		remove()
		return "", nil, err
	}
	return path, remove, nil
}
