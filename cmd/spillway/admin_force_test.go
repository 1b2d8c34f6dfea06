package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/breaker"
	"spillway/breaker/fleet"
	"spillway/internal/redis"
	"spillway/internal/testkit"
)

const redisThatIsAway = "redis://:C4NARY@127.0.0.1:1/0" // nothing listens on port 1

func TestAMistakeInAnOrderToABreakerSaysWhatIsAccepted(t *testing.T) {
	t.Parallel()
	path := example(t)
	for _, c := range []struct{ args, want string }{
		{"show", "expected"},
		{"show wallet", "want ROUTE/submit or ROUTE/lookup"},
		{"show wallet/pay", "want ROUTE/submit or ROUTE/lookup"},
		{"show /submit", "want ROUTE/submit or ROUTE/lookup"},
		{"show ledger/submit", `no route "ledger"; they have: wallet`},
		{"force-open wallet/submit --for 1h", "missing flags: --reason=TEXT"},
		{"force-open wallet/submit --reason why", "missing flags: --for=TIME"},
		{"force-open wallet/submit --reason why --for 30", "1s to 720h, such as"},
		{"force-close wallet/submit --reason why --for 0s", "1s to 720h, such as"},
		{"observe wallet/submit --reason why --for=-1h", "1s to 720h, such as"},
		{"observe wallet/submit --reason why --for 721h", "1s to 720h, such as"},
		{"release wallet/submit --reason why --for 1h", "unknown flag --for"},
		{"release wallet/submit", "missing flags: --reason=TEXT"},
		{"release wallet/submit --reason=", "--reason has 0 bytes: want 1 to 200"},
		{"release wallet/submit --reason " + strings.Repeat("x", 201), "--reason has 201 bytes: want 1 to 200"},
		{"release wallet/submit --reason why --by " + strings.Repeat("x", 129), "want 1 to 128"},
	} {
		args := append([]string{"admin", "breakers"}, strings.Fields(c.args)...)
		code, out, errs := spill(t, nil, append(args, "-c", path)...)
		if code != exitUsage || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%s: exit %d, out %q, err %q, want %q in it", c.args, code, out, errs, c.want)
		}
	}
}

func TestAnOrderSaysWhyItWasNotTaken(t *testing.T) {
	t.Parallel()
	away := example(t, "redis://127.0.0.1:6379/0", redisThatIsAway)
	alone := example(t, "#scope: shared", "scope: worker")
	for _, c := range []struct {
		file, args string
		want       []string
	}{
		{away, "show wallet/submit", []string{"Redis at 127.0.0.1:1", "connection refused"}},
		{away, "force-open wallet/submit --for 1h --reason why", []string{"Redis at 127.0.0.1:1", "nothing was done", "connection refused"}},
		{away, "release wallet/submit --reason why --json", []string{"nothing was done"}},
		{alone, "show wallet/submit", []string{"refused: route wallet has breaker.scope worker"}},
		{alone, "force-close wallet/lookup --for 1h --reason why", []string{"refused: route wallet has breaker.scope worker"}},
	} {
		args := append([]string{"admin", "breakers"}, strings.Fields(c.args)...)
		code, out, errs := spill(t, nil, append(args, "-c", c.file, "--timeout", "2s")...)
		if code != exitFailure || out != "" || strings.Contains(errs, "C4NARY") {
			t.Errorf("%s: exit %d, out %q, err %q", c.args, code, out, errs)
		}
		for _, want := range c.want {
			if !strings.Contains(errs, want) {
				t.Errorf("%s says %q, want %q", c.args, errs, want)
			}
		}
	}
}

// crew is two workers' breakers on one Redis, as two processes would have them.
type crew struct {
	*testing.T
	file   string
	url    string
	prefix string
}

