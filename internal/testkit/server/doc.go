// Package server starts real Kafka, Redis and PostgreSQL processes on loopback for the tests, and ends them.
//
// A Spec says how one server is started, again and again, on the same port with the same data; a Process is one run of
// it. The package is used by the services command, whose servers outlive it, and by testkit, whose servers belong to
// one test and end with it. It stands on the standard library, so that the command needs nothing but Go.
package server
