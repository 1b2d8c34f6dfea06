package breaker

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestRushOfRefusalsSeesTheEndOfTheWaitSevenRefusalsLateAtMost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, err := New(Key{"s", "e"}, Config{ConsecutiveFailures: 1, OpenWait: time.Minute, OpenJitter: -1}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := b.Allow()
		b.Done(p, Failure)
		for range 1000 { // no time goes by: a rush
			if _, ok := b.Allow(); ok {
				t.Fatal("an open breaker admitted a call")
			}
		}
		time.Sleep(time.Minute)
		late := 0
		for ; late <= refusalsPerLook; late++ {
			if _, ok := b.Allow(); ok {
				break
			}
		}
		if late >= refusalsPerLook {
			t.Errorf("%d refusals after the wait", late)
		}
		if s := b.Snapshot(); s.Totals.Refused != uint64(1000+late) || s.Totals.Admitted != 2 {
			t.Errorf("refused %d, admitted %d: want %d and 2", s.Totals.Refused, s.Totals.Admitted, 1000+late)
		}
	})
}

func TestRefusalsFarApartSeeTheEndOfTheWaitAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, err := New(Key{"s", "e"}, Config{ConsecutiveFailures: 1, OpenWait: time.Minute, OpenJitter: -1}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := b.Allow()
		b.Done(p, Failure)
		for range 59 {
			time.Sleep(time.Second)
			if _, ok := b.Allow(); ok {
				t.Fatal("an open breaker admitted a call")
			}
		}
		time.Sleep(time.Second)
		if _, ok := b.Allow(); !ok {
			t.Error("the wait is over and the call was refused")
		}
	})
}

func TestRushOfRefusalsSeesAMoveAtOnce(t *testing.T) {
	t.Parallel()
	open := Record{Epoch: 1, Moves: 1, State: Open, Wait: time.Minute, Opens: 1}
	for name, move := range map[string]func(b *Breaker){
		"the record is half-open": func(b *Breaker) {
			b.Adopt(Adoption{Record: Record{Epoch: 2, Moves: 2, State: HalfOpen}, Valid: time.Minute, Slots: 1, SlotsFor: time.Minute, Of: 1})
		},
		"the record is closed": func(b *Breaker) {
			b.Adopt(Adoption{Record: Record{Epoch: 2, Moves: 2, State: Closed}, Valid: time.Minute, Of: 1})
		},
		"forced closed":   func(b *Breaker) { _ = b.Force(ForceClosed, time.Minute) },
		"forced observe":  func(b *Breaker) { _ = b.Force(ForceObserve, time.Minute) },
		"mode is observe": func(b *Breaker) { _ = b.SetMode(ModeObserve) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, err := New(Key{"s", "e"}, Config{OpenJitter: -1}, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				b.Adopt(Adoption{Record: open, Valid: time.Minute, Of: 1})
				for range 1001 {
					if _, ok := b.Allow(); ok {
						t.Fatal("an open breaker admitted a call")
					}
				}
				move(b)
				if _, ok := b.Allow(); !ok {
					t.Error("the first call after the move was refused")
				}
				if s := b.Snapshot(); s.Totals.Refused != 1001 {
					t.Errorf("%d refused, want 1001", s.Totals.Refused)
				}
			})
		})
	}
}

func TestRefusedCallsNeverGrowFewer(t *testing.T) {
	t.Parallel()
	b, err := New(Key{"s", "e"}, Config{ConsecutiveFailures: 1, OpenWait: time.Millisecond, OpenJitter: -1, OpenGrowth: 1, SuccessesToClose: 1000}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for range 20_000 {
				if p, ok := b.Allow(); ok {
					b.Done(p, Failure)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		asking.Wait()
		close(ended)
	}()
	last := uint64(0)
	for over := false; !over; {
		select {
		case <-ended:
			over = true
		default:
		}
		n := b.Snapshot().Totals.Refused
		if n < last {
			t.Fatalf("%d calls refused, and %d before", n, last)
		}
		last = n
	}
	// A look in the middle of a call may have counted it as refused before it was admitted, once for each caller.
	if c := b.Snapshot().Totals; c.Refused+c.Admitted < 80_000 || c.Refused+c.Admitted > 80_004 {
		t.Errorf("%d refused and %d admitted of 80000", c.Refused, c.Admitted)
	}
}
