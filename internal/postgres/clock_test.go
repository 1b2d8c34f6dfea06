package postgres

import (
	"testing"
	"time"

	"spillway/order"
)

func TestTimesMoveOntoTheCallersClock(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	o := order.Order{AdmittedAt: at, UpdatedAt: at.Add(time.Second), Due: at.Add(time.Minute)}
	o.Message.Time = at
	here := time.Now()
	moveClock(&o, here, here.Add(-time.Hour))
	if !o.AdmittedAt.Equal(at.Add(time.Hour)) || !o.UpdatedAt.Equal(at.Add(time.Hour+time.Second)) || !o.Due.Equal(at.Add(time.Hour+time.Minute)) {
		t.Errorf("moved to %+v", o)
	}
	if !o.LastAttempt.IsZero() {
		t.Errorf("an attempt that never was began at %s", o.LastAttempt)
	}
	if !o.Message.Time.Equal(at) {
		t.Errorf("the record's own time moved to %s", o.Message.Time)
	}
}

func TestTimesThatNoColumnTakesAreNull(t *testing.T) {
	t.Parallel()
	for _, at := range []time.Time{{}, time.UnixMilli(1 << 62), time.UnixMilli(-1 << 62), time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if stamp(at).Valid {
			t.Errorf("%s would be sent", at)
		}
	}
	if at := time.UnixMilli(-1); !stamp(at).Valid {
		t.Errorf("%s is a time", at)
	}
}

func TestADueTimeIsSentAsADistance(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for want, due := range map[int64]time.Time{0: {}, 1_500_000: now.Add(1500 * time.Millisecond), -1000: now.Add(-time.Millisecond)} {
		if got := dueIn(due, now); got != want {
			t.Errorf("%s: %d µs, want %d", due, got, want)
		}
	}
}
