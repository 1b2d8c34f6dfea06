package fleet

import (
	"testing"
	"time"

	"spillway/breaker"
)

func TestSmallFleetsExchangeSoonerWhileABreakerIsNotClosed(t *testing.T) {
	t.Parallel()
	const every = 300 * time.Millisecond
	for _, c := range []struct {
		restless bool
		of       int
		want     time.Duration
	}{
		{false, 1, every},
		{false, 8, every},
		{true, 0, every / 4},
		{true, 1, every / 4},
		{true, 4, every / 4},
		{true, 8, every / 2},
		{true, 16, every},
		{true, 1000, every},
	} {
		s := &Sharer{cfg: Config{Every: every}, order: []*keeper{{of: 3}, {of: c.of, restless: c.restless}}}
		if c.of < 3 {
			s.order = s.order[1:]
		}
		if got := s.pause(); got != c.want {
			t.Errorf("%d workers, restless %v: %v, want %v", c.of, c.restless, got, c.want)
		}
		if perSecond := float64(c.of) * float64(time.Second) / float64(s.pause()); c.of <= 16 && perSecond > 16*float64(time.Second)/float64(every)+0.1 {
			t.Errorf("%d workers exchange %.0f times a second", c.of, perSecond)
		}
	}
}

func TestAKeeperIsRestlessUntilItsBreakerCloses(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	b, err := breaker.NewAt(now, breaker.Key{Service: "pay", Endpoint: "submit"}, breaker.Config{
		ConsecutiveFailures: 1, OpenWait: time.Second, OpenJitter: -1, SuccessesToClose: 1,
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	k := &keeper{b: b, cfg: b.Config()}
	restless := func(at time.Time) bool { k.report(at, time.Second, false); return k.restless }
	if restless(now) {
		t.Error("restless while closed")
	}
	p, _ := b.AllowAt(now)
	b.DoneAt(now, p, breaker.Failure)
	if now = now.Add(2 * time.Second); !restless(now) {
		t.Error("not restless while half-open")
	}
	p, _ = b.AllowAt(now)
	b.DoneAt(now, p, breaker.Success)
	if restless(now) {
		t.Error("restless after it closed")
	}
}
