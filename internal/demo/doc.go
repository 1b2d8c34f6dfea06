// Package demo tells a story about a worker in one process: orders flow from Kafka to a wallet service that slows down,
// dies, leaves calls unanswered and comes back, and at the end an audit says what became of every order.
//
// Kafka and Redis are stand-ins that live in memory, Postgres is a real one that ends with the process; each can be a
// real server instead. The worker is the one that `spillway worker` runs. The audit asks nobody who took part in the
// story: it compares what the producer wrote, what Postgres holds, what the wallet did and what the group committed.
//
// [Run] owns every goroutine and process it starts, and ends them before it returns.
package demo
