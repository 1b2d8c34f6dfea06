package consumer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"spillway/order"
)

// testLine is a line and what a test needs to say about it.
type testLine struct {
	*Line[string]
	t   *testing.T
	now time.Time
}

func newTestLine(t *testing.T, o Ordering, tenants int) *testLine {
	t.Helper()
	return &testLine{Line: NewLine[string](o, tenants), t: t, now: epoch}
}

func (l *testLine) add(partition int32, offset int64, key, tenant string) {
	l.Push(&Entry[string]{
		Value: fmt.Sprintf("%d/%d", partition, offset), Partition: partition, Offset: offset, Key: []byte(key), Tenant: tenant,
	})
}

// pop takes what is next, or returns nil.
func (l *testLine) pop() *Entry[string] {
	if e, _ := l.Peek(l.now); e != nil {
		return l.Take()
	}
	return nil
}

// pops takes n and returns their names.
func (l *testLine) pops(n int) []string {
	var got []string
	for range n {
		e := l.pop()
		if e == nil {
			return append(got, "nothing")
		}
		got = append(got, e.Value)
	}
	return got
}

func (l *testLine) want(got []string, want ...string) {
	l.t.Helper()
	if !slices.Equal(got, want) {
		l.t.Errorf("got %v, want %v", got, want)
	}
}

func TestLineServesPartitionsInTurnAndTheOldestOffsetFirst(t *testing.T) {
	t.Parallel()
	l := newTestLine(t, Unordered, 1)
	for _, o := range []int64{3, 1, 2} {
		l.add(0, o, "k", "")
	}
	l.add(1, 7, "k", "")
	l.add(2, 9, "k", "")
	l.want(l.pops(6), "0/1", "1/7", "2/9", "0/2", "0/3", "nothing")
}

func TestLineServesTenantsInTurn(t *testing.T) {
	t.Parallel()
	l := newTestLine(t, Unordered, 10)
	for o := range int64(10) {
		l.add(int32(o%2), o, "", "flood")
	}
	l.add(0, 100, "", "a")
	l.add(0, 101, "", "b")
	l.want(l.pops(5), "0/0", "0/100", "0/101", "1/1", "0/2")
}

func TestLineGivesTenantsBeyondTheBoundOneTurnTogether(t *testing.T) {
	t.Parallel()
	l := newTestLine(t, Unordered, 2)
	for i, tenant := range []string{"a", "b", "c", "d"} {
		l.add(0, int64(10*i), "", tenant)
		l.add(0, int64(10*i+1), "", tenant)
	}
	l.want(l.pops(8), "0/0", "0/10", "0/20", "0/1", "0/11", "0/21", "0/30", "0/31")
}

func TestLineGivesMoreTenantsATurnOfTheirOwnWhenTheBoundGrows(t *testing.T) {
	t.Parallel()
	l := newTestLine(t, Unordered, 1)
	add := func(from int64) {
		for i, tenant := range []string{"a", "b", "c"} {
			l.add(0, from+int64(10*i), "", tenant)
			l.add(0, from+int64(10*i+1), "", tenant)
		}
	}
	add(0)
	l.want(l.pops(7), "0/0", "0/10", "0/1", "0/11", "0/20", "0/21", "nothing")
	l.SetTenants(3)
	add(100)
	l.want(l.pops(7), "0/100", "0/110", "0/120", "0/101", "0/111", "0/121", "nothing")
	l.SetTenants(1)
	add(200)
	l.want(l.pops(7), "0/200", "0/210", "0/201", "0/211", "0/220", "0/221", "nothing")
}

func TestLinePassesOverATenantAtItsRate(t *testing.T) {
	t.Parallel()
	l := newTestLine(t, Unordered, 10)
	l.add(0, 1, "", "slow")
	l.add(0, 2, "", "fast")
	if e, _ := l.Peek(l.now); e.Tenant != "slow" {
		t.Fatalf("first is %s", e.Tenant)
	}
	back := l.now.Add(time.Second)
	l.Rest(back)
	l.add(0, 3, "", "slow")
	l.want(l.pops(2), "0/2", "nothing")
	if _, until := l.Peek(l.now); !until.Equal(back) {
		t.Errorf("to look again at %s, want %s", until, back)
	}
	l.now = back
	l.want(l.pops(3), "0/1", "0/3", "nothing")
}

func TestLineKeepsTurnsWhileItPausesForAll(t *testing.T) {
	t.Parallel()
	l := newTestLine(t, Unordered, 10)
	l.add(0, 1, "", "a")
	l.add(0, 2, "", "b")
	l.add(0, 3, "", "a")
	l.want(l.pops(1), "0/1")
	back := l.now.Add(time.Second)
	l.Pause(back)
	l.add(0, 4, "", "c")
	l.want(l.pops(1), "nothing")
	if _, until := l.Peek(l.now); !until.Equal(back) || l.Ahead() != 3 {
		t.Errorf("to look again at %s, with %d ahead: want %s, and all three", until, l.Ahead(), back)
	}
	l.now = back
	l.want(l.pops(4), "0/2", "0/3", "0/4", "nothing")
}

