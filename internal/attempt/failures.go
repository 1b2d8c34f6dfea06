package attempt

import (
	"strings"
	"sync"
	"time"

	"spillway/order"
)

// What is kept of failed calls: the last MaxFailures of each endpoint, with so many bytes of text.
const (
	MaxFailures     = 5
	maxFailureText  = 200
	maxFailureLabel = 128
)

// Failure is a call that counted against the service.
type Failure struct {
	At      time.Time
	Number  string // the order's business number, sent as Idempotency-Key; cut to 128 bytes
	Outcome order.Outcome
	Reason  order.Reason
	Status  int
	Detail  string // cut to 200 bytes

	RequestID string // what the service called the request, where it said so; cut to 128 bytes
}

// failures remembers the last failed calls of one endpoint. It is safe for concurrent use; its zero value has none.
type failures struct {
	mu   sync.Mutex // guards all below
	ring [MaxFailures]Failure
	n    int // ever added
}

func (f *failures) add(x Failure) {
	// Cloned, so that five failures don't keep whole records and answers in memory.
	x.Number = strings.Clone(shorten(x.Number, maxFailureLabel))
	x.RequestID = strings.Clone(shorten(x.RequestID, maxFailureLabel))
	x.Detail = strings.Clone(shorten(x.Detail, maxFailureText))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ring[f.n%MaxFailures] = x
	f.n++
}

// last returns the failures since a moment, oldest first.
func (f *failures) last(since time.Time) []Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []Failure
	for i := max(0, f.n-MaxFailures); i < f.n; i++ {
		if x := f.ring[i%MaxFailures]; !x.At.Before(since) {
			all = append(all, x)
		}
	}
	return all
}

func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-3], "") + "..."
}

// SubmitFailures returns the last attempts since a moment that counted against the service, oldest first, at most
// MaxFailures.
func (a *Attempter) SubmitFailures(since time.Time) []Failure { return a.failed[0].last(since) }

// LookupFailures does the same for lookups.
func (a *Attempter) LookupFailures(since time.Time) []Failure { return a.failed[1].last(since) }
