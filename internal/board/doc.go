// Package board shows a worker at work on a terminal.
//
// Everything it says of the worker it reads from the worker's own metrics, so that it can't say what they don't; the
// caller adds a title, where its story stands, and lines of its own. [Read] takes the metrics down, [Lines] and [Line]
// draw them and are pure, and [Board] does both again and again: in place on a terminal, a plain line a second elsewhere.
package board
