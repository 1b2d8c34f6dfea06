package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"spillway/order"
	"spillway/replay"
)

// Queue is one route's replay queue. It implements replay.Queue and may be used concurrently, by any number of workers.
// All its errors may pass by themselves: a server away, READONLY after a failover, OOM.
type Queue struct {
	client   *Client
	capacity atomic.Int64

	ready, delayed, lease, ids, probe string // keys
	claim                             string // what the keys of claims start with

	claims atomic.Int64 // made by this process: the last part of their keys

	mu     sync.Mutex // guards cursor
	cursor uint64     // where the search for lost claims goes on
}

var _ replay.Queue = (*Queue)(nil)

// Queue returns the replay queue of a route, which holds at most capacity entries: ready, delayed and claimed together.
func (c *Client) Queue(route string, capacity int) *Queue {
	tag := "{" + c.prefix + ":" + strings.NewReplacer("{", "(", "}", ")").Replace(route) + "}"
	q := &Queue{
		client: c,
		ready:  tag + ":ready", delayed: tag + ":delayed", lease: tag + ":lease", ids: tag + ":ids", probe: tag + ":probe",
		claim: tag + ":claim:",
	}
	q.SetCapacity(capacity)
	return q
}

// SetCapacity changes how many entries the queue holds at most, from the next push on. More that are there stay.
func (q *Queue) SetCapacity(n int) { q.capacity.Store(int64(n)) }

// Capacity is how many entries the queue holds at most.
func (q *Queue) Capacity() int { return int(q.capacity.Load()) }

// Push implements replay.Backlog. Under the bound it takes all entries, else none of them.
func (q *Queue) Push(ctx context.Context, entries []replay.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	if len(entries) > replay.MaxPush {
		return fmt.Errorf("push of %d entries: at most %d", len(entries), replay.MaxPush)
	}
	args := make([]any, 0, 1+3*len(entries))
	args = append(args, q.Capacity())
	args = appendEntries(args, entries)
	n, err := q.client.run(ctx, "push", []string{q.ready, q.delayed, q.ids}, args...).Int()
	if err != nil {
		return fmt.Errorf("redis at %s: push: %w", q.client.addr, err)
	}
	if n < 0 {
		return fmt.Errorf("%w: bound %d", order.ErrQueueFull, q.Capacity())
	}
	return nil
}

// Has implements replay.Backlog.
func (q *Queue) Has(ctx context.Context, ids []int64) ([]bool, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	answers, err := q.client.run(ctx, "has", []string{q.ids}, args...).Int64Slice()
	if err != nil {
		return nil, fmt.Errorf("redis at %s: has: %w", q.client.addr, err)
	}
	if len(answers) != len(ids) {
		return nil, fmt.Errorf("redis has: %d answers, want %d", len(answers), len(ids))
	}
	has := make([]bool, len(ids))
	for i, a := range answers {
		has[i] = a == 1
	}
	return has, nil
}

// Depths implements replay.Backlog.
func (q *Queue) Depths(ctx context.Context) (replay.Depths, error) {
	n, err := q.client.run(ctx, "depths", []string{q.ready, q.delayed, q.ids, q.lease}).Int64Slice()
	if err != nil {
		return replay.Depths{}, fmt.Errorf("redis at %s: depths: %w", q.client.addr, err)
	}
	if len(n) != 4 {
		return replay.Depths{}, fmt.Errorf("redis depths: %d numbers, want 4", len(n))
	}
	return replay.Depths{
		Ready: int(n[0]), Delayed: int(n[1]), InFlight: int(n[2]),
		Oldest: max(0, time.Duration(n[3])*time.Millisecond),
	}, nil
}

// Probe implements replay.Backlog.
func (q *Queue) Probe(ctx context.Context) error {
	if err := q.client.db.Set(ctx, q.probe, "1", time.Minute).Err(); err != nil {
		return fmt.Errorf("redis at %s: write: %w", q.client.addr, err)
	}
	return nil
}

