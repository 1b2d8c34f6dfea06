package replay_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"spillway/breaker"
	"spillway/internal/attempt"
	"spillway/internal/permit"
	"spillway/order"
)

// patient is a downstream that answers after 10 ms, 503 while it is ill.
type patient struct {
	ill    atomic.Bool
	flying atomic.Int64
	calls  atomic.Int64
}

func (p *patient) Submit(context.Context, *order.Order) order.Answer {
	p.flying.Add(1)
	defer p.flying.Add(-1)
	p.calls.Add(1)
	time.Sleep(10 * time.Millisecond)
	if p.ill.Load() {
		return order.Answer{Outcome: order.OutcomeOverloaded, Reason: order.UpstreamOverloaded, Sent: true}
	}
	return order.Answer{Outcome: order.OutcomeSucceeded, Reason: order.Confirmed, Sent: true}
}

func (*patient) Lookup(context.Context, *order.Order) order.Finding {
	return order.Finding{Verdict: order.VerdictNotFound, Outcome: order.OutcomeSucceeded}
}

// unlimited is a route without rates.
type unlimited struct{}

func (unlimited) Pace(time.Time, order.Lane, string) time.Duration { return 0 }
func (unlimited) PaceLive(time.Time, string) (time.Duration, bool) { return 0, false }
func (unlimited) PaceTenant(time.Time, string) time.Duration       { return 0 }
func (unlimited) Unpace(order.Lane, string)                        {}

// recovery is a world whose permits and breakers are real.
type recovery struct {
	*world
	patient *patient
	pool    *permit.Pool
	submit  *breaker.Breaker
	calls   *attempt.Attempter
}

const recoveryPermits = 50

func newRecovery(t *testing.T) *recovery {
	t.Helper()
	r := &recovery{world: newWorld(t), patient: &patient{}, pool: permit.New(permit.Config{Limit: recoveryPermits})}
	r.queue = newMemQueue(100_000)
	r.cfg.Step, r.cfg.InFlight, r.cfg.Batch = 100*time.Millisecond, recoveryPermits, 100
	made := func(endpoint string) *breaker.Breaker {
		b, err := breaker.New(breaker.Key{Service: "pay", Endpoint: endpoint}, breaker.Config{
			OpenWait: 2 * time.Second, OpenGrowth: 1, OpenJitter: -1, RampStep: 300 * time.Millisecond,
		}, rand.New(rand.NewPCG(1, 2)), nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	r.submit = made("submit")
	r.calls = attempt.New(attempt.Config{Submit: 300 * time.Millisecond, Lookup: 300 * time.Millisecond}, unlimited{},
		r.pool, r.patient, r.submit, made("lookup"), nil)
	return r
}

// live sends a record every millisecond until ctx ends and counts what was refused.
func (r *recovery) live(ctx context.Context, refused *atomic.Int64) {
	for ctx.Err() == nil {
		if r.pool.Acquire(ctx, order.LaneLive) != nil {
			return
		}
		go func() {
			defer r.pool.Release(order.LaneLive)
			if a := r.calls.Submit(ctx, order.LaneLive, &order.Order{Number: "live"}); a.Outcome == order.OutcomeRefused {
				refused.Add(1)
			}
		}()
		time.Sleep(time.Millisecond)
	}
}

// TestABacklogIsWorkedOffAtFullWidthAfterTheBreakersRamp is an outage and what follows, with live records beside it.
func TestABacklogIsWorkedOffAtFullWidthAfterTheBreakersRamp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const backlog = 10_000
		r := newRecovery(t)
		e, err := newEngine(r.world, r.calls)
		if err != nil {
			t.Fatal(err)
		}
		for range backlog / 100 {
			r.spill(e, 100)
		}
		r.patient.ill.Store(true)
		stop := r.run(e)
		ctx, end := context.WithCancel(t.Context())
		defer end()
		var refused atomic.Int64
		go r.live(ctx, &refused)
		time.Sleep(5 * time.Second)
		if n := r.patient.calls.Load(); n > 20+recoveryPermits+3*2 {
			t.Errorf("%d calls to a service that is ill, want 20, those in flight then, and two each time the wait is over", n)
		}
		r.patient.ill.Store(false)
		healthy := time.Now()
		var closed time.Time
		most := map[float64]int64{}
		for r.store.count(order.Succeeded, order.NoPhase) < backlog && time.Since(healthy) < time.Minute {
			time.Sleep(time.Millisecond)
			s := r.submit.Snapshot()
			if s.State == breaker.HalfOpen && s.Share > 0 {
				most[s.Share] = max(most[s.Share], r.patient.flying.Load())
			}
			if s.State == breaker.Closed && closed.IsZero() {
				closed = time.Now()
			}
		}
		took := time.Since(healthy)
		for share, n := range most {
			// Beside the backlog's share the live records' own: 10 of them would be in flight.
			if limit := int64(share*recoveryPermits+0.5) + int64(share*10) + 1; n > max(limit, 2) {
				t.Errorf("at %.0f %% of the ramp %d were in flight, want at most %d", 100*share, n, limit)
			}
		}
		// 4,000 a second are left by the live records; in the ramp some 1,900 of both went through.
		if ideal := closed.Sub(healthy) + backlog*time.Second/4000; took > ideal+ideal/10 {
			t.Errorf("the backlog took %v, closed after %v; want about %v", took, closed.Sub(healthy), ideal)
		}
		t.Logf("closed after %v, backlog gone after %v, %d live records refused meanwhile, in flight by share %v",
			closed.Sub(healthy), took, refused.Load(), most)
		end()
		time.Sleep(time.Second) // live calls end
		stop()
		r.wantRows(backlog, order.Succeeded, order.NoPhase)
	})
}

// TestWhatIsInLineGoesBackUncountedWhenTheBreakerOpens breaks a service in the middle of a backlog.
func TestWhatIsInLineGoesBackUncountedWhenTheBreakerOpens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const backlog = 5000
		r := newRecovery(t)
		e, err := newEngine(r.world, r.calls)
		if err != nil {
			t.Fatal(err)
		}
		for range backlog / 100 {
			r.spill(e, 100)
		}
		r.run(e)
		time.Sleep(1500 * time.Millisecond)
		r.patient.ill.Store(true)
		before := r.patient.calls.Load()
		time.Sleep(1500 * time.Millisecond) // open, and not half-open yet
		if n := r.patient.calls.Load() - before; n > 20+recoveryPermits {
			t.Errorf("%d calls after the service broke", n)
		}
		if n := r.store.count(order.Processing, order.InFlight); n != 0 {
			t.Errorf("%d orders are still begun while the breaker is open", n)
		}
		if n := r.pool.InUse(); n != 0 {
			t.Errorf("%d permits are held", n)
		}
		r.patient.ill.Store(false)
		time.Sleep(20 * time.Second)
		r.wantRows(backlog, order.Succeeded, order.NoPhase)
		for id := range int64(backlog) {
			if o := r.store.get(id + 1); o.AttemptsTotal > 4 { // one before the spill, one that met the outage, one or two as probes
				t.Fatalf("order %d had %d attempts", id+1, o.AttemptsTotal)
			}
		}
	})
}
