// Package postgres keeps the record of orders: the only package that speaks to PostgreSQL.
//
// A [Store] takes whole batches. Each batch is one statement in the plain case, sorted by key so that two batches do
// not lock the same rows in opposite orders, and committed when it returns: nothing is kept back in memory, and no
// transaction stays open between two calls.
//
// Every change of an order is one UPDATE guarded by the row's version and state, which adds one to the version. So a
// worker that lost its lease can't settle, and a final state never changes. History and dead letters are written by the
// same statement.
//
// Delays count by the database's clock on both sides: a time that a caller names is sent as the distance from the
// caller's now, and times that come back for use in decisions are moved onto the caller's clock. Two workers whose
// clocks differ therefore agree about leases. What the operator's desk reads is shown as the database has it.
//
// All methods of a Store may be called concurrently. No error holds the password of the URL.
package postgres
