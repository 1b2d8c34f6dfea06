package drill

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/breaker"
	"spillway/breaker/fleet"
	"spillway/internal/admin"
	"spillway/internal/redis"
	"spillway/internal/testkit"
	"spillway/internal/wallet"
	"spillway/order"
	"spillway/worker"
)

// fate is what a scripted wallet does with a payment.
type fate int

const (
	pass     fate = iota // the wallet itself answers
	fail                 // 500
	hang                 // accepted, and never answered
	notFound             // 404: alive, though not as it should be
	cutBody              // 200 and half a body
	teapot               // 418, at which an embedded handler panics
)

// script stands before a wallet and decides what becomes of each payment.
type script struct {
	mu       sync.Mutex
	usual    fate
	unlucky  []fate // of the next payments, before the usual one
	met      int    // unlucky ones that came
	inFlight int
	probing  bool // until the third payment was answered well
	good     int
	most     int // payments in flight at once while probing
	seen     int // payments
}

// fail begins an outage.
func (s *script) fail() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usual = fail
}

// open begins the time of the first probes: these fates for the first of them, then health.
func (s *script) open(unlucky ...fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usual, s.unlucky, s.probing, s.most, s.good = pass, unlucky, true, s.inFlight, 0
}

func (s *script) begin() fate {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	s.inFlight++
	if s.probing {
		s.most = max(s.most, s.inFlight)
	}
	if len(s.unlucky) == 0 {
		return s.usual
	}
	f := s.unlucky[0]
	s.unlucky = s.unlucky[1:]
	s.met++
	return f
}

func (s *script) end(f fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
	if f == pass || f == notFound {
		s.good++
	}
	if s.good >= firstProbes {
		s.probing = false
	}
}

// look returns how many payments were in flight at once while probing, and how many came to grief.
func (s *script) look() (most, met, seen int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most, s.met, s.seen
}

func (s *script) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method != http.MethodPost {
			next.ServeHTTP(w, q)
			return
		}
		readBody(q) // only then the server notices that a client has left
		f := s.begin()
		defer s.end(f)
		switch f {
		case pass:
			next.ServeHTTP(w, q)
		case fail:
			w.WriteHeader(http.StatusInternalServerError)
		case notFound:
			w.WriteHeader(http.StatusNotFound)
		case teapot:
			w.WriteHeader(http.StatusTeapot)
		case hang:
			<-q.Context().Done()
			panic(http.ErrAbortHandler)
		case cutBody:
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"order_no":"`) // the client is to be cut off anyway
			panic(http.ErrAbortHandler)
		}
	})
}

// embedded is a handler in the worker's own process, as a program that embeds Spillway has one. It panics when the
// wallet is a teapot.
type embedded struct{ url string }

func handlers(url string) map[string]order.Handler {
	if os.Getenv("DRILL_EMBED") == "" {
		return nil
	}
	return map[string]order.Handler{route: &embedded{url: url}}
}

