// Package drill runs the real worker against real Kafka, Redis and Postgres, breaks it and what it stands on, and
// checks afterwards that every record is exactly one of final, replaying, unknown, in flight, dead or uncommitted,
// and that no order was applied twice. It holds tests only.
package drill
