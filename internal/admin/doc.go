// Package admin is what the admin command does, without the command line: it reads orders, dead letters, replay queues
// and breakers, sends dead letters back or gives them up, and writes what it found for people (tables) and for scripts
// (JSON with field names that stay).
//
// Everything it writes is safe for a terminal. Orders carry text that others wrote; whatever in it could move a cursor,
// change a colour, hide text or turn the direction of writing is shown as an escape, in tables and in JSON. The exact
// bytes of a record are in the JSON as base64.
//
// Nothing here starts a goroutine that outlives its call, and every call ends with its context.
package admin
