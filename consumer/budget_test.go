package consumer

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/order"
)

func TestRetryBudgetIsAShareOfTheFirstAttempts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		share        float64
		burst, after int // retries at the start, and after 1,000 first attempts beside them
	}{
		{0, 0, 0}, {0.05, 5, 50}, {0.001, 1, 1}, {1, 100, 1000}, {-1, 0, 0}, {7, 100, 1000},
	} {
		b := newRetryBudget(c.share)
		spent := 0
		for b.spend() {
			spent++
		}
		if spent != c.burst {
			t.Errorf("share %v: %d retries at once, want %d", c.share, spent, c.burst)
		}
		spent = 0
		for range 1000 {
			b.earn()
			if b.spend() {
				spent++
			}
		}
		if spent != c.after {
			t.Errorf("share %v: %d retries of 1000, want %d", c.share, spent, c.after)
		}
		for range 1_000_000 {
			b.earn()
		}
		spent = 0
		for b.spend() {
			spent++
		}
		if spent != c.burst {
			t.Errorf("share %v: %d retries saved up by a million calls, want %d", c.share, spent, c.burst)
		}
	}
}

// notSent answers NOT_SENT to the first attempts of orders, and notes when each was made.
type notSent struct {
	first func(o *order.Order) bool // whether this one's first attempt fails

	mu    sync.Mutex
	at    map[string][]time.Time
	total map[string]int // attempts as the last one was counted
}

func (n *notSent) answer(o *order.Order) order.Answer {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at[o.Number] = append(n.at[o.Number], time.Now())
	n.total[o.Number] = o.AttemptsTotal
	if len(n.at[o.Number]) == 1 && n.first(o) {
		return order.Answer{Outcome: order.OutcomeNotSent, Reason: order.ConnectFailed}
	}
	return order.Answer{Outcome: order.OutcomeSucceeded}
}

// seen is what was noted, once nothing is noted any more.
func (n *notSent) seen() (at map[string][]time.Time, total map[string]int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at, n.total
}

func startNotSent(t *testing.T, records int64, first func(*order.Order) bool) (*bench, *notSent) {
	t.Helper()
	n := &notSent{first: first, at: map[string][]time.Time{}, total: map[string]int{}}
	a := newAttempter(5, 0, order.Answer{})
	a.answer = n.answer
	b := startLane(t, records, a, func(c *Config) { c.RetryBudget, c.RetryDelay = 0.05, 50*time.Millisecond })
	return b, n
}

func TestLaneTriesAgainOnceWhatNeverLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, n := startNotSent(t, 100, func(o *order.Order) bool { return o.Message.Offset%33 == 0 })
		time.Sleep(5 * time.Second)
		tries, total := n.seen()
		for number, at := range tries {
			if len(at) == 2 {
				if wait := at[1].Sub(at[0]); wait < 50*time.Millisecond || wait > 61*time.Millisecond {
					t.Errorf("%s was tried again after %s, want 50 ms and up to a fifth", number, wait)
				}
				if total[number] != 2 {
					t.Errorf("%s: the second attempt counts %d", number, total[number])
				}
			}
		}
		if got := b.store.count(order.Succeeded, order.NoPhase); got != 100 {
			t.Errorf("%d succeeded, want 100", got)
		}
		if items, _ := b.replay.seen(); items != 0 {
			t.Errorf("%d went into the replay queue", items)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestLaneSpillsWhatTheRetryBudgetHasNoRoomFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const records = 2000
		b, n := startNotSent(t, records, func(*order.Order) bool { return true }) // the service is away
		time.Sleep(10 * time.Second)
		again := 0
		tries, _ := n.seen()
		for number, at := range tries {
			again += len(at) - 1
			if len(at) > 2 {
				t.Errorf("%s was tried %d times", number, len(at))
			}
		}
		if want := 5 + records/20; again > want || again < want-5 {
			t.Errorf("%d retries of %d first attempts, want at most %d", again, records, want)
		}
		if items, _ := b.replay.seen(); items != records-again {
			t.Errorf("%d in the replay queue, want the %d that were not tried again", items, records-again)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// What waits for its retry when the partition goes was tried: it is not withdrawn, the attempt stays counted.
func TestLaneSpillsWhatWaitsForARetryAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &notSent{first: func(*order.Order) bool { return true }, at: map[string][]time.Time{}, total: map[string]int{}}
		a := newAttempter(5, 0, order.Answer{})
		a.answer = n.answer
		b := startLane(t, 3, a, func(c *Config) { c.RetryBudget, c.RetryDelay = 1, time.Hour })
		time.Sleep(time.Second)
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		b.store.mu.Lock()
		defer b.store.mu.Unlock()
		for number, row := range b.store.rows {
			if row.Phase != order.Replaying || row.AttemptsTotal != 1 || row.Outcome != order.OutcomeNotSent {
				t.Errorf("%s: %+v, want REPLAYING with one attempt NOT_SENT", number, row)
			}
		}
		if items, _ := b.replay.seen(); items != 3 {
			t.Errorf("%d in the replay queue, want 3", items)
		}
	})
}

