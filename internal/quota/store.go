package quota

import (
	"context"
	"time"
)

// Store is the shared tables. Exchange is one round trip for all reports.
type Store interface {
	// Exchange makes each report's worker known to the table of its key, and answers in the order of the reports. An error
	// may hide that they were taken.
	Exchange(ctx context.Context, worker string, reports []Report) ([]Answer, error)
}

// Report is what a worker states about one shared thing.
type Report struct {
	Key  string // names the table
	Seq  uint64 // grows with each report of a worker about a key
	Held int64  // the most it holds now, by its allotment or by what is in use
	Want int64  // what it could use
	Most int64  // what it could ever use; the table gives no more, whatever is spare
	Cap  int64  // of the fleet, as this worker was told
	Hold time.Duration
	Gone bool // the worker ends: what it holds by now is all that it will
}

// Answer is what the table says to that.
type Answer struct {
	Stale    bool  // the report was overtaken; nothing else is set
	Grant    int64 // what the worker may hold from now on
	Cap      int64 // the smallest that any worker knows
	Allotted int64 // by all
	Workers  int
	Unsure   bool // the table does not know all holders yet and raises nobody
}

// Bounds and times of the protocol.
const (
	// Step bounds how far a table's clock moves between two reports.
	Step = 2 * time.Second
	// Pass is the least time between two divisions of the cap; a fifth of it where somebody came, so that a thousand who come
	// together do not make a thousand of them.
	Pass = 500 * time.Millisecond
	// Turn is how long those who have something keep it where there is less than one for each.
	Turn = 10 * time.Second
	// MaxCap bounds a cap.
	MaxCap = 1_000_000 * Unit
)
