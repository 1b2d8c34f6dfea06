package breakersim

import (
	"container/heap"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"spillway/breaker"
)

// Bounds of a replay.
const (
	maxInFlight = 1_000_000 // calls at one moment
	maxKept     = 1000      // moves that are told one by one
	MaxSettings = 32        // tried in one pass
)

// Setting is one configuration to try.
type Setting struct {
	Name   string
	Config breaker.Config
}

// Report is what a replay showed.
type Report struct {
	Calls   uint64        `json:"calls"`
	Start   time.Time     `json:"start"`
	Lasted  time.Duration `json:"-"` // from the first call to the end of the last
	Seconds float64       `json:"seconds"`
	Moves   []Move        `json:"moves"` // of the first setting
	Omitted int           `json:"moves_omitted"`
	Tried   []Tally       `json:"settings"`
}

// Move is one change of the first setting's breaker and the evidence for it.
type Move struct {
	At        time.Time `json:"at"`
	After     float64   `json:"after_seconds"` // since the first call
	From      string    `json:"from"`
	To        string    `json:"to"`
	Rule      string    `json:"rule"`
	Window    float64   `json:"window_seconds"`
	Samples   int       `json:"samples"`
	Failures  int       `json:"failures"`
	Slow      int       `json:"slow"`
	Rate      float64   `json:"rate"`
	Bound     float64   `json:"bound"`
	Threshold float64   `json:"threshold"`
	Wait      float64   `json:"wait_seconds"`
}

// Tally is what one setting would have done.
type Tally struct {
	Setting   string   `json:"setting"`
	Opened    int      `json:"opened"`
	FirstOpen *float64 `json:"first_open_seconds"` // since the first call; nil: never
	NotClosed float64  `json:"not_closed_seconds"` // time spent open and half-open
	Refused   uint64   `json:"refused"`
	Share     float64  `json:"refused_share"` // of all calls
	Saved     uint64   `json:"saved"`         // refused calls that would have failed
	Lost      uint64   `json:"lost"`          // refused calls that would have succeeded, slow ones included
	Failed    uint64   `json:"failed"`        // calls that were let through and failed
}

// Run replays a trace through each setting, the first of which is told in detail. seed draws the jitter of the waits, the
// same for every setting.
func Run(from Source, seed uint64, settings ...Setting) (*Report, error) {
	if len(settings) == 0 || len(settings) > MaxSettings {
		return nil, fmt.Errorf("%d settings: want 1 to %d", len(settings), MaxSettings)
	}
	first, err := from.Next()
	if errors.Is(err, io.EOF) {
		return nil, errNoCalls
	}
	if err != nil {
		return nil, err
	}
	r := &Report{Start: first.At, Moves: []Move{}}
	trials := make([]*trial, len(settings))
	for i, s := range settings {
		if trials[i], err = newTrial(first.At, seed, s); err != nil {
			return nil, err
		}
	}
	trials[0].told = r.keep
	last := first.At
	for c := first; ; {
		r.Calls++
		last = maxTime(last, c.At.Add(c.Latency))
		for _, t := range trials {
			if err := t.call(c); err != nil {
				return nil, err
			}
		}
		if c, err = from.Next(); errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	r.Lasted = last.Sub(first.At)
	r.Seconds = r.Lasted.Seconds()
	for _, t := range trials {
		r.Tried = append(r.Tried, t.end(last, r.Calls))
	}
	return r, nil
}

func (r *Report) keep(e breaker.Event) {
	if len(r.Moves) == maxKept {
		r.Omitted++
		return
	}
	r.Moves = append(r.Moves, Move{
		At: e.At, After: e.At.Sub(r.Start).Seconds(), From: e.From.String(), To: e.To.String(), Rule: e.Reason.String(),
		Window: e.Window.Seconds(), Samples: e.Samples, Failures: e.Failures, Slow: e.Slow, Rate: e.Rate, Bound: e.Bound,
		Threshold: e.Threshold, Wait: e.Wait.Seconds(),
	})
}

// trial is one breaker under a trace.
type trial struct {
	tally Tally
	b     *breaker.Breaker
	start time.Time
	told  func(breaker.Event) // nil: nobody

	flying inFlight
	opened time.Time // when it was last not closed any more
	state  breaker.State
}

func newTrial(start time.Time, seed uint64, s Setting) (*trial, error) {
	t := &trial{tally: Tally{Setting: s.Name}, start: start}
	rnd := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // jitter, not a secret
	b, err := breaker.NewAt(start, breaker.Key{Service: "trace", Endpoint: "calls"}, s.Config, rnd, t.move)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	t.b = b
	return t, nil
}

func (t *trial) move(e breaker.Event) {
	if t.state == breaker.Closed && e.To != breaker.Closed {
		t.opened = e.At
	}
	if t.state != breaker.Closed && e.To == breaker.Closed {
		t.tally.NotClosed += e.At.Sub(t.opened).Seconds()
	}
	t.state = e.To
	if e.To == breaker.Open {
		t.tally.Opened++
		if t.tally.FirstOpen == nil {
			after := e.At.Sub(t.start).Seconds()
			t.tally.FirstOpen = &after
		}
	}
	if t.told != nil {
		t.told(e)
	}
}

// call ends what has ended by the moment of a call, and then makes the call if the breaker admits it.
func (t *trial) call(c Call) error {
	t.land(c.At)
	p, ok := t.b.AllowAt(c.At)
	if !ok {
		t.tally.Refused++
		switch c.Result {
		case breaker.Failure:
			t.tally.Saved++
		case breaker.Success, breaker.Slow:
			t.tally.Lost++
		case breaker.Ignored:
		}
		return nil
	}
	if c.Result == breaker.Failure {
		t.tally.Failed++
	}
	if len(t.flying) == maxInFlight {
		return fmt.Errorf("more than %d calls in flight at %s: the latencies can't be right", maxInFlight, c.At.Format(time.RFC3339Nano))
	}
	heap.Push(&t.flying, flight{ends: c.At.Add(c.Latency), permit: p, result: c.Result})
	return nil
}

// land reports the calls that end by a moment, in the order in which they end.
func (t *trial) land(by time.Time) {
	for len(t.flying) > 0 && !t.flying[0].ends.After(by) {
		f := heap.Pop(&t.flying).(flight) //nolint:errcheck // it holds nothing else
		t.b.DoneAt(f.ends, f.permit, f.result)
	}
}

func (t *trial) end(last time.Time, calls uint64) Tally {
	t.land(last)
	t.b.SnapshotAt(last) // a wait that is over moves it
	if t.state != breaker.Closed {
		t.tally.NotClosed += last.Sub(t.opened).Seconds()
	}
	t.tally.Share = float64(t.tally.Refused) / float64(calls)
	return t.tally
}

// flight is a call under way.
type flight struct {
	ends   time.Time
	permit breaker.Permit
	result breaker.Result
}

// inFlight is a heap of calls, the next to end first.
type inFlight []flight

// Len implements sort.Interface.
func (h *inFlight) Len() int { return len(*h) }

// Less implements sort.Interface.
func (h *inFlight) Less(i, j int) bool { return (*h)[i].ends.Before((*h)[j].ends) }

// Swap implements sort.Interface.
func (h *inFlight) Swap(i, j int) { (*h)[i], (*h)[j] = (*h)[j], (*h)[i] }

// Push implements heap.Interface.
func (h *inFlight) Push(x any) { *h = append(*h, x.(flight)) } //nolint:errcheck // heap.Push above gives nothing else

// Pop implements heap.Interface.
func (h *inFlight) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
