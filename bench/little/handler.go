package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"spillway/bench/rig"
	"spillway/order"
)

// sleeper is a downstream that takes its time and confirms.
type sleeper struct {
	latency time.Duration
	waits   *rig.Waits
	keyed   *turns // where the order of a key's records is to be seen

	calls, flying, most atomic.Int64
	took                atomic.Int64 // ns, of all calls
}

// Submit implements order.Handler.
func (s *sleeper) Submit(_ context.Context, o *order.Order) order.Answer {
	s.calls.Add(1)
	for now, most := s.flying.Add(1), s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
	}
	if s.keyed != nil {
		s.keyed.begin(&o.Message)
	}
	began := time.Now()
	s.waits.Wait(s.latency)
	s.took.Add(int64(time.Since(began)))
	if s.keyed != nil {
		s.keyed.end(&o.Message)
	}
	s.flying.Add(-1)
	return order.Answer{Outcome: order.OutcomeSucceeded, Reason: order.Confirmed, Sent: true, Detail: "200"}
}

// Lookup implements order.Handler.
func (s *sleeper) Lookup(context.Context, *order.Order) order.Finding {
	return order.Finding{Verdict: order.VerdictSucceeded}
}

// turns watches that the records of a key come one at a time, in their order.
type turns struct {
	mu      sync.Mutex
	last    [keys]int64
	busy    [keys]bool
	mistake string // the first one
}

func newTurns() *turns {
	t := &turns{}
	for i := range t.last {
		t.last[i] = -1
	}
	return t
}

func (t *turns) begin(m *order.Message) {
	k := keyOf(m.Key)
	t.mu.Lock()
	defer t.mu.Unlock()
	if (t.busy[k] || m.Offset <= t.last[k]) && t.mistake == "" {
		t.mistake = fmt.Sprintf("key %s: offset %d after %d, one under way: %v", m.Key, m.Offset, t.last[k], t.busy[k])
	}
	t.busy[k], t.last[k] = true, m.Offset
}

func (t *turns) end(m *order.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy[keyOf(m.Key)] = false
}

func (t *turns) seen() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mistake
}

// newKeyed makes records whose keys are drawn at random, the same in each run. A key's partition is always the same.
func newKeyed() func(i int) *kgo.Record {
	drawn := rand.New(rand.NewPCG(1, 2))
	return func(i int) *kgo.Record {
		k := drawn.IntN(keys)
		return &kgo.Record{
			Partition: int32(k % partitions), Key: []byte("K-" + strconv.Itoa(k)), Value: rig.Value(i, valueBytes),
			Headers: []kgo.RecordHeader{{Key: "order-no", Value: []byte(rig.Number(i))}},
		}
	}
}

// keyOf is the number of a key that newKeyed made.
func keyOf(key []byte) int {
	k, err := strconv.Atoi(strings.TrimPrefix(string(key), "K-"))
	if err != nil {
		panic(err) // a record that nobody produced
	}
	return k
}