// Claim implements replay.Claims.
func (q *Queue) Claim(ctx context.Context, worker string, n, room int, lease time.Duration) (replay.Claim, error) {
	if n < 1 || n > replay.MaxClaim {
		return replay.Claim{}, fmt.Errorf("claim of %d entries: want 1 to %d", n, replay.MaxClaim)
	}
	key := q.claim + worker + ":" + strconv.FormatInt(q.claims.Add(1), 10)
	items, err := q.client.run(ctx, "claim", []string{q.ready, q.delayed, q.lease, key}, n, room, lease.Milliseconds()).StringSlice()
	if err != nil {
		return replay.Claim{}, fmt.Errorf("redis at %s: claim: %w", q.client.addr, err)
	}
	c := replay.Claim{Key: key, Items: make([][]byte, len(items))}
	for i, item := range items {
		c.Items[i] = []byte(item)
	}
	return c, nil
}

// Renew implements replay.Claims.
func (q *Queue) Renew(ctx context.Context, c replay.Claim, lease time.Duration) (bool, error) {
	held, err := q.client.run(ctx, "renew", []string{q.lease, c.Key}, lease.Milliseconds()).Bool()
	if err != nil {
		return false, fmt.Errorf("redis at %s: renew: %w", q.client.addr, err)
	}
	return held, nil
}

// Finish implements replay.Claims.
func (q *Queue) Finish(ctx context.Context, c replay.Claim, f replay.Finished) (bool, error) {
	if n := max(len(f.Done), len(f.Again), len(f.Keep)); n > replay.MaxClaim {
		return false, fmt.Errorf("finish with %d entries: at most %d", n, replay.MaxClaim)
	}
	args := make([]any, 0, 2+len(f.Done)+len(f.Keep)+3*len(f.Again))
	args = append(args, len(f.Done))
	for _, id := range f.Done {
		args = append(args, id)
	}
	args = append(args, len(f.Keep))
	for _, index := range f.Keep {
		args = append(args, index)
	}
	args = appendEntries(args, f.Again)
	held, err := q.client.run(ctx, "finish", []string{q.ready, q.delayed, q.ids, q.lease, c.Key}, args...).Bool()
	if err != nil {
		return false, fmt.Errorf("redis at %s: finish: %w", q.client.addr, err)
	}
	return held, nil
}

// Bounds of one call of Mend: it looks at up to mendPages × mendPage keys of the server, whoever's they are.
const (
	mendPages = 100
	mendPage  = 1000
)

// Mend implements replay.Claims: it searches the server for claims without a lease, from where it left off, and at the
// end of each search looks whether ids outnumber entries.
func (q *Queue) Mend(ctx context.Context) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	back := 0
	for range mendPages {
		keys, cursor, err := q.client.db.Scan(ctx, q.cursor, escapeGlob(q.claim)+"*", mendPage).Result()
		if err != nil {
			return back, fmt.Errorf("redis at %s: scan: %w", q.client.addr, err)
		}
		for _, key := range keys {
			n, err := q.client.run(ctx, "mend", []string{q.ready, q.lease, key}).Int()
			if err != nil {
				return back, fmt.Errorf("redis at %s: mend: %w", q.client.addr, err)
			}
			back += n
		}
		if q.cursor = cursor; cursor == 0 {
			if err := q.client.run(ctx, "forget", []string{q.ready, q.delayed, q.ids, q.lease}).Err(); err != nil {
				return back, fmt.Errorf("redis at %s: forget: %w", q.client.addr, err)
			}
			break
		}
	}
	return back, nil
}

// appendEntries adds what the scripts want of each entry. Delays are counted from now by this worker's clock, and added to
// the server's: the two need not agree.
func appendEntries(args []any, entries []replay.Entry) []any {
	now := time.Now()
	for _, e := range entries {
		delay := int64(0)
		if !e.NotBefore.IsZero() {
			delay = max(0, e.NotBefore.Sub(now).Milliseconds())
		}
		args = append(args, e.ID, delay, e.Data)
	}
	return args
}

// escapeGlob makes text match itself alone in a pattern.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}
