// Package desk holds the nouns of the operator's desk: what the admin command, the board and the metrics read from
// the record of orders, and what a person may ask of it. Both stores speak in them.
package desk

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"spillway/order"
)

// MaxPage bounds how many rows one listing returns, and how many letters one call resolves.
const MaxPage = 1000

// DefaultPage is the length of a listing that names no limit.
const DefaultPage = 100

// MaxHistory bounds how many history entries of an order are shown: the newest ones.
const MaxHistory = 500

// ErrNotFound says that there is no such order or letter.
var ErrNotFound = errors.New("not found")

// ErrResolved says that a letter was requeued or discarded already.
var ErrResolved = errors.New("resolved already")

// ErrRefused says that a letter can't be requeued as it is.
var ErrRefused = errors.New("refused")

// Page is the length of a listing that asked for limit rows: DefaultPage for none, never more than MaxPage.
func Page(limit int) int {
	if limit <= 0 {
		return DefaultPage
	}
	return min(limit, MaxPage)
}

// OrderFilter picks orders. A zero field picks all.
type OrderFilter struct {
	Route     string
	State     order.State
	Phase     order.Phase
	Prefix    string        // of the business number
	OlderThan time.Duration // since admission
	Before    int64         // only orders with a smaller ID: the last one of the page before
	Limit     int           // rows; DefaultPage if zero, at most MaxPage
}

// OrderView is an order with all there is to say about it.
type OrderView struct {
	Order   order.Order
	Owner   string  // who holds the lease; empty if nobody does
	History []Event // oldest first; the newest MaxHistory of them
	Letter  int64   // the dead letter that waits for a person; zero if none does
}

// Fit makes free text fit for a column and a terminal: valid UTF-8 without NUL, at most order.MaxDetail bytes. One text
// that does not fit would otherwise fail its batch, for ever.
func Fit(s string) string {
	if strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s) {
		s = strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?")
	}
	if len(s) > order.MaxDetail {
		s = strings.ToValidUTF8(s[:order.MaxDetail-3], "") + "..."
	}
	return s
}

// EventKind is the closed set of what an order's history tells.
type EventKind string

// What an order's history tells.
const (
	Transition EventKind = "transition" // the order moved
	Conflict   EventKind = "conflict"   // a late answer contradicted the final state; nothing moved
	Late       EventKind = "late"       // a final answer came when the order was a dead letter; nothing moved
)

// Event is one entry of an order's history.
type Event struct {
	Kind          EventKind
	Version       int64 // after the transition; for the other kinds the version that was found
	At            time.Time
	From          order.State
	To            order.State // for the other kinds, what the late answer asked for
	Phase         order.Phase
	Outcome       order.Outcome
	Reason        order.Reason
	Detail        string
	AttemptsTotal int
	Lookups       int
	Life          int
	Actor         string // the worker, or the operator
}

// LetterStatus is where a dead letter stands. The numbers are stored in Postgres.
type LetterStatus int16

// Where a dead letter can stand.
const (
	Waiting   LetterStatus = 1
	Requeued  LetterStatus = 2
	Discarded LetterStatus = 3
)

// LetterStatuses lists every status.
func LetterStatuses() []LetterStatus { return []LetterStatus{Waiting, Requeued, Discarded} }

func (s LetterStatus) String() string {
	switch s {
	case Waiting:
		return "waiting"
	case Requeued:
		return "requeued"
	case Discarded:
		return "discarded"
	}
	return fmt.Sprintf("LetterStatus(%d)", int16(s))
}

