package drill

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"spillway/internal/testkit"
	"spillway/internal/wallet"
)

var (
	fleetChurn = flag.Int("drill.fleet", 6, "workers that come or go in the drill of fleet permits")
	fleetSeed  = flag.Uint64("drill.fleetseed", 0, "seed of that drill; 0 draws one")
)

// watched counts what runs at the service, and when calls came.
type watched struct {
	next http.Handler

	mu      sync.Mutex
	running int
	most    int
	came    []time.Time // submits
}

func (w *watched) ServeHTTP(rw http.ResponseWriter, q *http.Request) {
	w.mu.Lock()
	w.running++
	w.most = max(w.most, w.running)
	if q.Method == http.MethodPost {
		w.came = append(w.came, time.Now())
	}
	w.mu.Unlock()
	// The answer is sent once this has returned, so nobody who has read it is still counted.
	defer func() {
		w.mu.Lock()
		w.running--
		w.mu.Unlock()
	}()
	w.next.ServeHTTP(rw, q)
}

// peak is the most calls that ran at once since it was asked last.
func (w *watched) peak() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	most := w.most
	w.most = w.running
	return most
}

// calls is how many submits came so far.
func (w *watched) calls() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.came)
}

// busiest is the most submits that came in any window of length d between two moments.
func (w *watched) busiest(from, to time.Time, d time.Duration) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	most, first := 0, 0
	for i, at := range w.came {
		for at.Sub(w.came[first]) > d {
			first++
		}
		if w.came[first].After(from) && at.Before(to) {
			most = max(most, i-first+1)
		}
	}
	return most
}

// TestPermitsOfAFleetAreNeverExceeded lets workers join, end, die and stand still, takes Redis away for longer than a lease, has it come
// back as another run, and wipes it, all under load. The calls that run at the service are counted there.
func TestPermitsOfAFleetAreNeverExceeded(t *testing.T) {
	t.Parallel()
	const workers, limit = 8, 20
	seed := *fleetSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-drill.fleet %d -drill.fleetseed %d", *fleetChurn, seed)
	rnd := rand.New(rand.NewPCG(seed, 1))

	redis := testkit.StartRedis(t)
	service := &watched{}
	r := newRig(t, world{
		redis: redis.URL(), partitions: 24,
		// A call that the service is slow to end on a busy machine is not given up, and so is counted here and there alike.
		env:   []string{"SPILLWAY_ROUTES_WALLET_DOWNSTREAM_TIMEOUT=900ms", "SPILLWAY_ROUTES_WALLET_DOWNSTREAM_SLOW=0s"},
		route: fmt.Sprintf("    permits: {limit: 15, fleet: %d}\n", limit),
		wrap:  func(next http.Handler) http.Handler { service.next = next; return service },
	})
	r.wallet.SetMode(wallet.Healthy(100 * time.Millisecond))
	fleet := make([]*testkit.Proc, workers)
	for i := range fleet {
		fleet[i] = r.work()
	}
	r.produce(500) // more than can be in flight, throughout
	r.load(8, time.Minute, func() (bool, string) {
		n := service.peak()
		return n == limit, fmt.Sprintf("%d calls at once", n)
	})
	check := func(what string) {
		t.Helper()
		n := service.peak()
		t.Logf("%s: at most %d calls at once", what, n)
		if n > limit {
			t.Errorf("the fleet has %d permits", limit)
		}
	}
	storm := func(d time.Duration) {
		end := time.Now().Add(d)
		r.load(8, d+time.Minute, func() (bool, string) { return time.Now().After(end), "" })
	}
	churn := func(n int) {
		for range n {
			i := rnd.IntN(workers - 1)
			if rnd.IntN(2) == 0 {
				fleet[i].Kill()
			} else {
				fleet[i].Signal(syscall.SIGTERM)
			}
			storm(time.Duration(rnd.Int64N(int64(time.Second))))
			fleet[i] = r.work()
			storm(time.Duration(rnd.Int64N(int64(time.Second))))
		}
		check("workers came and went")
	}
	full := func(after string) {
		t.Helper()
		back := time.Now()
		r.load(8, time.Minute, func() (bool, string) {
			n := service.peak()
			if n > limit {
				t.Errorf("%s: %d calls at once, the fleet has %d permits", after, n, limit)
			}
			return n == limit, fmt.Sprintf("%d calls at once", n)
		})
		t.Logf("%s: all %d permits are in use %s later", after, limit, time.Since(back).Round(time.Millisecond))
	}
	// One stands still until others have what it was allotted, and goes on as if nothing had been.
	still := fleet[workers-1]
	still.Signal(syscall.SIGSTOP)
	stopped := time.Now()
	churn(*fleetChurn / 2)
	storm(time.Until(stopped.Add(11 * time.Second)))
	still.Signal(syscall.SIGCONT)
	storm(time.Second)
	check("one stood still")
	redis.Kill()
	storm(3 * time.Second)
	churn(1)
	storm(3 * time.Second)
	check("Redis away")
	before := service.calls()
	storm(time.Second)
	if n := service.calls() - before; n > 0 {
		t.Errorf("%d calls with Redis away for longer than a lease", n)
	}
	redis.Start()
	full("Redis back as another run")
	churn(*fleetChurn - *fleetChurn/2)
	redisCommand(t, redis.Addr(), "FLUSHALL")
	churn(1)
	check("Redis wiped")

	full("Redis wiped")
	r.wallet.SetMode(wallet.Healthy(10 * time.Millisecond)) // to save time
	r.awaitFinal(r.number, 2*time.Minute)
	check("the backlog")
	r.conserved(r.number)
	t.Logf("%d calls for %d orders", service.calls(), r.number)
}

// TestRateOfAFleetIsKept lets workers that could take more share a rate while others join and die.
func TestRateOfAFleetIsKept(t *testing.T) {
	t.Parallel()
	const perSecond, window = 100, 5 * time.Second
	service := &watched{}
	r := newRig(t, world{
		partitions: 12, route: fmt.Sprintf("    rate: {fleet: %d/s}\n", perSecond),
		wrap: func(next http.Handler) http.Handler { service.next = next; return service },
	})
	r.wallet.SetMode(wallet.Healthy(time.Millisecond))
	r.produce(6000)
	fleet := []*testkit.Proc{r.work(), r.work(), r.work(), r.work()}
	testkit.Eventually(t, time.Minute, func() (bool, string) {
		now := time.Now()
		n := service.busiest(now.Add(-time.Second), now, time.Second)
		return n >= perSecond*9/10, fmt.Sprintf("%d submits in the last second", n)
	})
	from := time.Now()
	<-time.After(window + time.Second)
	steady := service.busiest(from, time.Now(), window)
	fleet[0].Kill()
	r.work()
	<-time.After(window)
	fleet[1].Signal(syscall.SIGTERM)
	r.work()
	<-time.After(window)
	to := time.Now()
	most := service.busiest(from, to, window)
	t.Logf("the busiest %s had %d submits in the calm and %d while workers came and went, at %d/s for all", window, steady, most, perSecond)
	if want := perSecond * int(window/time.Second); most > want*105/100 || steady < want*90/100 {
		t.Errorf("%d to %d submits in %s, want %d", steady, most, window, want)
	}
}
