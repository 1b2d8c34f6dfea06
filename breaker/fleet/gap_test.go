package fleet

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"spillway/breaker"
)

// The first worker back after an outage of the store sees no statement but its own. It once opened the fleet for what was
// its own network alone.
func TestABadWorkerThatIsFirstBackOpensOnlyItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &flakyStore{}
		var breakers []*breaker.Breaker
		var sharers []*Sharer
		for _, name := range []string{"a", "b", "c"} {
			b, err := breaker.New(breaker.Key{Service: "s"}, breaker.Config{}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			s, err := New(Config{Worker: name}, store, func() []*breaker.Breaker { return []*breaker.Breaker{b} }, nil)
			if err != nil {
				t.Fatal(err)
			}
			breakers, sharers = append(breakers, b), append(sharers, s)
		}
		start := time.Now()
		live := func(rounds int) {
			for range rounds {
				for i, b := range breakers {
					result := breaker.Success
					if i == 0 {
						result = breaker.Failure // its network is bad
					}
					for range 5 {
						if p, ok := b.Allow(); ok {
							b.Done(p, result)
						}
					}
				}
				store.now = time.Since(start) + 1e15
				for _, s := range sharers {
					s.round(t.Context())
				}
				time.Sleep(300 * time.Millisecond)
			}
		}
		live(20)
		store.setAway(errors.New("away"))
		live(20)
		store.setAway(nil)
		live(20)
		for i, b := range breakers {
			if open := b.Snapshot().State == breaker.Open; i > 0 && open {
				t.Errorf("worker %d follows one with a bad network: %+v", i, store.record)
			}
		}
	})
}
