package drill

import (
	"flag"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"spillway/internal/testkit"
	"spillway/internal/wallet"
)

var floodFlag = flag.Duration("drill.flood", 12*time.Second, "how long a tenant floods the others")

// TestAFloodingTenantLeavesTheOthersTheirShare: three tenants on their own partitions share a route that can do 500 orders a
// second. One floods it with ten times what the others ask for; those, asking for less than their part, get all they ask for,
// with the delay of a few requests to Kafka.
func TestAFloodingTenantLeavesTheOthersTheirShare(t *testing.T) {
	t.Parallel()
	const asked, delay = 80, 6 // orders a second of a tenant that does not flood; seconds
	span := *floodFlag
	var mu sync.Mutex // guards done
	done := map[string]int{}
	count := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
			h.ServeHTTP(rw, q)
			if no := q.Header.Get("Idempotency-Key"); q.Method == http.MethodPost && no != "" {
				mu.Lock()
				done[no[:1]]++
				mu.Unlock()
			}
		})
	}
	seen := func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return map[string]int{"A": done["A"], "B": done["B"], "C": done["C"]}
	}
	r := newRig(t, world{
		partitions: 3, wrap: count,
		route: "    permits: {limit: 10}\n    rate: {tenant: {from: header, header: shop}}\n",
	})
	r.wallet.SetMode(wallet.Healthy(20 * time.Millisecond))
	shops := []string{"A", "B", "C"}
	sent := map[string]int{}
	send := func(shop string, n int) {
		records := make([]*kgo.Record, n)
		for i := range records {
			no := fmt.Sprintf("%s-%06d", shop, sent[shop])
			sent[shop]++
			records[i] = record(no, fmt.Sprintf(`{"order_no":%q,"amount":1250,"currency":"CNY"}`, no), header("shop", shop))
		}
		r.broker.ProduceTo(t, r.topic, int32(shop[0]-'A'), records...)
	}
	send("A", 10_000) // the flood has begun before the others come
	p := r.work(callsOf(2 * time.Second)...)
	testkit.Eventually(t, 40*time.Second, func() (bool, string) { return seen()["A"] > 500, "the route does not begin" })

	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for time.Since(began) < span {
		<-tick.C
		for _, shop := range shops[1:] {
			send(shop, int(time.Since(began).Seconds()*asked)-sent[shop])
		}
		send("A", asked)
	}
	got := seen()
	t.Logf("%s: the flood got %d orders, the others %d and %d of %d and %d", span, got["A"], got["B"], got["C"], sent["B"], sent["C"])
	for _, shop := range shops[1:] {
		if got[shop] < sent[shop]-delay*asked {
			t.Errorf("tenant %s got %d of the %d orders that it asked for, more than %d s behind", shop, got[shop], sent[shop], delay)
		}
	}
	if got["A"] < 100*int(span.Seconds()) {
		t.Errorf("the flood got %d orders: what the others leave is its", got["A"])
	}
	p.Kill()
}
