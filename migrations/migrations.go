// Package migrations holds the numbered SQL files that make Spillway's tables, embedded, in goose's format.
//
// A file that was released is never edited: a change is a new file with the next number. Each file runs in a
// transaction of its own, and says in its Down part how to undo it.
package migrations

import "embed"

// FS holds the files.
//
//go:embed *.sql
var FS embed.FS