// ParseLetterStatus reads a status' name as String writes it.
func ParseLetterStatus(name string) (LetterStatus, error) {
	for _, s := range LetterStatuses() {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("dead letter status %q: want waiting, requeued or discarded", name)
}

// LetterFilter picks dead letters. A zero field picks all, of every status too.
type LetterFilter struct {
	Route     string
	Status    LetterStatus
	Reason    order.Reason
	Prefix    string        // of the business number
	OlderThan time.Duration // since it was written
	Before    int64         // only letters with a smaller ID: the last one of the page before
	Limit     int           // rows; DefaultPage if zero, at most MaxPage
}

// Letter is one dead letter. Listings leave out the bytes: Message holds the record's place and time alone, and Raw
// is nil.
type Letter struct {
	ID            int64
	OrderID       int64 // zero for a record that could not become an order
	Route         string
	Number        string // empty where none could be read
	Message       order.Message
	Raw           []byte // a queue item that could not be read, in place of Message
	Unreadable    bool   // whether it is such an item: also true in listings
	Reason        order.Reason
	Detail        string
	AttemptsTotal int
	Life          int
	CreatedAt     time.Time

	Status     LetterStatus
	ResolvedAt time.Time // zero while it waits
	ResolvedBy string
	Note       string
}

// Sign is who did something, and why.
type Sign struct {
	Operator string // 1 to MaxOperator bytes
	Note     string // free text, cut to order.MaxDetail
}

// MaxOperator bounds an operator's name, in bytes.
const MaxOperator = 128

// Check says what is wrong with a sign; nil for a legal one.
func (s Sign) Check() error {
	if s.Operator == "" || len(s.Operator) > MaxOperator {
		return fmt.Errorf("operator's name has %d bytes: want 1 to %d", len(s.Operator), MaxOperator)
	}
	return nil
}

// Requeue asks for a dead letter to start a new life.
type Requeue struct {
	ID     int64
	Number string // for a letter without an order: the business number that its record shows now
}

// Resolved is what became of one letter.
type Resolved struct {
	ID      int64
	OrderID int64 // the order it concerns; zero if there is none
	// Err is nil if it was done; else it wraps ErrNotFound, ErrResolved or ErrRefused.
	Err error
}

// CountLimit bounds how many PROCESSING orders Counts looks at.
const CountLimit = 200_000

// Counts is what a route's gauges show. It is cheap enough to be read every few seconds.
type Counts struct {
	// Processing by phase, among the CountLimit orders that are due first.
	Processing map[order.Phase]int64
	// Capped says that there were more: the numbers of Processing are lower bounds then.
	Capped bool
	// Oldest is the age of the oldest order among them, since admission; zero if there is none.
	Oldest time.Duration
	// DeadWaiting is how many dead letters wait for a person.
	DeadWaiting int64
}

// Place is where an order can stand.
type Place struct {
	State order.State
	Phase order.Phase
}

// Tally is an exact count of a route's record: the stores' side of the sum that the conservation check makes.
type Tally struct {
	Orders map[Place]int64
	// Letters by status, of records that are no order.
	Letters map[LetterStatus]int64
	// OrderLetters by status, of orders.
	OrderLetters map[LetterStatus]int64
}

// NewTally returns an empty tally.
func NewTally() Tally {
	return Tally{
		Orders: make(map[Place]int64), Letters: make(map[LetterStatus]int64), OrderLetters: make(map[LetterStatus]int64),
	}
}

// Total is how many orders there are, in whatever state.
func (t Tally) Total() int64 {
	var n int64
	for _, c := range t.Orders {
		n += c
	}
	return n
}

// State is how many orders stand in a state, in whatever phase.
func (t Tally) State(s order.State) int64 {
	var n int64
	for p, c := range t.Orders {
		if p.State == s {
			n += c
		}
	}
	return n
}

// LateAnswer says what a final answer is worth that found the order in another place than it was read: Conflict where
// the order is final and the answer contradicts it, Late where the order is a dead letter and a person should know,
// nothing otherwise. A refusal does not contradict DISCARDED: neither was applied.
func LateAnswer(now, answer order.State) EventKind {
	if !answer.Final() {
		return ""
	}
	switch now {
	case order.Succeeded, order.Failed:
		if answer != now {
			return Conflict
		}
	case order.Discarded:
		if answer == order.Succeeded {
			return Conflict
		}
	case order.Dead:
		return Late
	case order.Processing:
	}
	return ""
}

// Obstacle says why a letter can't be resolved as it is, from what the letter itself shows: it was resolved, or, for a
// requeue, it has no order and no legal business number was found in it. It is nil where the letter shows none.
func (l *Letter) Obstacle(number string, requeue bool) error {
	if l.Status != Waiting {
		return fmt.Errorf("dead letter %d was %s by %s at %s: %w", l.ID, l.Status, l.ResolvedBy,
			l.ResolvedAt.UTC().Format(time.RFC3339), ErrResolved)
	}
	if !requeue || l.OrderID != 0 {
		return nil
	}
	if l.Unreadable {
		return fmt.Errorf("dead letter %d is a queue item that can't be read; its order, if it has one, stands in the record by itself: %w", l.ID, ErrRefused)
	}
	if err := order.CheckNumber(number); err != nil {
		return fmt.Errorf("dead letter %d can't become an order: %s: %w", l.ID, err.Error(), ErrRefused)
	}
	return nil
}

// Taken says that the number a letter would need belongs to an order already.
func (l *Letter) Taken(o order.Order) error {
	return fmt.Errorf("dead letter %d can't become an order: business number %q is order %d, %s: %w", l.ID, o.Number, o.ID, o.State, ErrRefused)
}