func (e *embedded) ask(ctx context.Context, method, path, number string, body []byte) (status int, err error) {
	q, err := http.NewRequestWithContext(ctx, method, e.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	q.Header.Set("Idempotency-Key", number)
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close() // read to its end
	return resp.StatusCode, err
}

// Submit implements order.Handler.
func (e *embedded) Submit(ctx context.Context, o *order.Order) order.Answer {
	status, err := e.ask(ctx, http.MethodPost, "/pay", o.Number, o.Message.Value)
	switch {
	case status == http.StatusTeapot:
		panic("I'm a teapot")
	case err != nil || status != http.StatusOK:
		return order.Answer{Outcome: order.OutcomeUnknown, Sent: true, Reason: order.UpstreamUnexpected}
	}
	return order.Answer{Outcome: order.OutcomeSucceeded, Sent: true}
}

// Lookup implements order.Handler.
func (e *embedded) Lookup(ctx context.Context, o *order.Order) order.Finding {
	status, err := e.ask(ctx, http.MethodGet, "/pay/"+o.Number, o.Number, nil)
	switch {
	case err != nil:
		return order.Finding{Outcome: order.OutcomeUnknown}
	case status == http.StatusNotFound:
		return order.Finding{Outcome: order.OutcomeSucceeded, Verdict: order.VerdictNotFound}
	case status == http.StatusOK:
		return order.Finding{Outcome: order.OutcomeSucceeded, Verdict: order.VerdictSucceeded}
	}
	return order.Finding{Outcome: order.OutcomeUnknown}
}

// The breaker of these drills, beside the settings of every rig: its wait is a second without jitter or growth, its ramp
// 2.1 s (seven steps of 300 ms), and a call may take 300 ms.
const (
	breakerSettings = "    breaker: {open_wait: 1s, open_jitter: 0%%, open_growth: 1, open_wait_max: 2s, ramp_step: 300ms, " +
		"consecutive: 5, probes_in_flight: %d, scope: %s}"
	openWait     = time.Second
	rampTime     = 2100 * time.Millisecond
	probeTimeout = 300 * time.Millisecond
	slotLease    = 1500 * time.Millisecond
	firstProbes  = 3
	// exchanges is what sharing adds at most: the opening, the end of a wait, a slot, bad probes, all of that again, the
	// ramp, its end, each learnt at the next exchange, 375 ms later at most; the rest is a loaded machine.
	exchanges = 8*375*time.Millisecond + time.Second
)

// breakerRig is a rig whose wallet is scripted.
type breakerRig struct {
	*rig

	script *script
	store  fleet.Store
	key    breaker.Key
}

func newBreakerRig(t *testing.T, scope string, probes int, more ...string) *breakerRig {
	t.Helper()
	s := &script{}
	w := world{wrap: s.wrap, breaker: fmt.Sprintf(breakerSettings, probes, scope), env: more}
	b := &breakerRig{rig: newRig(t, w), script: s, key: breaker.Key{Service: route, Endpoint: "submit"}}
	cfg, err := worker.Load(b.config, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := redis.Open(redis.Config{URL: cfg.Redis.URL.Reveal(), Prefix: cfg.Redis.Prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() }) // nothing is under way
	b.store = client.Breakers()
	return b
}

// state asks a worker for its submit breaker.
func (b *breakerRig) state(addr string) admin.Breaker {
	b.t.Helper()
	answer := admin.AskBreakers(b.t.Context(), []string{"http://" + addr}, 5*time.Second).Workers[0]
	if answer.WorkerBreakers == nil {
		b.t.Fatalf("no answer: %s", answer.Error)
	}
	for _, s := range answer.Breakers {
		if s.Endpoint == b.key.Endpoint {
			return s
		}
	}
	b.t.Fatalf("no submit breaker in %+v", answer)
	return admin.Breaker{}
}

// flowUntil sends orders, some tens a second, until the worker's breaker is in the state, and says how long that took.
func (b *breakerRig) flowUntil(addr, state string, timeout time.Duration) time.Duration {
	b.t.Helper()
	began := time.Now()
	testkit.Eventually(b.t, timeout, func() (bool, string) {
		b.produce(1)
		s := b.state(addr)
		return s.State == state, fmt.Sprintf("%s after %s: %+v", state, time.Since(began), s)
	})
	return time.Since(began)
}

// shared reads what the workers share.
func (b *breakerRig) shared() admin.FleetBreaker {
	b.t.Helper()
	f, err := admin.ShowFleetBreaker(b.t.Context(), b.store, b.key, time.Now())
	if err != nil {
		b.t.Fatal(err)
	}
	return f
}

// slots adds up what the living may probe, and do.
func slots(f admin.FleetBreaker) (held, used int) {
	for _, w := range f.Workers {
		if w.Alive {
			held, used = held+w.Slots, used+w.Probing
		}
	}
	return held, used
}

// quiet waits until no order is under way, and checks that none was applied twice.
func (b *breakerRig) quiet() {
	b.t.Helper()
	testkit.Eventually(b.t, time.Minute, func() (bool, string) {
		tally := b.tally()
		return tally.Total() == int64(b.number) && tally.State(order.Processing) == 0, fmt.Sprintf("of %d orders: %+v", b.number, tally)
	})
	if c := b.wallet.Counts(); c.Duplicates != 0 || c.Altered != 0 {
		b.t.Errorf("wallet %+v: orders applied twice: %v", c, b.wallet.Duplicates())
	}
}

// TestBreakerClosesWhateverBecameOfItsProbes is case D1 a, c and d: the first probes hang, are answered 404, are cut off,
// end in a panic. Then the service is well, and the breaker is closed within a probe's timeout, two waits and the ramp.
func TestBreakerClosesWhateverBecameOfItsProbes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		fate  fate
		scope string
		env   []string
	}{
		{"hang", hang, "shared", nil},
		{"hang, each worker alone", hang, "worker", nil},
		{"404", notFound, "shared", nil},
		{"cut body", cutBody, "shared", nil},
		{"panic of an embedded handler", teapot, "shared", []string{"DRILL_EMBED=1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const limit = 3
			b := newBreakerRig(t, c.scope, limit, c.env...)
			p := b.work()
			addr := b.addr(p)
			b.produce(10)
			b.awaitFinal(10, 30*time.Second)
			b.script.fail()
			b.flowUntil(addr, "open", 30*time.Second)

			b.script.open(c.fate, c.fate, c.fate)
			bound := probeTimeout + 2*openWait + rampTime + 2*time.Second // two for a loaded machine
			if c.scope == "shared" {
				bound += exchanges
			}
			took := b.flowUntil(addr, "closed", 30*time.Second)
			most, met, _ := b.script.look()
			t.Logf("closed after %s, at most %s; %d probes at once, %d came to grief", took.Round(time.Millisecond), bound, most, met)
			if took > bound {
				t.Errorf("closed after %s, want at most %s:\n%s", took, bound, tail(p.Output()))
			}
			if most > limit {
				t.Errorf("%d probes at once, at most %d allowed", most, limit)
			}
			if met < 2 {
				t.Errorf("%d probes came to grief: the test shows nothing", met)
			}
			if c.scope == "shared" {
				testkit.Eventually(t, 5*time.Second, func() (bool, string) {
					held, used := slots(b.shared())
					return held == 0 && used == 0, fmt.Sprintf("%d slots held, %d used by a closed breaker", held, used)
				})
			}
			b.quiet()
		})
	}
}

