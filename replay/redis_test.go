package replay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	driver "github.com/redis/go-redis/v9"

	"spillway/internal/redis"
	"spillway/internal/testkit"
	"spillway/order"
	"spillway/replay"
)

// onRedis makes a world whose queue is in the server at url, with real time. The returned connection goes past the queue.
func onRedis(t *testing.T, url string) (*world, *replay.Engine, *driver.Client) {
	t.Helper()
	w := newWorld(t)
	w.policy.RetryDelay = 50 * time.Millisecond
	e, _ := w.redisEngine(url, testkit.Prefix(t))
	opts, err := driver.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	db := driver.NewClient(opts)
	t.Cleanup(func() { _ = db.Close() })
	return w, e, db
}

// redisEngine makes an engine on the world's record and service with its queue in Redis.
func (w *world) redisEngine(url, prefix string) (*replay.Engine, *redis.Queue) {
	w.t.Helper()
	client, err := redis.Open(redis.Config{URL: url, Prefix: prefix})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = client.Close() })
	queue := client.Queue(w.cfg.Route, 10_000)
	e, err := replay.New(w.cfg, w.policy, faultyQueue{queue, w.faults}, faultyStore{w.store, w.faults},
		faultyService{w.service, w.faults}, discard(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return e, queue
}

// waitFor waits until n orders have succeeded and the queue is empty.
func (w *world) waitFor(e *replay.Engine, n int, timeout time.Duration) {
	w.t.Helper()
	testkit.Eventually(w.t, timeout, func() (bool, string) {
		d, err := e.Depths(w.t.Context())
		got := w.store.count(order.Succeeded, order.NoPhase)
		return got == n && err == nil && d.Total() == 0, fmt.Sprintf("%d of %d succeeded, the queue holds %+v (%v)", got, n, d, err)
	})
	for _, c := range w.service.seen() {
		if got := w.service.effect(c.number); got > 1 {
			w.t.Errorf("%s was applied %d times", c.number, got)
		}
	}
}

func TestJunkInTheRedisListBecomesDeadLetters(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(t *testing.T) string{
		"miniredis": func(t *testing.T) string { t.Helper(); return "redis://" + miniredis.RunT(t).Addr() },
		"redis":     func(t *testing.T) string { t.Helper(); return testkit.Redis(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, prefix := url(t), testkit.Prefix(t)
			w, _, db := onRedis(t, url)
			e, _ := w.redisEngine(url, prefix)
			junk := []string{"", "null", "[]", "{}", `{"v":1}xx`, `{"v":99}`, strings.Repeat("a", 1<<20)}
			for _, j := range junk {
				if err := db.RPush(t.Context(), "{"+prefix+":pay}:ready", j).Err(); err != nil {
					t.Fatal(err)
				}
			}
			w.spill(e, 1)
			w.run(e)
			w.waitFor(e, 1, 5*time.Second)
			letters := w.store.letters()
			if len(letters) != len(junk) {
				t.Fatalf("%d dead letters, want %d", len(letters), len(junk))
			}
			for i, l := range letters {
				if string(l.Raw) != junk[i] || l.Reason != order.QueueItemUnreadable || l.Detail == "" {
					t.Errorf("dead letter %d: %.20q, %v, %q", i, l.Raw, l.Reason, l.Detail)
				}
			}
		})
	}
}

func TestOrdersOutliveAReadonlyRedis(t *testing.T) {
	t.Parallel()
	url := testkit.StartRedis(t).URL()
	w, e, db := onRedis(t, url)
	w.run(e)
	if err := db.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	spilled := w.store.add("pay", 20)
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		err := e.Push(t.Context(), spilled)
		return err != nil && strings.Contains(err.Error(), "READONLY"), fmt.Sprintf("push: %v", err)
	})
	if err := e.Healthy(); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("healthy says %v", err)
	}
	if err := db.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		err := e.Push(t.Context(), spilled)
		return err == nil, fmt.Sprintf("push: %v", err)
	})
	w.waitFor(e, 20, 10*time.Second)
	if err := e.Healthy(); err != nil {
		t.Errorf("healthy says %v", err)
	}
}

