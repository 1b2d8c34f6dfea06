package wallet

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
)

// Entry is what the service was asked and did for one business number.
type Entry struct {
	Posts    int // requests that arrived whole
	Effects  int // how often it was applied: more than once is what must never be
	Lookups  int
	Bodies   int // different bodies under one number: more than one is a retry that is not the same request
	bodySums [][sha256.Size]byte
}

// Counts is the ledger in numbers.
type Counts struct {
	Posts      int64 `json:"posts"`       // POSTs that arrived whole
	Lookups    int64 `json:"lookups"`     // lookups, answered or not
	Effects    int64 `json:"effects"`     // effects, all of them
	Numbers    int64 `json:"numbers"`     // business numbers with at least one effect
	Duplicates int64 `json:"duplicates"`  // business numbers with more than one effect
	Altered    int64 `json:"altered"`     // business numbers that came with different bodies
	Refused    int64 `json:"refused"`     // requests answered 503, for want of capacity or by the mode
	Bad        int64 `json:"bad"`         // POSTs without a number, or with one that is not their body's
	InFlight   int64 `json:"in_flight"`   // being worked on now, POSTs and lookups
	MaxFlight  int64 `json:"max_flight"`  // the most ever
	MaxPayment int64 `json:"max_payment"` // the most POSTs ever
}

// ledger is the service's book. Its lock guards everything in it.
type ledger struct {
	mu       sync.Mutex
	entries  map[string]*Entry
	counts   Counts
	payments int64 // POSTs in flight
}

func (l *ledger) entry(number string) *Entry {
	e := l.entries[number]
	if e == nil {
		e = &Entry{}
		l.entries[number] = e
	}
	return e
}

// enter counts a request in, unless capacity (0: none) is reached.
func (l *ledger) enter(post bool, capacity int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if capacity > 0 && l.counts.InFlight >= int64(capacity) {
		return false
	}
	l.counts.InFlight++
	l.counts.MaxFlight = max(l.counts.MaxFlight, l.counts.InFlight)
	if post {
		l.payments++
		l.counts.MaxPayment = max(l.counts.MaxPayment, l.payments)
	}
	return true
}

func (l *ledger) leave(post bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.InFlight--
	if post {
		l.payments--
	}
}

func (l *ledger) refused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Refused++
}

func (l *ledger) bad() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Bad++
}

// posted writes down a POST, whatever comes of it.
func (l *ledger) posted(number string, body []byte) {
	sum := sha256.Sum256(body)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Posts++
	e := l.entry(number)
	e.Posts++
	if !slices.Contains(e.bodySums, sum) {
		e.bodySums = append(e.bodySums, sum)
		e.Bodies++
		if e.Bodies == 2 {
			l.counts.Altered++
		}
	}
}

// apply makes the effect, once more, or only where there is none.
func (l *ledger) apply(number string, once bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(number)
	if once && e.Effects > 0 {
		return
	}
	e.Effects++
	l.counts.Effects++
	switch e.Effects {
	case 1:
		l.counts.Numbers++
	case 2:
		l.counts.Duplicates++
	}
}

// lookedUp writes down a lookup and says whether there is an effect.
func (l *ledger) lookedUp(number string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Lookups++
	if e := l.entries[number]; e != nil {
		e.Lookups++
	}
}

func (l *ledger) has(number string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[number]
	return e != nil && e.Effects > 0
}

// Counts returns the numbers as they are now.
func (w *Wallet) Counts() Counts {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	return w.ledger.counts
}

// Entry returns what the service knows of a number.
func (w *Wallet) Entry(number string) (Entry, bool) {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	e := w.ledger.entries[number]
	if e == nil {
		return Entry{}, false
	}
	out := *e
	out.bodySums = nil
	return out, true
}

// Numbers lists the business numbers with at least one effect, sorted.
func (w *Wallet) Numbers() []string {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	var out []string
	for n, e := range w.ledger.entries {
		if e.Effects > 0 {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// Duplicates lists the business numbers with more than one effect, sorted.
func (w *Wallet) Duplicates() []string {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	var out []string
	for n, e := range w.ledger.entries {
		if e.Effects > 1 {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// Verify says what must not be: an order applied twice or sent with different bodies, and, of those in want, one that
// was not applied. It returns nil where all is well.
func (w *Wallet) Verify(want []string) error {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	if n := w.ledger.counts.Duplicates; n > 0 {
		return fmt.Errorf("%d orders were applied more than once, among them %q", n, w.ledger.example(func(e *Entry) bool { return e.Effects > 1 }))
	}
	if n := w.ledger.counts.Altered; n > 0 {
		return fmt.Errorf("%d orders were sent with different bodies, among them %q", n, w.ledger.example(func(e *Entry) bool { return e.Bodies > 1 }))
	}
	for _, number := range want {
		if e := w.ledger.entries[number]; e == nil || e.Effects == 0 {
			return fmt.Errorf("order %q was not applied", number)
		}
	}
	return nil
}

// example returns the smallest number whose entry fits; the caller holds the lock.
func (l *ledger) example(fits func(*Entry) bool) string {
	out, found := "", false
	for n, e := range l.entries {
		if fits(e) && (!found || n < out) {
			out, found = n, true
		}
	}
	return out
}

// Forget empties the ledger, but for what is in flight.
func (w *Wallet) Forget() {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	clear(w.ledger.entries)
	w.ledger.counts = Counts{InFlight: w.ledger.counts.InFlight, MaxFlight: w.ledger.counts.InFlight, MaxPayment: w.ledger.payments}
}
