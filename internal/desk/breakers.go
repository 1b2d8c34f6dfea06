package desk

import (
	"cmp"
	"slices"
	"time"
)

// The states of a breaker, as events name them.
const (
	BreakerClosed   = "closed"
	BreakerOpen     = "open"
	BreakerHalfOpen = "half-open"
)

// MaxCallErrors bounds the failed calls that an event carries.
const MaxCallErrors = 5

// BreakerEvent is one move of one worker's breaker and the evidence for it. Its words are those of package breaker.
type BreakerEvent struct {
	At         time.Time
	Worker     string // the name of one start of a worker
	Route      string
	Endpoint   string // submit or lookup
	From       string
	To         string
	Reason     string // the rule that moved it
	Source     string // whose evidence: local, shared or forced
	Mode       string
	Generation uint64 // grows with each event of one worker's breaker

	Window    time.Duration // how far back the rule looked
	Samples   int
	Failures  int
	Slow      int
	Rate      float64
	Bound     float64
	Threshold float64
	Wait      time.Duration // how long it stays open; zero unless it opened

	Errors   []CallError // the last failed calls, oldest first; at most MaxCallErrors, and only where it opened
	Operator string      // who forced it, where that is known
	Note     string      // and why
}

// Opened reports whether the event is an opening.
func (e *BreakerEvent) Opened() bool { return e.To == BreakerOpen && e.From != BreakerOpen }

// CallError is one failed call. Number is the order's business number, which the service got as its Idempotency-Key;
// RequestID is what the service called the request, where it said so.
type CallError struct {
	At        time.Time `json:"at"`
	Number    string    `json:"number"`
	RequestID string    `json:"request_id,omitempty"`
	Outcome   string    `json:"outcome"`
	Reason    string    `json:"reason,omitempty"`
	Status    int       `json:"status,omitempty"`
	Detail    string    `json:"detail,omitempty"`
}

// BreakerEventFilter picks events. A zero field picks all.
type BreakerEventFilter struct {
	Route    string
	Endpoint string
	Since    time.Duration // how long ago at most
	Limit    int           // rows; DefaultPage if zero, at most MaxPage
}

// BreakerSummary is what became of one route's breakers in some time, over all workers.
type BreakerSummary struct {
	Route      string
	Endpoint   string
	Openings   int           // of all workers: three that follow one record count three
	Workers    int           // how many of them opened
	LastOpened time.Time     // zero if none did
	LastReason string        // the rule behind the latest opening
	Open       time.Duration // time in which at least one worker's breaker was open
}

// span is a time in which a breaker was open.
type span struct{ from, to time.Time }

// SummarizeBreakers sums events up over the window that ends now. It needs those of somewhat longer ago too, for what
// was open when the window began. An open breaker whose worker said nothing more counts as open for the wait it drew. The
// summaries come by route, then lookup before submit.
func SummarizeBreakers(events []BreakerEvent, now time.Time, window time.Duration) []BreakerSummary {
	sorted := slices.Clone(events)
	slices.SortStableFunc(sorted, func(a, b BreakerEvent) int {
		return cmp.Or(cmp.Compare(a.Route, b.Route), cmp.Compare(a.Endpoint, b.Endpoint),
			cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.Generation, b.Generation))
	})
	begin := now.Add(-window)
	var all []BreakerSummary
	for from := 0; from < len(sorted); {
		to := from + 1
		for to < len(sorted) && sorted[to].Route == sorted[from].Route && sorted[to].Endpoint == sorted[from].Endpoint {
			to++
		}
		all = append(all, summarize(sorted[from:to], begin, now))
		from = to
	}
	return all
}

// summarize sums up the events of one route's endpoint, by worker and generation.
func summarize(events []BreakerEvent, begin, now time.Time) BreakerSummary {
	s := BreakerSummary{Route: events[0].Route, Endpoint: events[0].Endpoint}
	var spans []span
	worker := ""
	for i := range events {
		e := &events[i]
		if e.To != BreakerOpen {
			continue
		}
		end := e.At.Add(e.Wait)
		if i+1 < len(events) && events[i+1].Worker == e.Worker {
			end = events[i+1].At
		}
		spans = append(spans, span{later(e.At, begin), earlier(end, now)})
		if !e.Opened() || e.At.Before(begin) {
			continue
		}
		s.Openings++
		if s.Workers == 0 || worker != e.Worker {
			s.Workers, worker = s.Workers+1, e.Worker
		}
		if !e.At.Before(s.LastOpened) {
			s.LastOpened, s.LastReason = e.At, e.Reason
		}
	}
	s.Open = covered(spans)
	return s
}

// covered is how much time the spans cover together.
func covered(spans []span) time.Duration {
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	var sum time.Duration
	var reached time.Time
	for _, s := range spans {
		from := later(s.from, reached)
		if s.to.After(from) {
			sum, reached = sum+s.to.Sub(from), s.to
		}
	}
	return sum
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if a.After(b) {
		return b
	}
	return a
}
