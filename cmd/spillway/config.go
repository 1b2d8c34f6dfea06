package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"spillway/internal/config"
)

// configCmd holds the commands about settings.
type configCmd struct {
	Check  configCheckCmd  `cmd:"" help:"Check the settings as the worker would: every mistake at once, with its place. Exit code 2 if there is one."`
	Init   configInitCmd   `cmd:"" help:"Write a commented example of a settings file."`
	Show   configShowCmd   `cmd:"" help:"Print the settings in force, defaults and variables included, secrets hidden."`
	Schema configSchemaCmd `cmd:"" help:"Write the JSON schema of the settings file, for editors."`
}

type configCheckCmd struct {
	settingsFile
	JSON bool `name:"json" help:"Print the verdict as one JSON object on standard output."`
}

// checkVerdict is what config check --json prints.
type checkVerdict struct {
	OK       bool            `json:"ok"`
	File     string          `json:"file"`
	Routes   []string        `json:"routes"`
	Problems config.Problems `json:"problems"`
}

func (c *configCheckCmd) Run(s *surroundings) error {
	verdict := checkVerdict{File: c.File, Routes: []string{}, Problems: config.Problems{}}
	cfg, err := config.Load(c.File, s.env)
	var wrong *config.Error
	if err != nil && !errors.As(err, &wrong) {
		return err
	}
	if wrong != nil {
		verdict.Problems = wrong.Problems
	} else {
		verdict.OK = true
		for i := range cfg.Routes {
			verdict.Routes = append(verdict.Routes, cfg.Routes[i].Name)
		}
	}
	if c.JSON {
		if err := json.NewEncoder(s.out).Encode(verdict); err != nil {
			return err
		}
		if wrong != nil {
			return &exitError{code: exitUsage}
		}
		return nil
	}
	if wrong != nil {
		return wrong
	}
	_, err = fmt.Fprintf(s.out, "%s: ok, %d route(s): %v\n", c.File, len(verdict.Routes), verdict.Routes)
	return err
}

type configInitCmd struct {
	Output string `short:"o" placeholder:"FILE" help:"Write to a new file instead of standard output. An existing file is left alone."`
}

func (c *configInitCmd) Run(s *surroundings) error {
	if c.Output == "" {
		_, err := s.out.Write(config.Example())
		return err
	}
	f, err := os.OpenFile(c.Output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return &exitError{code: exitFailure, text: c.Output + " is there already"}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(config.Example())
	return errors.Join(err, f.Close())
}

type configShowCmd struct {
	settingsFile
}

func (c *configShowCmd) Run(s *surroundings) error {
	cfg, err := config.Load(c.File, s.env)
	if err != nil {
		return err
	}
	_, err = s.out.Write(cfg.Redacted())
	return err
}

type configSchemaCmd struct{}

func (c *configSchemaCmd) Run(s *surroundings) error {
	schema, err := config.Schema()
	if err != nil {
		return err
	}
	_, err = s.out.Write(schema)
	return err
}
