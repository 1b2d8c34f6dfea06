package order

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// MaxNumber bounds a business number, in bytes.
const MaxNumber = 256

// Order is one record's write, as its row in Postgres shows it. (Route, Number) is its key.
type Order struct {
	ID      int64
	Route   string
	Number  string // the business number, sent downstream as Idempotency-Key
	Message Message

	State   State
	Phase   Phase
	Version int64 // grows with every transition and every claim; the fence of the lease

	Attempts      int // of this life, against the cap
	AttemptsTotal int // of this life, all of them
	Lookups       int // since the last attempt
	Life          int // how often a person requeued it

	Outcome Outcome // of the last attempt
	Reason  Reason  // of the last transition
	Detail  string

	// Fresh says that the order was just read from Kafka: the degrade rule is about such orders. It is not stored.
	Fresh bool

	AdmittedAt  time.Time
	LastAttempt time.Time // when the last attempt was leased; once it ended unknown, a moment it can't have begun after
	Due         time.Time // when somebody else may act: the lease's end, or the next try
	UpdatedAt   time.Time
}

// CheckNumber says why a business number is not a legal one: 1 to MaxNumber bytes of valid UTF-8 without control
// characters. It returns nil for a legal one.
func CheckNumber(number string) error {
	switch {
	case number == "":
		return fmt.Errorf("business number is empty: want 1 to %d bytes", MaxNumber)
	case len(number) > MaxNumber:
		return fmt.Errorf("business number has %d bytes: want 1 to %d", len(number), MaxNumber)
	case !utf8.ValidString(number):
		return fmt.Errorf("business number %q is not valid UTF-8", number)
	}
	for _, r := range number {
		if r < 0x20 || r == 0x7f || (r >= 0x80 && r <= 0x9f) {
			return fmt.Errorf("business number %q holds a control character", number)
		}
	}
	return nil
}

// Transition is what becomes of an order: the new values of its row. Stores apply it only where the row still is
// in State PROCESSING (DEAD for a person's doing) at the version the order was read with, and add one to it.
type Transition struct {
	State State
	Phase Phase // NoPhase unless State is Processing

	Attempts      int
	AttemptsTotal int
	Lookups       int

	Outcome Outcome
	Reason  Reason
	Detail  string

	// NotBefore is when the replay queue may try it, for a Phase of Replaying.
	NotBefore time.Time
	// Due is when the scanner must act on a PROCESSING order: look it up, or see whether the replay queue still
	// has it.
	Due time.Time
}

// Settlement asks a store to apply a transition to the order with this ID if its row still stands at Version.
type Settlement struct {
	ID      int64
	Version int64
	Transition
	// Straight marks a transition that needs no history row, because the order's row tells the whole story: its first
	// attempt was final, or nothing was learnt and it goes back to where it was. One to DEAD is told all the same.
	Straight bool
}

// Settle makes the settlement of a transition of o.
func (o *Order) Settle(t Transition) Settlement {
	return Settlement{
		ID: o.ID, Version: o.Version, Transition: t,
		Straight: t.State.Final() && o.AttemptsTotal == 1 && o.Life == 0 && o.Phase == InFlight && o.Lookups == 0,
	}
}

// Settled is what a store did with a settlement.
type Settled int

const (
	// Applied says that the row moved.
	Applied Settled = iota
	// Stale says that the row had moved on; what it says now does not contradict what was to be written.
	Stale
	// Conflict says that the row is final and the answer that came late contradicts it. It was written to the order's
	// history and not applied.
	Conflict
)

// Admission is a record about to become an order.
type Admission struct {
	Number  string
	Message Message
}

// Admitted is what became of an admission.
type Admitted struct {
	Kind  AdmitKind
	Order Order // complete for New; ID, State, Phase and Version for the others
}

// AdmitKind is the closed set of what admission can find.
type AdmitKind int

const (
	// New says that the row was made, PROCESSING and IN_FLIGHT, leased to the caller, with its first attempt counted. Or it
	// was there because an earlier reader of this very record had withdrawn it, and was taken back.
	New AdmitKind = iota
	// Duplicate says that the business number was there with the same value. Nothing is called again.
	Duplicate
	// Clash says that the business number was there with another value: a dead letter was written.
	Clash
)

// DeadRecord is a record that could not become an order: it goes to the dead letters, bytes exact.
type DeadRecord struct {
	Route   string
	Number  string // empty where none could be read
	Message Message
	Raw     []byte // an unreadable replay item's bytes, in place of Message
	Reason  Reason
	Detail  string
}

// Spilled is an order on its way into the replay queue.
type Spilled struct {
	Order     Order
	NotBefore time.Time // when it may be tried, by this worker's clock
}

// Lease names a leased row: what a store renews.
type Lease struct {
	ID      int64
	Version int64
}