// What the breaker refused was no attempt, and neither was what could not begin in time: an outage must not pay for retries of
// the few calls that a recovery lets through.
func TestOrdersThatWereNotTriedPayForNoRetry(t *testing.T) {
	t.Parallel()
	for _, untried := range []order.Answer{
		{Outcome: order.OutcomeRefused, Reason: order.CircuitOpen},
		{Outcome: order.OutcomeCancelled, Reason: order.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			const many = 500
			a := newAttempter(1, 0, order.Answer{})
			a.answer = func(o *order.Order) order.Answer {
				if o.Message.Offset == 0 || o.Message.Offset > many {
					return order.Answer{Outcome: order.OutcomeNotSent, Reason: order.ConnectFailed}
				}
				return untried
			}
			b := startLane(t, many+2, a, func(c *Config) { c.RetryBudget = 0.01 })
			time.Sleep(time.Second)
			a.mu.Lock()
			first, last := a.calls["T-0"], a.calls["T-501"]
			a.mu.Unlock()
			if first != 2 || last != 1 {
				t.Errorf("%v: %d and %d calls: want one retry from the full budget, and none from 500 orders not tried", untried.Outcome, first, last)
			}
			if err := b.stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

func TestAnOrderHandedBackBeforeItsRetryCountsOneOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		a := newAttempter(1, 0, order.Answer{Outcome: order.OutcomeNotSent, Reason: order.ConnectFailed})
		b := startLane(t, 1, a, func(c *Config) { c.RetryBudget, c.RetryDelay, c.Registerer = 1, time.Minute, reg })
		time.Sleep(time.Second)
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		got := 0.0
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "spillway_live_outcomes_total" {
				for _, m := range f.GetMetric() {
					got += m.GetCounter().GetValue()
				}
			}
		}
		if calls, _ := a.made(); calls != 1 || got != 1 {
			t.Errorf("%d calls, %v counted, want one of each", calls, got)
		}
	})
}

// The lease of a fleet's permits ended between the permit and the call, because the process stood still. That is a want of
// permits: the order waits for the next.
func TestAnOrderWhosePermitWasOverKeepsItsPlaceInLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(2, 0, order.Answer{})
		a.answer = func(o *order.Order) order.Answer {
			a.mu.Lock()
			defer a.mu.Unlock()
			if o.Message.Offset%2 == 0 && a.calls[o.Number] == 1 {
				return order.Answer{Outcome: order.OutcomeCancelled, Reason: order.BulkheadFull}
			}
			return order.Answer{Outcome: order.OutcomeSucceeded}
		}
		b := startLane(t, 20, a, nil)
		time.Sleep(time.Second)
		if items, _ := b.replay.seen(); items != 0 {
			t.Errorf("%d orders in the replay queue, that only waited for a permit", items)
		}
		if n := b.store.count(order.Succeeded, order.NoPhase); n != 20 {
			t.Errorf("%d succeeded, want 20", n)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