func TestQueueIsWorkedOffWhileRedisIsOutOfMemory(t *testing.T) {
	t.Parallel()
	url := testkit.StartRedis(t).URL()
	w, e, db := onRedis(t, url)
	w.spill(e, 300)
	refused := w.store.add("pay", 1)
	setMemory := func(to string) {
		if err := db.ConfigSet(t.Context(), "maxmemory", to).Err(); err != nil {
			t.Fatal(err)
		}
	}
	setMemory("500kb")
	if err := e.Push(t.Context(), refused); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Fatalf("push: %v, want the server's refusal", err)
	}
	w.run(e)
	w.waitFor(e, 300, 20*time.Second)
	if err := e.Healthy(); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("healthy says %v", err)
	}
	setMemory("0")
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		err := errors.Join(e.Push(t.Context(), refused), e.Healthy())
		return err == nil, fmt.Sprint(err)
	})
	w.waitFor(e, 301, 10*time.Second)
}

func TestClaimsInRedisReturnWhenTheirWorkerDies(t *testing.T) {
	t.Parallel()
	url, prefix := testkit.Redis(t), testkit.Prefix(t)
	w := newWorld(t)
	w.cfg.Lease = 300 * time.Millisecond
	first, _ := w.redisEngine(url, prefix)
	w.spill(first, 50)
	w.faults.set(dieAt("begin before", 3))
	stop := w.run(first)
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		return len(w.faults.tried("begin before")) >= 3, "it does not come to die"
	})
	stop()
	w.faults, w.cfg.Owner = &faults{}, "w2"
	second, _ := w.redisEngine(url, prefix)
	w.run(second)
	// What the dead worker had begun and not called yet is the scanner's: its row says in flight, and its item is dropped.
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		d, err := second.Depths(t.Context())
		done, begun := w.store.count(order.Succeeded, order.NoPhase), w.store.count(order.Processing, order.InFlight)
		return done+begun == 50 && done >= 40 && err == nil && d.Total() == 0,
			fmt.Sprintf("%d succeeded, %d in flight of 50, the queue holds %+v (%v)", done, begun, d, err)
	})
}

func TestOrdersOutliveALostRedis(t *testing.T) {
	t.Parallel()
	server := testkit.StartRedis(t)
	w, e, db := onRedis(t, server.URL())
	w.service.open.Store(true)
	spilled := w.store.add("pay", 1000)
	if err := e.Push(t.Context(), spilled); err != nil {
		t.Fatal(err)
	}
	w.run(e)
	if err := db.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	w.service.open.Store(false)
	ids := make([]int64, len(spilled))
	for i := range spilled {
		ids[i] = spilled[i].Order.ID
	}
	has, err := e.Has(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	for i := range has {
		if has[i] {
			t.Fatalf("order %d is said to be queued", ids[i])
		}
	}
	if err := e.Push(t.Context(), spilled); err != nil {
		t.Fatal(err)
	}
	w.waitFor(e, 1000, 30*time.Second)
}

func TestTwoWorkersShareOneQueue(t *testing.T) {
	t.Parallel()
	url, prefix := testkit.Redis(t), testkit.Prefix(t)
	w := newWorld(t)
	w.service.delay = 5 * time.Millisecond
	var engines []*replay.Engine
	for i := range 2 {
		w.cfg.Owner = fmt.Sprint("w", i)
		e, _ := w.redisEngine(url, prefix)
		engines = append(engines, e)
	}
	w.spill(engines[0], 1000)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for _, e := range engines {
		go func() { ended <- e.Run(ctx) }()
	}
	w.waitFor(engines[1], 1000, 30*time.Second)
	cancel()
	for range engines {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if n := len(w.service.seen()); n != 1000 {
		t.Errorf("%d calls, want 1000", n)
	}
}
