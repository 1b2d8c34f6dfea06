package drill

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"spillway/internal/testkit"
	"spillway/internal/wallet"
	"spillway/order"
)

// second is a further route of the rig's worker, with a topic and a service of its own.
type second struct {
	name, topic string
	service     *wallet.Wallet
}

// bankRoute is the settings of a second route, in the shape of the first's.
const bankRoute = `
  - name: %s
    topic: %s
    group: g-%s
    lease: 4s
    number: {from: value, pointer: /order_no}
    permits: {limit: 20}
    breaker: {minimum_calls: 100000, consecutive: 0}
    replay: {lease: 4s}
    compensate: {after: 500ms, grace: 1500ms, interval: 200ms}
    downstream: {url: %s, timeout: 900ms, slow: 0s, submit: {path: /pay}, lookup: {path: "/pay/{number}"}}
`

func (r *rig) addRoute(name string, partitions int) *second {
	r.t.Helper()
	s := &second{name: name, topic: r.broker.Topic(r.t, partitions, nil), service: wallet.New(wallet.Config{Seed: 2})}
	server := httptest.NewServer(s.service)
	r.t.Cleanup(server.Close)
	f, err := os.OpenFile(r.config, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(f, bankRoute, name, s.topic, s.topic, server.URL); err != nil {
		r.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		r.t.Fatal(err)
	}
	return s
}

// leastKept is the part of its rate that a route must keep beside one that stalls. On a machine that does nothing else it
// keeps all of it; the bound leaves room for one on which other tests run.
const leastKept = 0.8

// TestAStalledRouteLeavesTheOtherItsRateAndPausesItsOwnPartitionsAlone is two topics, two services and one worker.
func TestAStalledRouteLeavesTheOtherItsRateAndPausesItsOwnPartitionsAlone(t *testing.T) {
	t.Parallel()
	const orders, backlog, trickle = 6000, 2000, 100
	r := newRig(t, world{
		partitions: 6, env: slowCalls(), breaker: "    breaker: {minimum_calls: 100000, consecutive: 0}", route: "    permits: {limit: 20}\n",
	})
	bank := r.addRoute("bank", 6)
	r.wallet.SetMode(wallet.Healthy(40 * time.Millisecond))      // 500 a second
	bank.service.SetMode(wallet.Healthy(800 * time.Millisecond)) // 25 a second: it never keeps up
	r.produce(orders)
	p := r.command()
	addr := r.addr(p)
	testkit.Eventually(t, 30*time.Second, func() (bool, string) {
		return r.wallet.Counts().Effects > 100, "the flow has not begun"
	})
	const measured = 4 * time.Second
	rate := func() float64 {
		begin, from := time.Now(), r.wallet.Counts().Effects
		<-time.After(measured)
		return float64(r.wallet.Counts().Effects-from) / time.Since(begin).Seconds()
	}
	alone := rate()
	records := make([]*kgo.Record, backlog)
	for i := range records {
		no := fmt.Sprintf("B-%06d", i)
		records[i] = record(no, fmt.Sprintf(`{"order_no":%q}`, no))
	}
	r.broker.Produce(t, bank.topic, records...)
	paused := func(route string) float64 { return r.metric(addr, "spillway_paused_partitions", `route="`+route+`"`) }
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		n := paused("bank")
		return n == 6 && bank.service.Counts().InFlight == 20, fmt.Sprintf("%v partitions of the stalled route paused, %d calls", n, bank.service.Counts().InFlight)
	})
	beside := rate()
	t.Logf("%.0f orders a second alone, %.0f beside a route that stalls: %.1f %%", alone, beside, 100*beside/alone)
	if beside < leastKept*alone {
		t.Errorf("the route keeps %.1f %% of its rate", 100*beside/alone)
	}
	if most := r.wallet.Counts().MaxPayment; most > 20 {
		t.Errorf("%d calls at once with 20 permits", most)
	}

	// With less to do than it could, nothing of the healthy route is paused, while all of the other is.
	r.awaitFinal(orders, 30*time.Second)
	for n := 1; n <= trickle; n += 10 {
		r.produce(10)
		<-time.After(20 * time.Millisecond)
		if n := paused(route); n != 0 {
			t.Errorf("%v partitions of the healthy route are paused", n)
		}
		if n := paused("bank"); n != 6 {
			t.Errorf("%v partitions of the stalled route are paused, want 6", n)
		}
	}
	r.awaitFinal(orders+trickle, 5*time.Second)
	r.awaitCommitted(5 * time.Second)
	if done := bank.service.Counts().Effects; done > backlog/2 {
		t.Errorf("%d of %d orders of the other route are done: it did not stall", done, backlog)
	}
	r.conserved(orders + trickle)

	bank.service.SetMode(wallet.Healthy(time.Millisecond))
	testkit.Eventually(t, time.Minute, func() (bool, string) {
		tally, err := r.store.Tally(context.WithoutCancel(t.Context()), "bank")
		if err != nil {
			t.Fatal(err)
		}
		return tally.State(order.Succeeded) == backlog && paused("bank") == 0, fmt.Sprintf("%+v, %v paused", tally, paused("bank"))
	})
	if c := bank.service.Counts(); c.Effects != backlog || c.Duplicates != 0 {
		t.Errorf("the other route's service: %+v", c)
	}
}
