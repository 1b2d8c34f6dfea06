package drill

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway/internal/testkit"
	"spillway/internal/wallet"
	"spillway/order"
)

// outage is how long a server is away in these tests.
const outage = 20 * time.Second

func TestAWipedRedisLosesNoOrderThatWaitsInReplay(t *testing.T) {
	t.Parallel()
	const orders = 1000
	redis := testkit.StartRedis(t)
	r := newRig(t, world{redis: redis.URL()})
	r.wallet.SetMode(wallet.Failing(503))
	r.produce(orders)
	p := r.work()
	addr := r.addr(p)
	testkit.Eventually(t, time.Minute, func() (bool, string) {
		waiting := r.metric(addr, "spillway_replay_depth")
		return waiting == orders, fmt.Sprintf("%v of %d orders in the replay queue", waiting, orders)
	})
	redisCommand(t, redis.Addr(), "FLUSHALL")
	r.wallet.SetMode(wallet.Healthy(time.Millisecond))
	r.awaitFinal(orders, 90*time.Second)
	r.awaitCommitted(20 * time.Second)
	r.conserved(orders)
}

func TestIntakeHoldsWhilePostgresIsAwayAndResumesByItself(t *testing.T) {
	t.Parallel()
	postgres := testkit.StartPostgres(t)
	r := newRig(t, world{postgres: testkit.Database(t, postgres.URL())})
	r.wallet.SetMode(wallet.Healthy(5 * time.Millisecond))
	const orders = 20_000
	r.produce(orders)
	p := r.work()
	addr := r.addr(p)
	testkit.Eventually(t, time.Minute, func() (bool, string) {
		return r.wallet.Counts().Effects > 1000, "the flow has not begun"
	})
	postgres.Kill()
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		ready, checks := r.ready(addr)
		return !ready && checks["postgres"] != "ok" && strings.Contains(checks["intake:"+route], "store"), fmt.Sprint(checks)
	})
	// What had been written down before the kill is still committed at the next turn; from then on nothing is.
	<-time.After(2 * time.Second)
	before := sum(r.broker.CommittedOffsets(t, "g-"+r.topic, r.topic))
	away(t)
	if after := sum(r.broker.CommittedOffsets(t, "g-"+r.topic, r.topic)); after != before {
		t.Errorf("committed %d → %d while Postgres was away", before, after)
	}
	if body, status := r.get("http://" + addr + "/livez"); status != 200 {
		t.Errorf("/livez %d %s: the worker is alive", status, body)
	}
	postgres.Start()
	r.awaitFinal(orders, 90*time.Second)
	r.awaitCommitted(20 * time.Second)
	r.conserved(orders)
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		ready, checks := r.ready(addr)
		return ready, fmt.Sprint("not ready again: ", checks)
	})
}

func TestTheFlowResumesAfterTheBrokerWasAway(t *testing.T) {
	t.Parallel()
	kafka := testkit.StartKafka(t)
	r := newRig(t, world{kafka: kafka.Addr()})
	r.wallet.SetMode(wallet.Healthy(5 * time.Millisecond))
	const orders = 20_000
	r.produce(orders)
	p := r.work()
	testkit.Eventually(t, time.Minute, func() (bool, string) {
		return r.wallet.Counts().Effects > 1000, "the flow has not begun"
	})
	kafka.Kill()
	away(t)
	kafka.Start()
	r.awaitFinal(orders, 2*time.Minute)
	r.awaitCommitted(30 * time.Second)
	r.conserved(orders)
	select {
	case <-p.Done():
		t.Errorf("the worker ended:\n%s", tail(p.Output()))
	default:
	}
}