// TestBreakerClosesThoughPermitsRanOutWhenProbesWereDue is case D1 b: the one permit of the route is in the hands of
// lookups that hang when the breaker would let a probe go. A permit comes before the breaker, so no probe is lost to it.
func TestBreakerClosesThoughPermitsRanOutWhenProbesWereDue(t *testing.T) {
	t.Parallel()
	b := newBreakerRig(t, "shared", 1, "SPILLWAY_ROUTES_WALLET_PERMITS_LIMIT=1")
	p := b.work()
	addr := b.addr(p)
	b.produce(10)
	b.awaitFinal(10, 30*time.Second)
	b.wallet.SetMode(wallet.Mode{Lookup: []wallet.Behaviour{{Kind: wallet.Hang}}})
	b.script.fail()
	b.flowUntil(addr, "open", 30*time.Second)
	b.script.open()
	b.flowUntil(addr, "half-open", 10*time.Second) // with lookups that hang
	b.wallet.SetMode(wallet.Healthy(time.Millisecond))
	const bound = probeTimeout + 2*openWait + rampTime + exchanges
	took := b.flowUntil(addr, "closed", 30*time.Second)
	most, _, _ := b.script.look()
	t.Logf("closed %s after the lookups were well, at most %s; %d probes at once", took.Round(time.Millisecond), bound, most)
	if took > bound || most > 1 {
		t.Errorf("closed after %s, want at most %s; %d probes at once with one permit:\n%s", took, bound, most, tail(p.Output()))
	}
	testkit.Eventually(t, 5*time.Second, func() (bool, string) {
		held, used := slots(b.shared())
		return held == 0 && used == 0, fmt.Sprintf("%d slots held, %d used", held, used)
	})
	b.quiet()
}

