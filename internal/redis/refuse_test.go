package redis_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	driver "github.com/redis/go-redis/v9"

	"spillway/internal/testkit"
	"spillway/replay"
)

// shell is a plain connection to a server, for what the queue itself would not do.
func shell(t *testing.T, url string) *driver.Client {
	t.Helper()
	opts, err := driver.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	db := driver.NewClient(opts)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// do runs one command or fails the test.
func do(t *testing.T, db *driver.Client, args ...any) {
	t.Helper()
	if err := db.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

// sized is an entry of about n bytes.
func sized(id int64, n int) replay.Entry {
	return replay.Entry{ID: id, Data: fmt.Appendf(nil, `{"id":%d,"x":"%s"}`, id, bytes.Repeat([]byte("x"), n))}
}

func TestQueueCanBeWorkedOffOnAServerWithoutMemory(t *testing.T) {
	t.Parallel()
	url := testkit.StartRedis(t).URL()
	r, db := open(t, url, 10_000), shell(t, url)
	for id := int64(1); id <= 200; id++ {
		r.push(t, sized(id, 10_000))
	}
	expired := r.claim(t, 5, long)
	held := r.claim(t, 20, long)
	do(t, db, "ZADD", r.key("lease"), "XX", 1, expired.Key) // its worker died long ago
	do(t, db, "SCRIPT", "FLUSH")                            // loading the scripts must not fail either
	do(t, db, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	do(t, db, "CONFIG", "SET", "maxmemory", "1mb")

	wantRefused := func(name string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("%s: %v, want the server's refusal", name, err)
		}
	}
	wantRefused("push", r.queue.Push(t.Context(), entries(900, 902)))
	wantRefused("probe", r.queue.Probe(t.Context()))
	r.wantHas(t, "[false false]", 900, 902) // a refused push leaves nothing behind

	if ok, err := r.queue.Renew(t.Context(), held, long); err != nil || !ok {
		t.Errorf("renew: %v, %v", ok, err)
	}
	late := sized(7, 10_000)
	late.NotBefore = time.Now().Add(time.Hour)
	var done []int64
	for id := int64(6); id <= 25; id++ {
		if id != 7 {
			done = append(done, id)
		}
	}
	if !r.finish(t, held, replay.Finished{Done: done, Again: []replay.Entry{late}}) {
		t.Error("the claim was lost")
	}
	r.wantHas(t, "[false true]", 6, 7)
	taken := r.claim(t, 50, long) // the five of the expired claim first
	if len(taken.Items) != 50 || !bytes.Equal(taken.Items[0], expired.Items[0]) {
		t.Errorf("claimed %d entries", len(taken.Items))
	}
	if !r.finish(t, taken, replay.Finished{Keep: []int{0}}) {
		t.Error("the claim was lost")
	}
	r.wantDepths(t, 131, 1, 0)

	do(t, db, "CONFIG", "SET", "maxmemory", "0")
	r.push(t, entries(900, 902)...)
	if err := r.queue.Probe(t.Context()); err != nil {
		t.Errorf("probe: %v", err)
	}
}

func TestQueueSaysReadonlyAndGoesOnAfterIt(t *testing.T) {
	t.Parallel()
	url := testkit.StartRedis(t).URL()
	r, db := open(t, url, 1000), shell(t, url)
	r.push(t, entries(1, 4)...)
	c := r.claim(t, 2, long)
	do(t, db, "REPLICAOF", "127.0.0.1", "1") // of a server that is not there

	_, finished := r.queue.Finish(t.Context(), c, replay.Finished{Done: []int64{1, 2}})
	_, claimed := r.queue.Claim(t.Context(), "w1", 1, anySize, long)
	_, renewed := r.queue.Renew(t.Context(), c, long)
	for name, err := range map[string]error{
		"push": r.queue.Push(t.Context(), entries(5, 5)), "probe": r.queue.Probe(t.Context()),
		"finish": finished, "claim": claimed, "renew": renewed,
	} {
		if err == nil || !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("%s: %v, want READONLY", name, err)
		}
	}
	if err := r.client.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err) // which is why health is not a ping
	}
	r.wantDepths(t, 2, 0, 2)
	r.wantHas(t, "[true false]", 1, 5)

	do(t, db, "REPLICAOF", "NO", "ONE")
	r.push(t, entries(5, 5)...)
	if !r.finish(t, c, replay.Finished{Done: []int64{1, 2}}) {
		t.Error("the claim was lost")
	}
	r.wantDepths(t, 3, 0, 0)
}

