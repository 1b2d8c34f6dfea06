package notify

import (
	"sync"

	"spillway/internal/desk"
)

// boxLimit is how many events wait for one target.
const boxLimit = 256

// box holds the events that wait for one target. When it is full the oldest gives way. It is safe for concurrent use.
type box struct {
	mu     sync.Mutex // guards events
	events []desk.BreakerEvent
	wake   chan struct{} // holds one token whenever events came since it was last read
}

func newBox() *box { return &box{wake: make(chan struct{}, 1)} }

// put adds an event and returns the one that had to go, if any.
func (b *box) put(e desk.BreakerEvent) (lost desk.BreakerEvent, full bool) {
	b.mu.Lock()
	if full = len(b.events) == boxLimit; full {
		lost = b.events[0]
		copy(b.events, b.events[1:])
		b.events = b.events[:boxLimit-1]
	}
	b.events = append(b.events, e)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default: // the token is there already
	}
	return lost, full
}

// take empties the box.
func (b *box) take() []desk.BreakerEvent {
	b.mu.Lock()
	defer b.mu.Unlock()
	events := b.events
	b.events = nil
	return events
}