// TestSlotOfAKilledWorkerIsFreeAgain is case D1 e: of two workers the one that holds the fleet's only slot is killed
// while its probe hangs.
func TestSlotOfAKilledWorkerIsFreeAgain(t *testing.T) {
	t.Parallel()
	const timeout = time.Second // so that the slot is seen in use
	b := newBreakerRig(t, "shared", 1, callsOf(timeout)...)
	workers := []*testkit.Proc{b.work(), b.work()}
	addrs := []string{b.addr(workers[0]), b.addr(workers[1])}
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		both := [2]float64{b.metric(addrs[0], "spillway_assigned_partitions"), b.metric(addrs[1], "spillway_assigned_partitions")}
		return both[0] > 0 && both[1] > 0, fmt.Sprintf("assigned %v", both)
	})
	b.produce(10)
	b.awaitFinal(10, 30*time.Second)
	testkit.Eventually(t, 10*time.Second, func() (bool, string) { // until then each is alone
		f := b.shared()
		return len(f.Workers) == 2, fmt.Sprintf("%d workers share the breaker", len(f.Workers))
	})
	b.script.fail()
	b.flowUntil(addrs[0], "open", 30*time.Second)
	b.flowUntil(addrs[1], "open", 30*time.Second)
	b.script.open(hang)

	killed := -1
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		b.produce(1)
		f := b.shared()
		for _, w := range f.Workers {
			for i, p := range workers {
				if w.Probing > 0 && strings.Contains(w.Worker, fmt.Sprintf("-%d-", p.PID())) {
					killed = i
					p.Kill()
					return true, ""
				}
			}
		}
		return false, fmt.Sprintf("nobody probes: %+v", f)
	})
	other := addrs[1-killed]
	const bound = slotLease + timeout + time.Second + probeTimeout + 2*openWait + rampTime + exchanges
	took := b.flowUntil(other, "closed", 30*time.Second)
	most, met, _ := b.script.look()
	t.Logf("closed %s after the kill, at most %s; %d probes at once", took.Round(time.Millisecond), bound, most)
	if took > bound {
		t.Errorf("closed %s after the kill, want at most %s:\n%s", took, bound, tail(workers[1-killed].Output()))
	}
	if most > 1 || met != 1 {
		t.Errorf("%d probes at once, want 1; %d hung", most, met)
	}
	testkit.Eventually(t, 5*time.Second, func() (bool, string) {
		held, used := slots(b.shared())
		return held == 0 && used == 0, fmt.Sprintf("%d slots held, %d used", held, used)
	})
	b.quiet()
}

// TestOrderStopsEveryWorkerAndThoseThatComeAfter forces the breaker open over two workers: within a second nothing is
// called any more, and a worker that starts afterwards calls nothing either. Released, everything is delivered.
func TestOrderStopsEveryWorkerAndThoseThatComeAfter(t *testing.T) {
	t.Parallel()
	b := newBreakerRig(t, "shared", 3)
	workers := []*testkit.Proc{b.work(), b.work()}
	addrs := []string{b.addr(workers[0]), b.addr(workers[1])}
	b.produce(20)
	b.awaitFinal(20, 30*time.Second)

	o := fleet.Order{Key: b.key, Force: breaker.ForceOpen, For: time.Hour, Operator: "kim", Reason: "drill"}
	began := time.Now()
	answer, err := admin.GiveOrder(t.Context(), b.store, o, 2*time.Second)
	if err != nil || answer.Workers != 2 || answer.Follow != 2 {
		t.Fatalf("%+v, %v", answer, err)
	}
	t.Logf("both workers had said so %s after the order", time.Since(began).Round(time.Millisecond))
	for _, addr := range addrs {
		if s := b.state(addr); s.Force != "open" || s.State != "open" {
			t.Errorf("%s: %+v", addr, s)
		}
	}
	_, _, before := b.script.look()
	b.produce(20)
	for _, p := range workers {
		p.Kill()
	}
	late := b.work()
	addr := b.addr(late)
	testkit.Eventually(t, 5*time.Second, func() (bool, string) {
		s := b.state(addr)
		return s.Force == "open", fmt.Sprintf("a worker that starts: %+v", s)
	})
	b.awaitCommitted(30 * time.Second) // spilled to the replay queue
	if _, _, seen := b.script.look(); seen != before {
		t.Errorf("%d payments reached the service while the breaker was forced open", seen-before)
	}
	o.Force, o.Reason = breaker.ForceNone, "over"
	if _, err := admin.GiveOrder(t.Context(), b.store, o, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	b.flowUntil(addr, "closed", 30*time.Second)
	b.awaitFinal(b.number, time.Minute)
	b.conserved(b.number)
	if orders := b.shared().Orders; len(orders) != 2 || orders[0].Order != "release" || orders[1].Operator != "kim" {
		t.Errorf("the record of orders: %+v", orders)
	}
}