// TestNothingIsCommittedBeforeTheReplayQueueTookIt is Redis away while every order must be spilled.
func TestNothingIsCommittedBeforeTheReplayQueueTookIt(t *testing.T) {
	t.Parallel()
	const orders = 20
	redis := testkit.StartRedis(t)
	r := newRig(t, world{redis: redis.URL()})
	r.wallet.SetMode(wallet.Failing(503))
	p := r.work()
	addr := r.addr(p)
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		ready, checks := r.ready(addr)
		return ready, fmt.Sprint(checks)
	})
	redis.Kill()
	r.produce(orders)
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		ready, checks := r.ready(addr)
		return !ready && checks["replay:"+route] != "ok", fmt.Sprint(checks)
	})
	if committed := sum(r.broker.CommittedOffsets(t, "g-"+r.topic, r.topic)); committed != 0 {
		t.Errorf("%d offsets committed with the replay queue away", committed)
	}
	redis.Start()
	r.awaitCommitted(10 * time.Second)
	r.wallet.SetMode(wallet.Healthy(time.Millisecond))
	r.awaitFinal(orders, 30*time.Second)
	r.conserved(orders)
}

// away waits for the length of an outage.
func away(t *testing.T) {
	t.Helper()
	select {
	case <-time.After(outage):
	case <-t.Context().Done():
	}
}

func sum(offsets map[int32]int64) (n int64) {
	for _, o := range offsets {
		n += o
	}
	return n
}

// redisCommand sends one command without arguments, as an operator's slip would.
func redisCommand(t *testing.T, addr, command string) {
	t.Helper()
	conn, err := dialer.DialContext(context.WithoutCancel(t.Context()), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte(command + "\r\n")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 64)
	n, err := conn.Read(answer)
	if err != nil || !strings.HasPrefix(string(answer[:n]), "+OK") {
		t.Fatalf("%s: %q, %v", command, answer[:n], err)
	}
}

// TestUnreadableRecordsBecomeDeadLettersAfterOneAttemptBytesExact is case A3 and what else can't be an order.
func TestUnreadableRecordsBecomeDeadLettersAfterOneAttemptBytesExact(t *testing.T) {
	t.Parallel()
	r := newRig(t, world{partitions: 1})
	trace := header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	r.broker.ProduceTo(t, r.topic, 0,
		record("T-1", `{"order_no":"T-1"}`),
		nullValue("T-2", trace),
		record("T-3", ""),
		nullKey(`{"order_no":"T-4"}`),
		record("T-6", "\x00\xff not JSON", header("k", "a"), header("k", "b"), trace),
		record("T-7", `{"order_no":["T-7"]}`),
		record("T-5", `{"order_no":"T-5"}`),
	)
	r.work()
	r.awaitFinal(3, 30*time.Second)
	r.awaitCommitted(10 * time.Second)
	want := map[int64]order.Reason{1: order.NullValue, 2: order.EmptyValue, 4: order.Undecodable, 5: order.NoNumber}
	letters := r.letters()
	if len(letters) != len(want) {
		t.Fatalf("%d dead letters, want %d: %+v", len(letters), len(want), letters)
	}
	for _, l := range letters {
		m := l.Message
		if l.Reason != want[m.Offset] {
			t.Errorf("offset %d: reason %s, want %s", m.Offset, l.Reason, want[m.Offset])
		}
		switch m.Offset {
		case 1:
			if m.Value != nil || string(m.Key) != "T-2" {
				t.Errorf("the tombstone came back as key %q value %v", m.Key, m.Value)
			}
		case 2:
			if m.Value == nil || len(m.Value) != 0 {
				t.Errorf("the empty value came back as %v", m.Value)
			}
		case 4:
			if string(m.Value) != "\x00\xff not JSON" || len(m.Headers) != 3 || string(m.Headers[0].Value) != "a" || string(m.Headers[1].Value) != "b" {
				t.Errorf("bytes not exact: value %q headers %v", m.Value, m.Headers)
			}
		}
	}
	if c := r.wallet.Counts(); c.Posts != 3 || c.Bad != 0 {
		t.Errorf("wallet %+v: want 3 POSTs", c)
	}
}
