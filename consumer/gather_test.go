package consumer

import (
	"testing"
	"testing/synctest"
	"time"

	"spillway/order"
)

func TestOutcomesAreGatheredUnderLoad(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		permits     int
		call        time.Duration
		ordering    Ordering
		least, most int // statements in the first second
	}{
		"of 5,000 orders a second":      {permits: 50, call: 10 * time.Millisecond, least: 45, most: 51},
		"but full ones wait for nobody": {permits: 500, call: 5 * time.Millisecond, least: 180, most: 5000},
		"and so do those of a chain":    {permits: 5, call: time.Millisecond, ordering: ByPartition, least: 450, most: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := newAttempter(c.permits, c.call, order.Answer{Outcome: order.OutcomeSucceeded})
				b := startLane(t, 200_000, a, func(cfg *Config) { cfg.Ordering = c.ordering })
				b.store.slowDown(time.Millisecond)
				time.Sleep(time.Second)
				if n := b.store.statements(); n < c.least || n > c.most {
					t.Errorf("%d statements, want %d to %d", n, c.least, c.most)
				}
				if err := b.stop(); err != nil {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}

func TestOutcomeOfAQuietTopicIsWrittenAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(5, 10*time.Millisecond, order.Answer{Outcome: order.OutcomeSucceeded})
		b := startLane(t, 1, a, nil)
		began := time.Now()
		time.Sleep(time.Second)
		if n := b.store.statements(); n != 1 {
			t.Fatalf("%d statements, want 1", n)
		}
		if at := b.store.settles[0].Sub(began); at != 10*time.Millisecond {
			t.Errorf("written after %v, want at the end of the call", at)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