func TestLineRunsAKeysOrdersOneAtATime(t *testing.T) {
	t.Parallel()
	l := newTestLine(t, ByKey, 1)
	l.add(0, 1, "a", "")
	l.add(0, 2, "a", "")
	l.add(0, 3, "b", "")
	l.add(1, 4, "a", "") // another partition, another chain
	first := l.pop()
	l.want([]string{first.Value}, "0/1")
	l.want(l.pops(3), "1/4", "0/3", "nothing")
	if l.Len() != 1 || l.Ready() != 0 {
		t.Errorf("%d wait, %d for a permit: want one behind its key", l.Len(), l.Ready())
	}
	l.Return(first, l.now.Add(time.Second))
	l.want(l.pops(1), "nothing")
	l.now = l.now.Add(time.Second)
	l.want(l.pops(2), "0/1", "nothing") // what was put back still goes before the next of its key
	if next := l.Done(first); next == nil || next.Value != "0/2" {
		t.Errorf("next of the key: %v", next)
	}
	if l.Done(first) != nil {
		t.Error("done twice is once")
	}
	l.want(l.pops(2), "0/2", "nothing")
}

func TestLineTakesNullForNoKeyAndEmptyForOne(t *testing.T) {
	t.Parallel()
	l := NewLine[string](ByKey, 1)
	for i, key := range [][]byte{nil, nil, {}, {}} {
		if ready := l.Push(&Entry[string]{Offset: int64(i), Key: key}); ready != (i < 3) {
			t.Errorf("record %d with key %#v: ready %t", i, key, ready)
		}
	}
}

func TestLineOccupiedChainWaitsUntilItIsVacated(t *testing.T) {
	t.Parallel()
	l := newTestLine(t, ByKey, 1)
	l.Occupy(0, []byte("a"))
	l.add(0, 1, "a", "")
	l.want(l.pops(1), "nothing")
	if e := l.Vacate(0, []byte("a")); e == nil {
		t.Error("nothing became ready")
	}
	l.want(l.pops(2), "0/1", "nothing")
}

// naiveLine is the rules of a Line, written so that they can be seen to be right.
type naiveLine struct {
	ordering Ordering
	waiting  []*Entry[string] // as they came
	running  map[chainID]*Entry[string]
}

// may lists what may run now, apart from turns.
func (n *naiveLine) may(now time.Time) (es []*Entry[string]) {
	seen := map[chainID]bool{}
	for _, e := range n.waiting {
		id, chained := n.ordering.chainOf(e.Partition, e.Key)
		if chained && (seen[id] || n.running[id] != nil) {
			continue
		}
		seen[id] = chained
		if !e.notBefore.After(now) {
			es = append(es, e)
		}
	}
	return es
}

// TestLineKeepsItsRules drives lines at random beside the naive one: nothing is lost or given out twice, orders of a chain
// run one at a time in the order of their offsets, something runs whenever something may, and nobody is passed over by more
// than a round of the others.
func TestLineKeepsItsRules(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 7))
		o := []Ordering{Unordered, ByKey, ByPartition}[rng.IntN(3)]
		l, n := newTestLine(t, o, 1+rng.IntN(4)), &naiveLine{ordering: o, running: map[chainID]*Entry[string]{}}
		partitions, keys, tenants := 1+rng.IntN(5), 1+rng.IntN(6), 1+rng.IntN(5)
		offsets := make([]int64, partitions)
		last := map[chainID]int64{}
		var running []*Entry[string]
		pushed, taken := 0, 0
		for range 600 {
			l.now = l.now.Add(time.Duration(rng.IntN(3)) * time.Millisecond)
			switch rng.IntN(6) {
			case 0, 1:
				p := rng.IntN(partitions)
				offsets[p]++
				e := &Entry[string]{Partition: int32(p), Offset: offsets[p], Tenant: fmt.Sprint(rng.IntN(tenants))}
				if k := rng.IntN(keys + 1); k < keys {
					e.Key = fmt.Append(nil, k)
				}
				l.Push(e)
				n.waiting = append(n.waiting, e)
				pushed++
			case 2, 3:
				may := n.may(l.now)
				e := l.pop()
				if (e == nil) != (len(may) == 0) || e != nil && !slices.Contains(may, e) {
					t.Fatalf("seed %d: took %+v, and %d may run", seed, e, len(may))
				}
				if e == nil {
					break
				}
				n.waiting = slices.DeleteFunc(n.waiting, func(w *Entry[string]) bool { return w == e })
				running = append(running, e)
				if id, ok := o.chainOf(e.Partition, e.Key); ok {
					n.running[id] = e
					if last[id] > e.Offset {
						t.Fatalf("seed %d: offset %d of %v after %d", seed, e.Offset, id, last[id])
					}
					last[id] = e.Offset
				}
				taken++
			case 4, 5:
				if len(running) == 0 {
					break
				}
				i := rng.IntN(len(running))
				e := running[i]
				running = slices.Delete(running, i, i+1)
				id, _ := o.chainOf(e.Partition, e.Key)
				delete(n.running, id)
				if rng.IntN(4) > 0 {
					l.Done(e)
					break
				}
				var until time.Time
				if rng.IntN(2) == 0 {
					until = l.now.Add(time.Duration(rng.IntN(20)) * time.Millisecond)
				}
				l.Return(e, until)
				n.waiting = slices.Insert(n.waiting, 0, e) // before all of its chain
				taken--
			}
			if l.Len() != len(n.waiting) {
				t.Fatalf("seed %d: %d wait, want %d", seed, l.Len(), len(n.waiting))
			}
		}
		if left := len(l.Clear()); left != pushed-taken || l.Len() != 0 {
			t.Fatalf("seed %d: %d pushed, %d taken, %d left over", seed, pushed, taken, left)
		}
	}
}

