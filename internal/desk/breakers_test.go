package desk

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSummariesOfBreakersCountTheOpeningsOfTheWindowAndTheTimeOpen(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	move := func(route, worker string, generation uint64, ago time.Duration, from, to, reason string, wait time.Duration) BreakerEvent {
		return BreakerEvent{
			At: now.Add(-ago), Worker: worker, Route: route, Endpoint: "submit", Generation: generation, From: from, To: to, Reason: reason, Wait: wait,
		}
	}
	events := []BreakerEvent{ // the latest first, as they are read
		move("wallet", "w1", 5, 5*time.Second, "half-open", "open", "probes-failed", time.Minute), // still open
		move("wallet", "w1", 4, time.Hour-2*time.Minute, "half-open", "closed", "ramp-done", 0),
		move("wallet", "w1", 3, time.Hour-time.Minute, "open", "half-open", "wait-over", 0),
		move("wallet", "w1", 2, time.Hour, "closed", "open", "failure-rate", 30*time.Second),
		move("wallet", "w2", 1, time.Hour-30*time.Second, "closed", "open", "quorum", 45*time.Second), // said nothing more
		move("wallet", "w3", 2, 23*time.Hour+50*time.Minute, "open", "half-open", "wait-over", 0),     // opened before the window
		move("wallet", "w3", 1, 24*time.Hour+10*time.Minute, "closed", "open", "slow-rate", 30*time.Second),
		move("ledger", "w1", 1, 30*time.Hour, "closed", "open", "slow-rate", time.Second),
	}
	want := []BreakerSummary{
		{Route: "ledger", Endpoint: "submit"},
		{
			Route: "wallet", Endpoint: "submit", Openings: 3, Workers: 2, LastOpened: now.Add(-5 * time.Second), LastReason: "probes-failed",
			Open: 10*time.Minute + 75*time.Second + 5*time.Second,
		},
	}
	if d := cmp.Diff(want, SummarizeBreakers(events, now, 24*time.Hour)); d != "" {
		t.Errorf("summaries (-want +got):\n%s", d)
	}
	if got := SummarizeBreakers(nil, now, time.Hour); got != nil {
		t.Errorf("of nothing: %+v", got)
	}
}
