package order_test

import (
	"testing"
	"time"
	"unicode/utf8"

	"spillway/order"
)

// checkTransition looks at what every transition must keep, whatever it came from.
func checkTransition(t *testing.T, p order.Policy, o *order.Order, next order.Transition) {
	t.Helper()
	if (next.State == order.Processing) != (next.Phase != order.NoPhase) {
		t.Errorf("%v with phase %v: want a phase if and only if PROCESSING", next.State, next.Phase)
	}
	if next.Phase == order.InFlight {
		t.Error("phase IN_FLIGHT: only the store begins attempts")
	}
	if !order.CanMove(order.Processing, next.State) {
		t.Errorf("PROCESSING to %v: want a move that CanMove allows", next.State)
	}
	if (next.State == order.Processing) == next.Due.IsZero() {
		t.Errorf("%v due at %v: want a PROCESSING order due and no other", next.State, next.Due)
	}
	if (next.Phase == order.Replaying) == next.NotBefore.IsZero() {
		t.Errorf("phase %v not before %v: want a time if and only if REPLAYING", next.Phase, next.NotBefore)
	}
	if next.Phase == order.Replaying && next.Due != next.NotBefore.Add(p.ReplayPatience) {
		t.Errorf("due %v, not before %v: want the route's patience between them", next.Due, next.NotBefore)
	}
	if next.Phase == order.Replaying && next.NotBefore.Sub(noon) > max(p.RetryDelayMax+p.RetryDelayMax/5, p.RetryAfterMax)+1 {
		t.Errorf("not before %v from now: want it within the bounds of the settings", next.NotBefore.Sub(noon))
	}
	if next.Attempts < 0 || next.AttemptsTotal < 0 || next.Lookups < 0 {
		t.Errorf("counts %d %d %d: want none below zero", next.Attempts, next.AttemptsTotal, next.Lookups)
	}
	if next.Attempts > o.Attempts || next.AttemptsTotal > o.AttemptsTotal || next.Lookups > o.Lookups {
		t.Errorf("counts %d %d %d after %d %d %d: a decision counts nothing up", next.Attempts, next.AttemptsTotal, next.Lookups,
			o.Attempts, o.AttemptsTotal, o.Lookups)
	}
	if len(next.Detail) > order.MaxDetail || !utf8.ValidString(next.Detail) {
		t.Errorf("detail of %d bytes, %q: want valid UTF-8 of at most %d", len(next.Detail), next.Detail, order.MaxDetail)
	}
}

// FuzzAfterAttempt looks at what must hold after any attempt: nothing is SUCCEEDED without the downstream's word (I4),
// nothing that may have been applied is sent again unasked (I6), nothing goes on for ever (I7).
func FuzzAfterAttempt(f *testing.F) {
	for i, o := range order.Outcomes() {
		f.Add(int16(o), 1, 1, i%2 == 0, i%3 == 0, int64(i)*int64(time.Second), int64(i), 0.25, "detail")
	}
	f.Fuzz(func(t *testing.T, outcome int16, attempts, extra int, probe, sent bool, retryAfter, seed int64, jitter float64, detail string) {
		attempts, extra = 1+abs(attempts)%40, abs(extra)%40
		if !(jitter >= 0 && jitter < 1) {
			jitter = 0.5
		}
		p := testPolicy()
		p.Degrade = order.Degrade(abs(int(seed)) % 3)
		o := inFlight(attempts, attempts+extra)
		a := order.Answer{
			Outcome: order.Outcomes()[abs(int(outcome))%len(order.Outcomes())], Reason: order.UpstreamReset, Detail: detail,
			RetryAfter: time.Duration(retryAfter), Sent: sent, Probe: probe,
		}
		next := p.AfterAttempt(o, a, noon, jitter)
		checkTransition(t, p, o, next)
		if (next.State == order.Succeeded) != (a.Outcome == order.OutcomeSucceeded) {
			t.Errorf("%v makes %v", a.Outcome, next.State)
		}
		mayBeApplied := a.Outcome == order.OutcomeUnknown || (a.Outcome == order.OutcomeCancelled && a.Sent)
		if mayBeApplied != (next.Phase == order.Unknown) {
			t.Errorf("%v, sent %v, makes phase %v: want UNKNOWN exactly for what may have been applied", a.Outcome, a.Sent, next.Phase)
		}
		if next.Phase == order.Replaying && next.AttemptsTotal >= p.ReplayAttemptsTotal &&
			a.Outcome != order.OutcomeRefused && a.Outcome != order.OutcomeCancelled {
			t.Errorf("%d attempts and another to come: want a dead letter", next.AttemptsTotal)
		}
	})
}

// FuzzAfterLookup looks at what must hold after any lookup: a resend only once the grace is over and the service does not
// know the order (I6), and a final state only by the service's word.
func FuzzAfterLookup(f *testing.F) {
	for i, v := range order.Verdicts() {
		f.Add(int16(v), 1, 1, 1, i%2 == 0, i%3 == 0, int64(i)*int64(time.Second), int64(i)*int64(4*time.Second), 0.25, "detail")
	}
	f.Fuzz(func(t *testing.T, verdict int16, attempts, extra, lookups int, probe, fail bool, retryAfter, since int64, jitter float64, detail string) {
		if !(jitter >= 0 && jitter < 1) {
			jitter = 0.5
		}
		p := testPolicy()
		p.FailNotFound = fail
		ago := time.Duration(since) % time.Hour
		o := &order.Order{
			State: order.Processing, Phase: order.Unknown, Version: 3, Attempts: abs(attempts) % 40, Lookups: 1 + abs(lookups)%40,
			LastAttempt: noon.Add(-ago),
		}
		o.AttemptsTotal = o.Attempts + abs(extra)%40
		v := order.Verdicts()[abs(int(verdict))%len(order.Verdicts())]
		next := p.AfterLookup(o, order.Finding{
			Verdict: v, Reason: order.NoVerdict, Detail: detail, RetryAfter: time.Duration(retryAfter), Probe: probe,
		}, noon, jitter)
		checkTransition(t, p, o, next)
		ripe := ago >= p.Grace
		if next.Phase == order.Replaying && (v != order.VerdictNotFound || !ripe || fail) {
			t.Errorf("%v after %v makes REPLAYING: want it of NOT_FOUND past the grace alone", v, ago)
		}
		if (next.State == order.Succeeded) != (v == order.VerdictSucceeded) {
			t.Errorf("%v makes %v", v, next.State)
		}
		if (next.State == order.Failed) != (v == order.VerdictFailed || (v == order.VerdictNotFound && ripe && fail)) {
			t.Errorf("%v after %v, fail %v, makes %v", v, ago, fail, next.State)
		}
		if next.Phase == order.Unknown && !next.Due.After(noon) {
			t.Errorf("the next lookup is due %v ago: want it ahead", noon.Sub(next.Due))
		}
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}