func TestLineStarvesNobody(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	l := newTestLine(t, Unordered, 50)
	const tenants, partitions = 10, 8
	offset := int64(0)
	passed := map[string]int{} // how often each was passed over since its last turn, with something waiting
	waiting := map[string]int{}
	for range 20_000 {
		for range 1 + rng.IntN(2) { // more comes than goes
			tenant := "flood"
			if rng.IntN(4) == 0 {
				tenant = fmt.Sprint(rng.IntN(tenants - 1))
			}
			offset++
			l.add(rng.Int32N(partitions), offset, "", tenant)
			waiting[tenant]++
		}
		e := l.pop()
		waiting[e.Tenant]--
		passed[e.Tenant] = 0
		for tenant, n := range waiting {
			if n == 0 {
				passed[tenant] = 0
			} else if passed[tenant]++; passed[tenant] > tenants {
				t.Fatalf("%s was passed over %d times while %d of its orders waited", tenant, passed[tenant], n)
			}
		}
	}
}

func BenchmarkLine(b *testing.B) {
	for _, o := range []Ordering{Unordered, ByKey} {
		b.Run(o.String(), func(b *testing.B) {
			l := NewLine[int](o, 10)
			es := make([]Entry[int], 2000)
			for i := range es {
				es[i] = Entry[int]{Partition: int32(i % 12), Offset: int64(i), Key: fmt.Append(nil, i%1000)}
				l.Push(&es[i])
			}
			offset := int64(len(es))
			b.ReportAllocs()
			for b.Loop() {
				e, _ := l.Peek(time.Time{})
				l.Take()
				l.Done(e)
				offset++
				e.Offset = offset
				l.Push(e)
			}
		})
	}
}

func TestLotsLetInAFewOfAChainAndTheRestInTheirOrder(t *testing.T) {
	t.Parallel()
	s := newLots(ByKey)
	at := func(offset int64, key string) *record {
		return &record{message: order.Message{Partition: 1, Offset: offset, Key: []byte(key)}}
	}
	for o := range int64(20) {
		if in := s.enter(at(o, "hot")); in != (o < mostOfChain) {
			t.Fatalf("offset %d: in %t", o, in)
		}
	}
	if !s.enter(at(100, "cold")) || !s.enter(&record{message: order.Message{Partition: 1, Offset: 101}}) || !s.enter(&record{message: order.Message{Partition: 2, Key: []byte("hot")}}) {
		t.Error("another key, none and another partition wait for nobody")
	}
	for want := int64(mostOfChain); want < 20; want++ {
		next, ok := s.leave(1, []byte("hot"))
		if !ok || next.message.Offset != want {
			t.Fatalf("next is %d, %t, want %d", next.message.Offset, ok, want)
		}
	}
	if s.parked != 0 {
		t.Errorf("%d parked", s.parked)
	}
	for range mostOfChain {
		if _, ok := s.leave(1, []byte("hot")); ok {
			t.Error("something was parked still")
		}
	}
	s.leave(1, []byte("cold"))
	s.leave(1, nil)
	s.leave(2, []byte("hot"))
	if len(s.chains) != 0 {
		t.Errorf("%d chains are remembered of which nothing is left", len(s.chains))
	}
	for o := range int64(20) {
		s.enter(at(o, "again"))
	}
	if all := s.clear(); len(all) != 20-mostOfChain || s.parked != 0 || len(s.chains) != 0 {
		t.Errorf("cleared %d, %d parked, %d chains", len(all), s.parked, len(s.chains))
	}
}
