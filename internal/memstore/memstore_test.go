package memstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"spillway/internal/memstore"
	"spillway/internal/storetest"
	"spillway/order"
)

func TestStoreKeepsTheContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) storetest.Store { return memstore.New(time.Now) })
}

// steps is a clock that moves when it is told.
type steps struct{ at time.Time }

func (s *steps) now() time.Time { return s.at }

func TestLeasesEndByTheGivenClock(t *testing.T) {
	t.Parallel()
	clock := &steps{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	s := memstore.New(clock.now)
	_, err := s.Admit(t.Context(), "pay", "w1", time.Minute, []order.Admission{{Number: "T-1"}, {Number: "T-2"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{time.Minute - 1, 0}, {1, 2}, {0, 0}} {
		clock.at = clock.at.Add(c.after)
		got, err := s.ClaimDue(t.Context(), "pay", "w2", time.Hour, 10)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != c.want {
			t.Errorf("at %s: claimed %d, want %d", clock.at, len(got), c.want)
		}
		for i, o := range got {
			if o.ID != int64(i+1) || !o.Due.Equal(clock.at.Add(time.Hour)) || !o.UpdatedAt.Equal(clock.at) {
				t.Errorf("claimed %+v", o)
			}
		}
	}
}

func TestAnEndedContextDoesNothing(t *testing.T) {
	t.Parallel()
	s := memstore.New(time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Admit(ctx, "pay", "w1", time.Minute, []order.Admission{{Number: "T-1"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context canceled", err)
	}
	tally, err := s.Tally(t.Context(), "pay")
	if err != nil || tally.Total() != 0 {
		t.Errorf("tally %+v, %v", tally, err)
	}
}

func TestTheStoreKeepsItsOwnBytes(t *testing.T) {
	t.Parallel()
	s := memstore.New(time.Now)
	value := []byte("v")
	if _, err := s.Admit(t.Context(), "pay", "w1", 0, []order.Admission{{Number: "T-1", Message: order.Message{Value: value}}}); err != nil {
		t.Fatal(err)
	}
	value[0] = 'x'
	v, err := s.ShowOrder(t.Context(), "pay", "T-1")
	if err != nil || string(v.Order.Message.Value) != "v" {
		t.Errorf("value %q, %v", v.Order.Message.Value, err)
	}
}
