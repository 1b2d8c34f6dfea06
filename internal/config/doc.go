// Package config reads Spillway's settings: one strict YAML file, overridden by environment variables.
//
// It promises that every mistake is reported, all at once, each with its place, the setting's path, the value found and
// what would be accepted; that no value is taken for something else (a duration without a unit is refused, not read as
// nanoseconds); and that no secret appears in an error, a log line or a dump. [Parse] is pure. [Load] reads the settings
// file and the files it names (certificates, secrets). Nothing here connects to anything, so a check gives the same
// verdict wherever it runs.
//
// Every setting is one struct field of [Config]: its tags hold the name, the default, the bounds and the help text, and
// everything else (decoding, environment names, the JSON schema, the example file, docs/settings.md) is made from them.
//
// An empty variable, or one of blanks alone, is taken as not set. An empty value in the file is a mistake.
package config
