package fleet

import (
	"context"
	"time"

	"spillway/breaker"
)

// Store keeps one Record for each key and what the workers last stated about it. It may be used concurrently. All times
// go in and come out as durations and are measured by the store's own clock.
type Store interface {
	// Exchange states what a worker has seen of its breakers and returns, in the same order, what is known of them. It
	// is one round trip however many there are, and may be repeated.
	Exchange(ctx context.Context, worker string, reports []Report) ([]View, error)
	// Move replaces records, each if its epoch still is the one expected, and tells which ones it replaced. A Note is
	// kept with its record or not at all.
	Move(ctx context.Context, moves []Move) ([]bool, error)
	// Look returns what is known, without being a worker.
	Look(ctx context.Context, keys []breaker.Key) ([]View, error)
	// Audit returns the latest orders for a key, at most n, newest first.
	Audit(ctx context.Context, key breaker.Key, n int) ([]Note, error)
}

// Report is one worker's statement about one breaker.
type Report struct {
	Key      breaker.Key
	Evidence breaker.Evidence // Evidence.Slots is what the worker still holds
	Wants    bool             // one slot more, if the limit allows
	Limit    int              // on the slots of all workers
	Lease    time.Duration    // of the slots held after this exchange, and of the statement
	Deadline time.Duration    // longest time a probe may run: slots of a silent worker are free after Lease + Deadline
	Gone     bool             // the worker ends: forget it and its slots
}

// View is what a store knows of one breaker.
type View struct {
	Record  breaker.Record
	Members []Member // all that made a statement lately, the asking worker included
	Slots   int      // the asking worker's now
}

// Member is a worker's latest statement.
type Member struct {
	Worker   string
	Seen     time.Duration // how long ago
	Wants    bool
	Evidence breaker.Evidence
}

// Move replaces the record of Key with Record if its epoch is Expect.
type Move struct {
	Key    breaker.Key
	Expect uint64
	Record breaker.Record
	Note   *Note // kept for Audit; nil for none
}

// Note is an order that was given.
type Note struct {
	At       time.Time     `json:"at"` // by the store's clock
	Force    breaker.Force `json:"force"`
	For      time.Duration `json:"for"`
	Operator string        `json:"operator"`
	Reason   string        `json:"reason"`
	Epoch    uint64        `json:"epoch"` // of the record that carries it
}
