package wallet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Kind is what a behaviour does with a request.
type Kind string

// The closed set of kinds.
const (
	Answer Kind = "answer" // the answer is Status, after Latency
	Hang   Kind = "hang"   // no answer, until the client gives up or MaxHang has passed
	Reset  Kind = "reset"  // the connection is dropped after Latency, with no answer
	Cut    Kind = "cut"    // a status line of 200 and half a body, then the connection is dropped
)

// Kinds lists every kind.
func Kinds() []Kind { return []Kind{Answer, Hang, Reset, Cut} }

// Duration is a time.Duration that JSON writes as text with a unit.
type Duration time.Duration

// MarshalText writes it as 1m30s.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads 1m30s; a bare number is refused.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("duration %q: want a number with a unit, such as 250ms", b)
	}
	*d = Duration(v)
	return nil
}

// Behaviour is one way of dealing with a request.
type Behaviour struct {
	Kind Kind `json:"kind"`
	// Weight is how often it is chosen among its mode's behaviours; 0 counts as 1.
	Weight int `json:"weight,omitempty"`
	// Latency is how long the work takes, and Jitter up to how much longer, evenly spread.
	Latency Duration `json:"latency,omitempty"`
	Jitter  Duration `json:"jitter,omitempty"`
	// Status of an Answer; 0 is 200.
	Status int `json:"status,omitempty"`
	// RetryAfter is sent with the answer, in whole seconds rounded up; 0 sends none.
	RetryAfter Duration `json:"retry_after,omitempty"`
	// Applied is the chance, 0 to 1, that a POST takes effect. It is looked at for every kind but an Answer below 300,
	// which always takes effect.
	Applied float64 `json:"applied,omitempty"`
	// Late is the chance, 0 to 1, that an effect comes only after the answer, the reset, or LateBy of a hang; otherwise it
	// comes before.
	Late   float64  `json:"late,omitempty"`
	LateBy Duration `json:"late_by,omitempty"`
}

// Mode is how the service behaves. Each request gets one behaviour, drawn by weight.
type Mode struct {
	Name string `json:"name,omitempty"`
	// Pay is for POST /pay; empty is healthy.
	Pay []Behaviour `json:"pay,omitempty"`
	// Lookup is for GET /pay/{number}; empty answers at once and truthfully. An Answer with a status below 300 is
	// truthful after its latency: 404 for a number without an effect.
	Lookup []Behaviour `json:"lookup,omitempty"`
	// Capacity is how many requests are worked on at once; one more is answered 503. 0 is no limit.
	Capacity int `json:"capacity,omitempty"`
	// Undecided makes lookups of known numbers say PROCESSING.
	Undecided bool `json:"undecided,omitempty"`
}

// Healthy answers every request after latency.
func Healthy(latency time.Duration) Mode {
	return Mode{Name: "healthy", Pay: []Behaviour{{Kind: Answer, Latency: Duration(latency)}}}
}

// Slow is Healthy under the name people look for, with half the latency again as jitter.
func Slow(latency time.Duration) Mode {
	return Mode{Name: "slow", Pay: []Behaviour{{Kind: Answer, Latency: Duration(latency), Jitter: Duration(latency / 2)}}}
}

// Failing answers every POST with status and does nothing.
func Failing(status int) Mode {
	return Mode{Name: "failing", Pay: []Behaviour{{Kind: Answer, Status: status}}}
}

// Timeouts never answers a POST. With the chance applied it takes effect nevertheless: before the hang, or, with the
// chance late, lateBy after the request came.
func Timeouts(applied, late float64, lateBy time.Duration) Mode {
	return Mode{Name: "timeouts", Pay: []Behaviour{{Kind: Hang, Applied: applied, Late: late, LateBy: Duration(lateBy)}}}
}

// Resets drops the connection of every POST; with the chance applied it takes effect first.
func Resets(applied float64) Mode {
	return Mode{Name: "resets", Pay: []Behaviour{{Kind: Reset, Applied: applied}}}
}

// Mix draws among behaviours by weight.
func Mix(pay ...Behaviour) Mode { return Mode{Name: "mix", Pay: pay} }

// RefuseLookups answers every lookup with status.
func (m Mode) RefuseLookups(status int) Mode {
	m.Lookup = []Behaviour{{Kind: Answer, Status: status}}
	return m
}

// Limit bounds how many requests are worked on at once.
func (m Mode) Limit(capacity int) Mode {
	m.Capacity = capacity
	return m
}

// check says what is wrong with a mode.
func (m Mode) check() error {
	if m.Capacity < 0 {
		return fmt.Errorf("capacity %d: want 0 or more", m.Capacity)
	}
	for what, bs := range map[string][]Behaviour{"pay": m.Pay, "lookup": m.Lookup} {
		for i, b := range bs {
			if err := b.check(); err != nil {
				return fmt.Errorf("%s behaviour %d: %w", what, i+1, err)
			}
		}
	}
	return nil
}

func (b Behaviour) check() error {
	known := false
	for _, k := range Kinds() {
		known = known || b.Kind == k
	}
	switch {
	case !known:
		return fmt.Errorf("kind %q: want one of %v", b.Kind, Kinds())
	case b.Weight < 0:
		return fmt.Errorf("weight %d: want 0 or more", b.Weight)
	case b.Latency < 0 || b.Jitter < 0 || b.LateBy < 0 || b.RetryAfter < 0:
		return fmt.Errorf("durations must not be negative")
	case b.Status != 0 && (b.Status < 200 || b.Status > 599):
		return fmt.Errorf("status %d: want 200 to 599", b.Status)
	case b.Applied < 0 || b.Applied > 1 || b.Late < 0 || b.Late > 1:
		return fmt.Errorf("chances go from 0 to 1")
	}
	return nil
}

// named modes for people: {"name":"slow"} alone is enough for PUT /mode.
func named(name string) (Mode, bool) {
	switch name {
	case "healthy":
		return Healthy(20 * time.Millisecond), true
	case "slow":
		return Slow(2 * time.Second), true
	case "failing":
		return Failing(http.StatusInternalServerError), true
	case "overloaded":
		return Mode{Name: name, Pay: []Behaviour{{Kind: Answer, Status: http.StatusServiceUnavailable, RetryAfter: Duration(time.Second)}}}, true
	case "timeouts":
		return Timeouts(0.5, 0.5, time.Second), true
	case "resets":
		return Resets(1), true
	case "flaky":
		m := Mix(
			Behaviour{Kind: Answer, Weight: 90, Latency: Duration(20 * time.Millisecond), Jitter: Duration(20 * time.Millisecond)},
			Behaviour{Kind: Answer, Weight: 4, Status: http.StatusInternalServerError, Applied: 0.5},
			Behaviour{Kind: Hang, Weight: 3, Applied: 0.5},
			Behaviour{Kind: Reset, Weight: 2, Applied: 0.5},
			Behaviour{Kind: Cut, Weight: 1, Applied: 1},
		)
		m.Name = name
		return m, true
	}
	return Mode{}, false
}

// ParseMode reads a mode's JSON. A name alone stands for one of healthy, slow, failing, overloaded, timeouts, resets and
// flaky.
func ParseMode(b []byte) (Mode, error) {
	var m Mode
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("mode: %w", err)
	}
	if len(m.Pay) == 0 && m.Name != "" {
		base, ok := named(m.Name)
		if !ok {
			return m, fmt.Errorf("mode %q: want healthy, slow, failing, overloaded, timeouts, resets, flaky, or behaviours", m.Name)
		}
		m.Pay = base.Pay
	}
	return m, m.check()
}
