package sim

import (
	"fmt"
	"time"

	"spillway/consumer"
	"spillway/order"
)

// Options of a run. The zero value is the plain simulation.
type Options struct {
	Bug   Bug // a deliberate mistake, to see that it is caught
	Trace int // how many of the last lines of the trace the report keeps; default none
}

// Bug is a deliberate mistake in the model of the worker.
type Bug int

// The mistakes.
const (
	NoBug               Bug = iota
	CommitBeforeSettle      // a record is closed in the ledger before it stands in the store
	ResendWithoutLookup     // an unknown outcome goes straight to the replay queue
	AckWithoutLease         // a settlement that came too late is written all the same
	AdmitTogether           // with an ordering, batches are admitted at once and line up as they come
)

// Bugs lists them.
func Bugs() []Bug {
	return []Bug{CommitBeforeSettle, ResendWithoutLookup, AckWithoutLease, AdmitTogether}
}

func (b Bug) String() string {
	switch b {
	case NoBug:
		return "no bug"
	case CommitBeforeSettle:
		return "commit before settle"
	case ResendWithoutLookup:
		return "resend without lookup"
	case AckWithoutLease:
		return "ack without lease"
	case AdmitTogether:
		return "admit together"
	}
	return fmt.Sprintf("Bug(%d)", int(b))
}

// breaks is the invariant that the bug breaks.
func (b Bug) breaks() string {
	switch b {
	case NoBug:
		return ""
	case CommitBeforeSettle:
		return "I1"
	case ResendWithoutLookup:
		return "I6"
	case AckWithoutLease:
		return "I2"
	case AdmitTogether:
		return inTurn
	}
	return ""
}

// Report is what a run showed.
type Report struct {
	Seed      uint64
	Steps     int
	Took      time.Duration   // by the simulation's clock
	Violation *ViolationError // nil: all invariants held
	Counts    map[string]int
	Trace     []string
}

// ViolationError is a broken invariant.
type ViolationError struct {
	Invariant string // I1 to I9, or inTurn
	Text      string
}

func (v *ViolationError) Error() string { return v.Invariant + ": " + v.Text }

// inTurn is what an ordering promises: orders of a chain are sent one at a time by their reader, none before an earlier one
// that may yet be read.
const inTurn = "ordering"

// numbers are what a seed chooses before it starts.
type numbers struct {
	partitions, brokers int
	workers             int
	permits             int
	records             int
	chaos               time.Duration // how long faults go on
	every               time.Duration // between two faults of the surroundings
	cursed              effect        // it fails far more often than others
	fault, crash        float64       // chance of a failing and of a deadly request, each before and after its effect

	lease, timeout, budget time.Duration
	drain                  time.Duration
	permitWait             time.Duration
	queueBound             int
	batch                  int
	retention              bool // whether the log loses its beginning now and then
	requeue                bool // whether a person sends dead letters back

	policy   order.Policy
	limits   consumer.Limits
	ordering consumer.Ordering
}

const (
	commitEvery    = 500 * time.Millisecond
	heartbeatEvery = 250 * time.Millisecond
	sessionTimeout = 1500 * time.Millisecond
	longPoll       = 250 * time.Millisecond
	replayPoll     = 200 * time.Millisecond
	scanEvery      = 400 * time.Millisecond
	mendEvery      = 5 * time.Second
	retryFirst     = 50 * time.Millisecond
	retryMax       = time.Second
	calm           = 10 * time.Minute // by then everything must be settled
)

// choose draws the numbers of a run.
func (s *world) choose() {
	pick := func(ds ...time.Duration) time.Duration { return ds[s.rng.IntN(len(ds))] }
	n := &s.numbers
	n.partitions, n.workers, n.permits = 1+s.rng.IntN(4), 1+s.rng.IntN(3), 1+s.rng.IntN(6)
	n.brokers = 1 + s.rng.IntN(2)
	n.records = 30 + s.rng.IntN(120)
	n.chaos = pick(5*time.Second, 15*time.Second, 40*time.Second)
	n.every = pick(200*time.Millisecond, 700*time.Millisecond, 2*time.Second)
	n.fault = []float64{0, 0.005, 0.02, 0.05}[s.rng.IntN(4)]
	n.crash = []float64{0, 0.002, 0.01}[s.rng.IntN(3)]
	n.cursed = effects()[s.rng.IntN(len(effects()))]
	n.timeout = 300 * time.Millisecond
	n.budget = 400 * time.Millisecond
	n.lease = pick(600*time.Millisecond, 1500*time.Millisecond, 4*time.Second)
	// Few of these are made, the fewer the longer the lease.
	if rare := []effect{extend, extend, renew, begin, finish, has}; s.rng.IntN(4) == 0 {
		n.cursed = rare[s.rng.IntN(len(rare))]
		n.lease = 600 * time.Millisecond
	}
	n.drain = pick(300*time.Millisecond, 1500*time.Millisecond)
	n.permitWait = 20 * time.Millisecond
	n.queueBound = []int{8, 20, 200}[s.rng.IntN(3)]
	n.batch = 1 + s.rng.IntN(8)
	n.retention = s.rng.IntN(4) == 0
	n.requeue = s.rng.IntN(2) == 0
	n.policy = order.Policy{
		Degrade:        order.Degrade(s.rng.IntN(3)),
		ReplayAttempts: 3 + s.rng.IntN(3), ReplayAttemptsTotal: 5 + s.rng.IntN(5),
		RetryDelay: 200 * time.Millisecond, RetryDelayMax: 2 * time.Second, RetryAfterMax: 3 * time.Second,
		Reread:          pick(2*time.Second, 8*time.Second),
		ReplayPatience:  pick(1500*time.Millisecond, 4*time.Second),
		CompensateAfter: pick(300*time.Millisecond, time.Second), CompensateAttempts: 3 + s.rng.IntN(6),
		LookupDelay: 300 * time.Millisecond, LookupDelayMax: 2 * time.Second,
		Grace:        pick(time.Second, 3*time.Second, 8*time.Second),
		FailNotFound: s.rng.IntN(10) == 0,
	}
	n.limits = consumer.Limits{
		PartitionBytes: 2048, Bytes: 2 * 2048 * int64(1+s.rng.IntN(6)), Records: 4 + s.rng.IntN(40), Permits: n.permits,
	}
	n.ordering = consumer.Ordering(s.rng.IntN(3))
}
