package consumer

import (
	"testing"
	"testing/synctest"
	"time"

	"spillway/order"
)

func TestLaneSettlesEveryRecordAndCommitsBehindIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(5, 10*time.Millisecond, order.Answer{Outcome: order.OutcomeSucceeded})
		b := startLane(t, 200, a, nil)
		time.Sleep(3 * time.Second)
		if committed, _ := b.group.at(); committed != 200 {
			t.Errorf("committed %d, want 200", committed)
		}
		if n := b.store.count(order.Succeeded, order.NoPhase); n != 200 {
			t.Errorf("%d succeeded, want 200", n)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// TestLaneTakesNewNumbersWhileItRuns changes how long is waited for a permit, and what follows from an attempt.
func TestLaneTakesNewNumbersWhileItRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(1, 10*time.Second, order.Answer{Outcome: order.OutcomeOverloaded})
		b := startLane(t, 4, a, func(c *Config) {
			c.PermitWait = time.Hour
			c.Policy.ReplayAttempts = 10
		})
		time.Sleep(5 * time.Second)
		if s := b.lane.Level(); s.Paused != 0 || s.InFlight != 1 {
			t.Fatalf("status %+v: want one in flight and nothing paused", s)
		}
		b.lane.SetPermitWait(time.Second)
		p := b.lane.cfg.Policy
		p.ReplayAttempts, p.Degrade = 1, order.Hold
		b.lane.SetPolicy(p)
		time.Sleep(10 * time.Second)
		if s := b.lane.Level(); s.Paused != 1 {
			t.Errorf("status %+v: want the partition paused, for no permit comes within a second", s)
		}
		if n := b.store.count(order.Dead, order.NoPhase); n != 1 {
			t.Errorf("%d dead letters, want that of the one attempt allowed", n)
		}
		if b.lane.policy.Load().Degrade != order.Spill {
			t.Error("the degrade rule changed")
		}
		limits := b.lane.limits
		limits.Tenants = 7
		b.lane.SetLimits(limits)
		if n := b.lane.now.Load().line.tenants; n != 7 {
			t.Errorf("%d tenants have a turn of their own, want 7", n)
		}
		b.lane.SetPermitWait(0)
		if d := b.lane.permitWait(); d != 20*time.Millisecond {
			t.Errorf("a wait of %v, want the default", d)
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestLaneHoldsWhenPermitsRunOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(2, time.Hour, order.Answer{})
		b := startLane(t, 100_000, a, nil)
		time.Sleep(time.Second)
		s := b.lane.Level()
		if s.Paused != 1 || s.Constraint != ConstraintPermits || s.InFlight != 2 {
			t.Errorf("status %+v: want the partition paused for permits with 2 in flight", s)
		}
		_, before := b.group.at()
		time.Sleep(time.Minute)
		if _, after := b.group.at(); after != before {
			t.Errorf("%d fetches of a paused partition", after-before)
		}
		if b.store.renewals() == 0 {
			t.Error("no lease was renewed in a minute")
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if n := b.store.count(order.Processing, order.Unknown); n != 2 {
			t.Errorf("%d UNKNOWN, want the 2 that were cut off in flight", n)
		}
		if n := b.store.count(order.Processing, order.InFlight); n != 0 {
			t.Errorf("%d left IN_FLIGHT after the drain", n)
		}
	})
}

func TestLaneDrainsWhatIsInFlightBeforeTheLastCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(10, 3*time.Second, order.Answer{Outcome: order.OutcomeSucceeded})
		b := startLane(t, 10, a, func(c *Config) { c.Drain = 10 * time.Second })
		time.Sleep(time.Second)
		start := time.Now()
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(start); took > 2*time.Second+100*time.Millisecond {
			t.Errorf("drained in %s: it waits for the calls and no longer", took)
		}
		committed, _ := b.group.at()
		if n := b.store.count(order.Succeeded, order.NoPhase); n != 10 || committed != 10 {
			t.Errorf("%d succeeded, committed %d: want 10 and 10", n, committed)
		}
	})
}

func TestLaneHoldsAndCommitsNothingWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(5, 10*time.Millisecond, order.Answer{Outcome: order.OutcomeSucceeded})
		b := startLane(t, 1000, a, nil)
		time.Sleep(100 * time.Millisecond)
		b.store.set(true)
		time.Sleep(time.Second)
		committed, fetches := b.group.at()
		if s := b.lane.Level(); s.Constraint != ConstraintStore || s.Paused != 1 {
			t.Errorf("status %+v: want intake held for the store", s)
		}
		time.Sleep(20 * time.Second)
		if c, f := b.group.at(); c != committed || f != fetches {
			t.Errorf("committed %d → %d, fetches %d → %d while the store was away", committed, c, fetches, f)
		}
		b.store.set(false)
		time.Sleep(10 * time.Second)
		if c, _ := b.group.at(); c != 1000 {
			t.Errorf("committed %d, want 1000 after the store came back", c)
		}
		if _, most := a.made(); most != 1 {
			t.Errorf("an order was called %d times", most)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestLaneCommitsNoSpilledOrderBeforeTheQueueTookIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(5, 10*time.Millisecond, order.Answer{Outcome: order.OutcomeOverloaded})
		b := startLane(t, 20, a, nil)
		b.replay.set(errDown)
		time.Sleep(30 * time.Second)
		if c, _ := b.group.at(); c != 0 {
			t.Errorf("committed %d with the replay queue away", c)
		}
		if _, tries := b.replay.seen(); tries > 31 {
			t.Errorf("%d pushes tried in 30 s: want at most one a second", tries)
		}
		if s := b.lane.Level(); s.Paused != 1 {
			t.Errorf("status %+v: want intake held", s)
		}
		b.replay.set(nil)
		time.Sleep(3 * time.Second)
		c, _ := b.group.at()
		if items, _ := b.replay.seen(); c != 20 || items != 20 {
			t.Errorf("committed %d, queued %d: want 20 and 20", c, items)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// Orders under way still find room now and then while the queue is at its bound. Each of them let intake resume.
func TestLaneHoldsForAFullQueueUntilItIsToldThatThereIsRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(5, 100*time.Millisecond, order.Answer{Outcome: order.OutcomeOverloaded})
		b := startLane(t, 50, a, nil)
		b.replay.set(order.ErrQueueFull)
		time.Sleep(150 * time.Millisecond)
		b.replay.set(nil)
		time.Sleep(500 * time.Millisecond)
		if items, _ := b.replay.seen(); items == 0 {
			t.Error("nothing went into the queue meanwhile")
		}
		if s := b.lane.Level(); s.Constraint != ConstraintReplayFull || s.Paused != 1 {
			t.Errorf("status %+v, want intake held for the full queue", s)
		}
		b.lane.SetReplayFull(t.Context(), false)
		if s := b.lane.Level(); s.Constraint == ConstraintReplayFull || s.Paused != 0 {
			t.Errorf("status %+v, want intake resumed", s)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestLaneHoldsOnAnOpenBreakerWhereTheRouteSaysHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(5, 10*time.Millisecond, order.Answer{Outcome: order.OutcomeSucceeded})
		a.setOpen(true)
		b := startLane(t, 50, a, func(c *Config) { c.Policy.Degrade = order.Hold })
		time.Sleep(5 * time.Second)
		if calls, _ := a.made(); calls != 0 {
			t.Errorf("%d calls through an open breaker", calls)
		}
		if s := b.lane.Level(); s.Constraint != ConstraintBreaker {
			t.Errorf("constraint %s, want breaker", s.Constraint)
		}
		a.setOpen(false)
		time.Sleep(5 * time.Second)
		if n := b.store.count(order.Succeeded, order.NoPhase); n != 50 {
			t.Errorf("%d succeeded, want 50", n)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestLaneSendsNothingOnALostLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(1, 40*time.Second, order.Answer{Outcome: order.OutcomeSucceeded})
		b := startLane(t, 2, a, nil)
		b.store.lose() // whoever asks for a renewal hears that the lease is somebody else's
		time.Sleep(3 * time.Minute)
		if calls, _ := a.made(); calls != 1 {
			t.Errorf("%d calls, want 1: the other lost its lease while it waited", calls)
		}
		if c, _ := b.group.at(); c != 2 {
			t.Errorf("committed %d, want 2: the rows are the scanner's", c)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// A handler that answers at once let admission win the store over the settlers: a hundred thousand orders stood called
// and not settled.
func TestLaneAdmitsNothingWhileTooManyOutcomesWaitToBeWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const records = 12_000
		a := newAttempter(10, 0, order.Answer{Outcome: order.OutcomeSucceeded})
		b := startLane(t, records, a, nil)
		b.store.slowDown(time.Second) // 1,000 orders a second
		most := 0
		for range 14 {
			time.Sleep(time.Second)
			calls, _ := a.made()
			most = max(most, calls-b.store.count(order.Succeeded, order.NoPhase))
		}
		// What waits, what is inside both settlers' statements, and what was ahead when the line grew full.
		if bound := settleMost + settlers*batchRecords + 2000 + admitters*batchRecords; most > bound || most < settleMost {
			t.Errorf("%d orders stood called and not settled, want about %d", most, settleMost)
		}
		time.Sleep(5 * time.Second)
		if n := b.store.count(order.Succeeded, order.NoPhase); n != records {
			t.Errorf("%d orders succeeded, want %d", n, records)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
