package drill

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"spillway/internal/testkit"
	"spillway/internal/wallet"
	"spillway/order"
)

var (
	stormTime = flag.Duration("drill.storm", 20*time.Second, "how long workers come and go in the storm of rebalances")
	stormSeed = flag.Uint64("drill.stormseed", 0, "seed of the storm; 0 draws one")
)

// usual are the settings of Kafka's group and of the shutdown that a worker has by default.
var usual = []string{"SPILLWAY_KAFKA_SESSION_TIMEOUT=8s", "SPILLWAY_KAFKA_HEARTBEAT=2s", "SPILLWAY_SHUTDOWN_GRACE=5s"}

// load writes orders down at a steady pace until a condition holds.
func (r *rig) load(perTick int, timeout time.Duration, until func() (bool, string)) {
	r.t.Helper()
	const tick = 50 * time.Millisecond
	var why string
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		began := time.Now()
		r.produce(perTick)
		var ok bool
		if ok, why = until(); ok {
			return
		}
		<-time.After(tick - time.Since(began))
	}
	r.t.Fatalf("not within %s: %s", timeout, why)
}

// past reports whether the group has committed more than these offsets of every partition.
func (r *rig) past(offsets map[int32]int64) (bool, string) {
	r.t.Helper()
	committed := r.broker.CommittedOffsets(r.t, "g-"+r.topic, r.topic)
	for p, offset := range offsets {
		if committed[p] <= offset {
			return false, fmt.Sprintf("partition %d is committed up to %d, want past %d", p, committed[p], offset)
		}
	}
	return true, ""
}

// owns waits until a worker has so many partitions, under load.
func (r *rig) owns(addr string, n float64, timeout time.Duration) {
	r.t.Helper()
	r.load(10, timeout, func() (bool, string) {
		got := r.metric(addr, "spillway_assigned_partitions")
		return got == n, fmt.Sprintf("the worker has %v partitions, want %v", got, n)
	})
}

// TestPartitionsAreServedAgainSoonAfterAWorkerLeaves is case H3 e and a, with the waits a worker has by default: what
// a worker that ends owned is read by the other within five seconds, and what it had begun is not done again.
func TestPartitionsAreServedAgainSoonAfterAWorkerLeaves(t *testing.T) {
	t.Parallel()
	r := newRig(t, world{partitions: 6, env: usual})
	r.wallet.SetMode(wallet.Healthy(20 * time.Millisecond))
	a, b := r.command(), r.command()
	addrA, addrB := r.addr(a), r.addr(b)
	r.owns(addrA, 3, 30*time.Second)
	r.owns(addrB, 3, 30*time.Second)

	told := time.Now()
	a.Signal(syscall.SIGTERM)
	r.load(10, 15*time.Second, func() (bool, string) {
		select {
		case <-a.Done():
			return true, ""
		default:
			return false, "the worker does not end"
		}
	})
	if code := a.Wait(time.Second); code != 0 {
		t.Errorf("exit code %d:\n%s", code, tail(a.Output()))
	}
	left, ends := time.Now(), r.broker.EndOffsets(t, r.topic)
	r.load(10, 20*time.Second, func() (bool, string) { return r.past(ends) })
	t.Logf("the worker ended %s after SIGTERM; every partition was served again %s later",
		left.Sub(told).Round(time.Millisecond), time.Since(left).Round(time.Millisecond))
	if took := time.Since(left); took > 5*time.Second {
		t.Errorf("some partition was not served for %s after the worker had left", took)
	}
	r.awaitFinal(r.number, time.Minute)
	r.awaitCommitted(20 * time.Second)
	r.conserved(r.number)
	if posts, orders := r.wallet.Counts().Posts, int64(r.number); posts != orders {
		t.Errorf("%d calls for %d orders: some were begun by one worker and done again by the other", posts, orders)
	}
	b.Kill()
}