func newCrew(t *testing.T) *crew {
	t.Helper()
	c := &crew{T: t, url: testkit.Redis(t), prefix: strings.NewReplacer(":", "", "/", "-").Replace(testkit.Prefix(t))}
	if n := len(c.prefix); n > 40 {
		c.prefix = c.prefix[n-40:] // its end is what is unique
	}
	c.file = example(t, "redis://127.0.0.1:6379/0", c.url, "#prefix: spillway", fmt.Sprintf("prefix: %q", c.prefix))
	return c
}

// join starts a worker's share of the fleet and returns its breaker and its end.
func (c *crew) join(name string) (*breaker.Breaker, func()) {
	c.Helper()
	client, err := redis.Open(redis.Config{URL: c.url, Prefix: c.prefix})
	if err != nil {
		c.Fatal(err)
	}
	b, err := breaker.New(breaker.Key{Service: "wallet", Endpoint: "submit"}, breaker.Config{}, nil, nil)
	if err != nil {
		c.Fatal(err)
	}
	sharer, err := fleet.New(fleet.Config{Worker: name}, client.Breakers(), func() []*breaker.Breaker { return []*breaker.Breaker{b} }, nil)
	if err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := sharer.Run(ctx); err != nil {
			c.Errorf("%s: %v", name, err)
		}
	})
	end := sync.OnceFunc(func() {
		cancel()
		running.Wait()
		_ = client.Close() // nothing is under way
	})
	c.Cleanup(end)
	return b, end
}

// do runs a command on breakers and reads its JSON.
func (c *crew) do(code int, args ...string) shownBreaker {
	c.Helper()
	got, out, errs := spill(c.T, nil, append(append([]string{"admin", "breakers"}, args...), "-c", c.file, "--json")...)
	if got != code {
		c.Fatalf("%q: exit %d, want %d:\n%s%s", args, got, code, out, errs)
	}
	var v shownBreaker
	if code == exitOK {
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			c.Fatalf("%q: %v:\n%s", args, err, out)
		}
	}
	return v
}

// shownBreaker is what scripts rely on.
type shownBreaker struct {
	State, Force, After, Reason, By string
	Epoch                           uint64
	ForceEnds                       time.Time `json:"force_ends"`
	Follow                          int
	Order                           struct{ Order string }
	Orders                          []struct {
		Order, Operator, Reason string
		At, Ends                time.Time
	}
}

func (c *crew) await(what string, timeout time.Duration, cond func() bool) {
	c.Helper()
	testkit.Eventually(c.T, timeout, func() (bool, string) { return cond(), what })
}