func TestQueueOutlivesAKilledServer(t *testing.T) {
	t.Parallel()
	server := testkit.StartRedis(t)
	r := open(t, server.URL(), 1000)
	r.push(t, entries(1, 4)...)
	r.claim(t, 2, long)
	server.Kill()
	if err := r.queue.Push(t.Context(), entries(5, 5)); err == nil {
		t.Error("a dead server took a push")
	}
	server.Start()
	testkit.Eventually(t, 5*time.Second, func() (bool, string) {
		err := r.client.Ping(t.Context())
		return err == nil, fmt.Sprint(err)
	})
	r.wantDepths(t, 2, 0, 2)
	r.push(t, entries(5, 5)...) // the scripts are loaded anew
}

func TestClaimWithoutALeaseIsFound(t *testing.T) {
	t.Parallel()
	onEach(t, 1000, func(r rig) {
		t := r.t
		r.push(t, entries(1, 6)...)
		lost := r.claim(t, 3, long)
		kept := r.claim(t, 1, long)
		do(t, r.shell, "ZREM", r.key("lease"), lost.Key)
		n, err := r.queue.Mend(t.Context())
		if err != nil || n != 3 {
			t.Errorf("%d came back (%v), want 3", n, err)
		}
		r.wantDepths(t, 5, 0, 1)
		if !r.finish(t, kept, replay.Finished{Done: []int64{4}}) {
			t.Error("a claim with a lease was taken")
		}
		if n, err := r.queue.Mend(t.Context()); err != nil || n != 0 {
			t.Errorf("%d came back from a whole queue (%v)", n, err)
		}
		r.wantHas(t, "[true true]", 1, 6)
	})
}

func TestIDsWithoutEntriesAreForgotten(t *testing.T) {
	t.Parallel()
	onEach(t, 1000, func(r rig) {
		t := r.t
		r.push(t, entries(1, 6)...)
		do(t, r.shell, "DEL", r.key("ready")) // an eviction, or a hand
		r.wantHas(t, "[true true]", 1, 6)
		if _, err := r.queue.Mend(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.wantHas(t, "[false false]", 1, 6)
		r.push(t, entries(1, 6)...)
		r.wantDepths(t, 6, 0, 0)
	})
}

func TestForeignEntriesBreakNothing(t *testing.T) {
	t.Parallel()
	onEach(t, 1000, func(r rig) {
		t := r.t
		junk := []string{"", "null", "[]", "{}", `{"v":1}xx`, `{"v":99}`, strings.Repeat("a", 1<<20)}
		for _, j := range junk {
			do(t, r.shell, "RPUSH", r.key("ready"), j)
		}
		r.push(t, entry(1))
		c := r.claim(t, 100, long)
		wantItems(t, c, append(junk, `{"id":1}`)...)
		r.finish(t, c, replay.Finished{Done: []int64{1}, Keep: []int{0, 5}})
		wantItems(t, r.claim(t, 100, long), "", `{"v":99}`)
	})
}

func TestWrongTypeOfKeyIsAnErrorAndNotAnEmptyQueue(t *testing.T) {
	t.Parallel()
	onEach(t, 1000, func(r rig) {
		t := r.t
		do(t, r.shell, "SET", r.key("ready"), "x")
		if _, err := r.queue.Claim(t.Context(), "w1", 1, anySize, long); err == nil {
			t.Error("claim found nothing wrong")
		}
		if err := r.queue.Push(t.Context(), entries(1, 1)); err == nil {
			t.Error("push found nothing wrong")
		}
		r.wantHas(t, "[false]", 1)
	})
}
