package permit

import (
	"context"
	"testing"
	"testing/synctest"

	"spillway/order"
)

// line puts a waiter of a lane in line and returns what tells that it was served.
func line(t *testing.T, p *Pool, l order.Lane) (served chan struct{}) {
	t.Helper()
	served = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() {
		if p.Acquire(ctx, l) == nil {
			close(served)
		}
	}()
	synctest.Wait()
	return served
}

func isServed(served chan struct{}) bool {
	synctest.Wait()
	select {
	case <-served:
		return true
	default:
		return false
	}
}

func TestKeepGivesWayToWhoHasTheBetterClaim(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		live, replay int // permits held
		waits        []order.Lane
		keeps        bool
		goesTo       int // index in waits
	}{
		{"nobody waits", 10, 0, nil, true, 0},
		{"only its own lane waits", 10, 0, []order.Lane{order.LaneLive}, true, 0},
		{"a lane below its guarantee waits", 10, 0, []order.Lane{order.LaneReplay}, false, 0},
		{"both have what they are owed: the waiter was there first", 8, 2, []order.Lane{order.LaneReplay}, false, 0},
		{"the holder's lane is owed this permit", 7, 3, []order.Lane{order.LaneReplay}, true, 0},
		{"its own lane waits too, and for longer", 8, 2, []order.Lane{order.LaneLive, order.LaneReplay}, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := New(Config{Limit: 10, Live: 0.7, Replay: 0.2, Compensate: 0.1})
				for range c.live {
					p.TryAcquire(order.LaneLive)
				}
				for range c.replay {
					p.TryAcquire(order.LaneReplay)
				}
				waiters := make([]chan struct{}, len(c.waits))
				for i, l := range c.waits {
					waiters[i] = line(t, p, l)
				}
				if keeps := p.Keep(order.LaneLive); keeps != c.keeps {
					t.Fatalf("keeps %t, want %t", keeps, c.keeps)
				}
				if n := p.InUse(); n != 10 {
					t.Errorf("%d permits in use, want 10", n)
				}
				for i, w := range waiters {
					if want := !c.keeps && i == c.goesTo; isServed(w) != want {
						t.Errorf("waiter %d of lane %s: served %t, want %t", i, c.waits[i], !want, want)
					}
				}
			})
		})
	}
}

func TestKeepGivesBackWhatALowerLimitHasNoRoomFor(t *testing.T) {
	t.Parallel()
	p := New(Config{Limit: 3})
	for range 3 {
		p.TryAcquire(order.LaneLive)
	}
	p.setLimit(2)
	if p.Keep(order.LaneLive) || p.InUse() != 2 {
		t.Errorf("%d in use under a limit of 2", p.InUse())
	}
	if !p.Keep(order.LaneLive) {
		t.Error("a permit within the limit was not kept")
	}
	if p.Keep(order.LaneReplay) {
		t.Error("a lane kept a permit it did not hold")
	}
}

//nolint:paralleltest // allocations of other tests would count
func TestKeepAllocatesNothing(t *testing.T) {
	p := New(Config{Limit: 3})
	p.TryAcquire(order.LaneLive)
	if n := testing.AllocsPerRun(100, func() { p.Keep(order.LaneLive) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