func TestAnOrderReachesEveryWorkerWithinASecondAndTheRecordTellsWhoGaveIt(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	a, _ := c.join("worker-a")
	b, _ := c.join("worker-b")
	both := func(want func(breaker.Snapshot) bool) func() bool {
		return func() bool { return want(a.Snapshot()) && want(b.Snapshot()) }
	}
	c.await("two workers", 5*time.Second, func() bool { return a.Snapshot().Linked && b.Snapshot().Linked })

	began := time.Now()
	_, out, errs := spill(t, nil, "admin", "breakers", "force-open", "wallet/submit", "--for", "1h", "--by", "kim", "--reason", "moved \x1b[2J", "-c", c.file)
	if !both(func(s breaker.Snapshot) bool { return s.State == breaker.Open && s.Force == breaker.ForceOpen })() {
		t.Errorf("%v after the order: %+v, %+v; it said %q, %q", time.Since(began), a.Snapshot(), b.Snapshot(), out, errs)
	}
	if took := time.Since(began); took > 1500*time.Millisecond { // a second and the asking
		t.Errorf("the workers took %v", took)
	}
	if !strings.Contains(out, "taken by all workers: 2") {
		t.Errorf("it said %q, %q", out, errs)
	}
	v := c.do(exitOK, "show", "wallet/submit")
	if v.State != "open" || v.Force != "open" || v.After != "half-open" || v.By != "operator kim" || time.Until(v.ForceEnds) < 59*time.Minute {
		t.Errorf("shown %+v", v)
	}
	if len(v.Orders) != 1 || v.Orders[0].Order != "force-open" || v.Orders[0].Operator != "kim" || v.Orders[0].Ends.Sub(v.Orders[0].At) != time.Hour {
		t.Errorf("the record of orders: %+v", v.Orders)
	}
	_, text, _ := spill(t, nil, "admin", "breakers", "show", "wallet/submit", "-c", c.file)
	for _, want := range []string{"breaker wallet/submit: open", "force         open, ends", "then          half-open", "worker-a", "worker-b", "kim", `moved \x1b[2J`} {
		if !strings.Contains(text, want) {
			t.Errorf("shown without %q:\n%s", want, text)
		}
	}

	if got := c.do(exitOK, "release", "wallet/submit", "--reason", "over"); got.Order.Order != "release" || got.Follow != 2 {
		t.Errorf("released: %+v", got)
	}
	if !both(func(s breaker.Snapshot) bool { return s.State == breaker.HalfOpen && s.Force == breaker.ForceNone })() {
		t.Errorf("after the release: %+v, %+v", a.Snapshot(), b.Snapshot())
	}
	c.do(exitFailure, "release", "wallet/submit", "--reason", "again")
	c.do(exitOK, "force-close", "wallet/submit", "--reason", "x", "--for", "1s")
	if !both(func(s breaker.Snapshot) bool { return s.State == breaker.Closed && s.Force == breaker.ForceClosed })() {
		t.Errorf("forced closed: %+v, %+v", a.Snapshot(), b.Snapshot())
	}
	c.await("the force to end", 5*time.Second, both(func(s breaker.Snapshot) bool { return s.Force == breaker.ForceNone && s.State == breaker.Closed }))
	if v = c.do(exitOK, "show", "wallet/submit"); v.Force != "none" || len(v.Orders) != 3 {
		t.Errorf("after its end: %+v", v)
	}
}

func TestAnOrderGivenWhileNoWorkerRunsIsTakenByThoseThatStart(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	if v := c.do(exitOK, "show", "wallet/submit"); v.Epoch != 0 || v.State != "closed" || v.Force != "none" {
		t.Errorf("of a record that is not there: %+v", v)
	}
	_, out, _ := spill(t, nil, "admin", "breakers", "force-open", "wallet/submit", "--for", "1h", "--reason", "the night", "-c", c.file)
	if !strings.Contains(out, "no worker is alive; those that start take it") {
		t.Errorf("it said %q", out)
	}
	a, end := c.join("worker-1")
	c.await("the newcomer to take the force", time.Second, func() bool { return a.Snapshot().Force == breaker.ForceOpen })
	end()
	again, _ := c.join("worker-2")
	c.await("the force after the restart", time.Second, func() bool { return again.Snapshot().Force == breaker.ForceOpen })

	c.do(exitOK, "observe", "wallet/submit", "--reason", "look", "--for", "1h")
	p := make([]bool, 40)
	for i := range p {
		permit, ok := again.Allow()
		p[i] = ok
		again.Done(permit, breaker.Failure)
	}
	for i, ok := range p {
		if !ok {
			t.Errorf("call %d was refused under observe: %+v", i, again.Snapshot())
			break
		}
	}
	if s := again.Snapshot(); s.Force != breaker.ForceObserve || s.Totals.WouldRefuse == 0 {
		t.Errorf("observing: %+v", s)
	}

	c.do(exitOK, "force-close", "wallet/submit", "--reason", "we bear it", "--for", "1h")
	fail := func(n int) (admitted int) {
		for range n {
			if permit, ok := again.Allow(); ok {
				admitted++
				again.Done(permit, breaker.Failure)
			}
		}
		return admitted
	}
	if n := fail(40); n != 40 {
		t.Errorf("forced closed, %d of 40 calls passed", n)
	}
	c.do(exitOK, "release", "wallet/submit", "--reason", "mended")
	if n := fail(2); n != 2 {
		t.Errorf("what came in under the force opened it after the release: %+v", again.Snapshot())
	}
}