// TestAKilledWorkerIsBackWithinItsSession: a worker that is killed and started again at once waits until the group has
// given its former self up, which is a session timeout after that one's last heartbeat, and no longer.
func TestAKilledWorkerIsBackWithinItsSession(t *testing.T) {
	t.Parallel()
	r := newRig(t, world{partitions: 6, env: usual})
	r.wallet.SetMode(wallet.Healthy(20 * time.Millisecond))
	p := r.command()
	r.load(10, 30*time.Second, func() (bool, string) { return r.wallet.Counts().Posts > 300, "the flow has not begun" })
	p.Kill()
	killed, posts := time.Now(), r.wallet.Counts().Posts
	r.command()
	r.load(2, 30*time.Second, func() (bool, string) { return r.wallet.Counts().Posts > posts, "nothing is called" })
	took := time.Since(killed)
	t.Logf("the first call came %s after the kill", took.Round(time.Millisecond))
	if took > 10*time.Second {
		t.Errorf("nothing was called for %s after the kill", took)
	}
	r.awaitFinal(r.number, time.Minute)
	r.conserved(r.number)
}

// storm is a fleet that changes all the time.
type storm struct {
	*rig
	random *rand.Rand
	alive  []*testkit.Proc
	ending []*testkit.Proc // told to end

	joins, kills, leaves int
}

// act lets one worker join, or ends one: killed or told to, as it comes. At least one is left.
func (s *storm) act() {
	const fewest, most = 1, 4
	join := s.random.IntN(2) == 0
	if len(s.alive) <= fewest {
		join = true
	} else if len(s.alive) >= most {
		join = false
	}
	if join {
		s.alive = append(s.alive, s.command())
		s.joins++
		return
	}
	i := s.random.IntN(len(s.alive))
	victim := s.alive[i]
	s.alive = slices.Delete(s.alive, i, i+1)
	if s.random.IntN(2) == 0 {
		victim.Kill()
		s.kills++
		return
	}
	victim.Signal(syscall.SIGTERM)
	s.ending = append(s.ending, victim)
	s.leaves++
}

// TestAStormOfRebalancesLosesNothingAndLeavesNoPartitionBehind lets a worker join or end every two seconds under load.
// The long form takes two minutes: -drill.storm=2m.
func TestAStormOfRebalancesLosesNothingAndLeavesNoPartitionBehind(t *testing.T) {
	t.Parallel()
	seed := *stormSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -drill.stormseed=%d", seed)
	const partitions, every = 12, 2 * time.Second
	r := newRig(t, world{partitions: partitions})
	r.wallet.SetMode(wallet.Healthy(20 * time.Millisecond))
	s := &storm{rig: r, random: rand.New(rand.NewPCG(seed, 1))}
	s.alive = append(s.alive, r.command(), r.command())

	began, next := time.Now(), time.Now().Add(every)
	r.load(10, *stormTime+time.Minute, func() (bool, string) {
		if now := time.Now(); now.After(next) {
			next = next.Add(every)
			s.act()
		}
		return time.Since(began) > *stormTime, "the storm goes on"
	})
	t.Logf("%d joins, %d kills, %d leaves, %d orders, %d of them final at the end of the storm",
		s.joins, s.kills, s.leaves, r.number, r.tally().State(order.Succeeded))
	for _, p := range s.ending {
		if code := p.Wait(15 * time.Second); code != 0 {
			t.Errorf("a worker that was told to end exits with %d:\n%s", code, tail(p.Output()))
		}
	}

	// The storm is over: every partition is read on, by somebody.
	calm, ends := time.Now(), r.broker.EndOffsets(t, r.topic)
	r.load(10, time.Minute, func() (bool, string) { return r.past(ends) })
	t.Logf("every partition was past the storm's last order %s after it", time.Since(calm).Round(time.Millisecond))
	r.awaitFinal(r.number, 2*time.Minute)
	r.awaitCommitted(30 * time.Second)
	r.conserved(r.number)
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		owned, paused, astray := 0.0, 0.0, 0.0
		for _, p := range s.alive {
			addr := r.addr(p)
			owned += r.metric(addr, "spillway_assigned_partitions")
			paused += r.metric(addr, "spillway_paused_partitions")
			astray += r.metric(addr, "spillway_conservation_imbalance")
		}
		return owned == partitions && paused == 0 && astray == 0,
			fmt.Sprintf("%d workers own %v partitions, %v paused, %v records astray", len(s.alive), owned, paused, astray)
	})
	for _, p := range s.alive {
		p.Kill()
	}
}
