package demo

import (
	"net/http"
	"time"

	"spillway/internal/wallet"
)

// Bounds of a story's length.
const (
	MinDuration     = 10 * time.Second
	MaxDuration     = 30 * time.Minute
	DefaultDuration = time.Minute
)

// The numbers of the story. What they must be to each other: a slow wallet takes a third of what comes in, a late
// effect comes after the call was given up and well before the first lookup.
const (
	partitions  = 12
	permits     = 12
	ratePerSec  = 120
	valueSize   = 1000 // bytes of an order
	badEvery    = 150  // one record in so many can't become an order
	callTimeout = 800 * time.Millisecond
	lateEffect  = 1100 * time.Millisecond // after the request came
	lookupAfter = time.Second             // after the call was given up
	lookupGrace = 2500 * time.Millisecond // after the call began
)

// chapter is a part of the story.
type chapter struct {
	name  string
	share float64 // of the story's length
	mode  wallet.Mode
}

// chapters lists the story's parts in their order. They use up the whole length; what follows is the drain.
func chapters() []chapter {
	return []chapter{
		{"healthy", 0.20, healthy()},
		{"the wallet slows", 0.20, answers("slow", 200*time.Millisecond, 100*time.Millisecond)},
		{"the wallet fails", 0.17, failing()},
		{"calls time out", 0.18, timeouts()},
		{"recovery", 0.25, healthy()},
	}
}

func healthy() wallet.Mode { return answers("healthy", 15*time.Millisecond, 10*time.Millisecond) }

// answers is a wallet that takes its time, and refuses one order in fifty for business reasons.
func answers(name string, latency, jitter time.Duration) wallet.Mode {
	take, more := wallet.Duration(latency), wallet.Duration(jitter)
	m := wallet.Mix(
		wallet.Behaviour{Kind: wallet.Answer, Weight: 98, Latency: take, Jitter: more},
		wallet.Behaviour{Kind: wallet.Answer, Weight: 2, Latency: take, Status: http.StatusUnprocessableEntity},
	)
	m.Name = name
	return m
}

// failing is a wallet that answers with errors: half of them say that nothing was done, the others say nothing, and
// half of those were applied. Its lookups fail too.
func failing() wallet.Mode {
	m := wallet.Mix(
		wallet.Behaviour{
			Kind: wallet.Answer, Weight: 1, Latency: wallet.Duration(5 * time.Millisecond),
			Status: http.StatusServiceUnavailable, RetryAfter: wallet.Duration(time.Second),
		},
		wallet.Behaviour{
			Kind: wallet.Answer, Weight: 1, Latency: wallet.Duration(5 * time.Millisecond),
			Status: http.StatusInternalServerError, Applied: 0.5,
		},
	).RefuseLookups(http.StatusServiceUnavailable)
	m.Name = "failing"
	return m
}

// timeouts is a wallet that leaves a third of the calls without an answer. Half of those are applied, some of them only
// after the caller has given up.
func timeouts() wallet.Mode {
	m := wallet.Mix(
		wallet.Behaviour{Kind: wallet.Answer, Weight: 66, Latency: wallet.Duration(15 * time.Millisecond)},
		wallet.Behaviour{Kind: wallet.Hang, Weight: 24, Applied: 0.5, Late: 0.5, LateBy: wallet.Duration(lateEffect)},
		wallet.Behaviour{Kind: wallet.Reset, Weight: 7, Applied: 0.5},
		wallet.Behaviour{Kind: wallet.Cut, Weight: 3, Applied: 1},
	)
	m.Name = "timeouts"
	return m
}
