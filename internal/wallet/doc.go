// Package wallet is a simulated payment service: the downstream of the demo, the tests and the benchmark.
//
// It takes POST /pay (a JSON body that may hold order_no; the business number comes from Idempotency-Key) and answers
// GET /pay/{number} truthfully. It keeps a ledger of what it was asked and what it did for each number, and unless told
// to it does not use the key to spare itself the work twice: a client that sends an order twice is seen.
//
// How it behaves is a [Mode], which can be switched while it runs. What it chooses by chance comes from a seed.
package wallet
