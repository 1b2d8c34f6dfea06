package kafka

import (
	"slices"
	"testing"
	"time"

	"spillway/internal/testkit"
)

// partitionsOf returns what the worker owns now.
func partitionsOf(w *worker) []int32 {
	s, _ := w.now()
	if s == nil {
		return nil
	}
	var ids []int32
	for _, p := range s.Assigned() {
		ids = append(ids, p.Partition)
	}
	return ids
}

// still counts the partitions of before that the worker owns now.
func still(w *worker, before []int32) int {
	n := 0
	for _, p := range partitionsOf(w) {
		if slices.Contains(before, p) {
			n++
		}
	}
	return n
}

func TestPartitionsStayWithTheirWorkersThroughJoinsAndLeaves(t *testing.T) {
	t.Parallel()
	cluster := fakeCluster(t, 1, 12)
	config := fakeConfig(cluster)
	a := startWorker(t, config)
	until(t, "all partitions", func() bool { return a.owned() == 12 })
	b := startWorker(t, config)
	until(t, "six each", func() bool { return a.owned() == 6 && b.owned() == 6 })
	beforeA, beforeB := partitionsOf(a), partitionsOf(b)

	c := startWorker(t, config)
	until(t, "four each", func() bool { return a.owned() == 4 && b.owned() == 4 && c.owned() == 4 })
	if still(a, beforeA) != 4 || still(b, beforeB) != 4 {
		t.Errorf("a has %v of %v, b %v of %v", partitionsOf(a), beforeA, partitionsOf(b), beforeB)
	}
	beforeA, beforeB = partitionsOf(a), partitionsOf(b)
	c.end(t)
	until(t, "six each", func() bool { return a.owned() == 6 && b.owned() == 6 })
	if still(a, beforeA) != 4 || still(b, beforeB) != 4 {
		t.Errorf("a has %v of %v, b %v of %v", partitionsOf(a), beforeA, partitionsOf(b), beforeB)
	}
	// The leader goes: who deals next knows what the others hold from their own word.
	beforeB = partitionsOf(b)
	a.end(t)
	until(t, "all partitions", func() bool { return b.owned() == 12 })
	if still(b, beforeB) != 6 {
		t.Errorf("b has %v of %v", partitionsOf(b), beforeB)
	}
}

// TestMembersOfAnOlderVersionAndOfThisOneShareAGroup is a rolling upgrade: while one member offers only the old
// strategy the group divides by that, and by the new one when it has gone.
func TestMembersOfAnOlderVersionAndOfThisOneShareAGroup(t *testing.T) {
	t.Parallel()
	broker := testkit.Shared(t)
	config := Config{
		Brokers: []string{broker.Addr}, Topic: broker.Topic(t, 9, nil), Group: testkit.Prefix(t) + "w",
		HeartbeatInterval: 200 * time.Millisecond,
	}
	old := config
	old.Balance = Range
	protocol := func() string {
		groups, err := broker.Admin().DescribeGroups(t.Context(), config.Group)
		if err != nil {
			t.Fatal(err)
		}
		return groups[config.Group].Protocol
	}

	a, b := startWorker(t, old), startWorker(t, old)
	until(t, "all partitions", func() bool { return a.owned()+b.owned() == 9 && a.owned() > 0 && b.owned() > 0 })
	c := startWorker(t, config)
	until(t, "three each", func() bool { return a.owned() == 3 && b.owned() == 3 && c.owned() == 3 })
	if got := protocol(); got != "range" {
		t.Errorf("with two old members of three the protocol is %q", got)
	}
	a.end(t)
	d := startWorker(t, config)
	until(t, "three each", func() bool { return b.owned() == 3 && c.owned() == 3 && d.owned() == 3 })
	if got := protocol(); got != "range" {
		t.Errorf("with an old member of three the protocol is %q", got)
	}
	b.end(t)
	until(t, "all partitions", func() bool { return c.owned()+d.owned() == 9 && c.owned() > 3 && d.owned() > 3 })
	if got := protocol(); got != stickyName {
		t.Errorf("with no old member the protocol is %q", got)
	}
	// A rollback: the old strategy again, and nobody is left out.
	e := startWorker(t, old)
	until(t, "three each", func() bool { return c.owned() == 3 && d.owned() == 3 && e.owned() == 3 })
}

// TestACutConnectionDoesNotMakeTheOthersDivideAnew: a follower that comes back within its session goes on in the same
// generation.
func TestACutConnectionDoesNotMakeTheOthersDivideAnew(t *testing.T) {
	t.Parallel()
	cluster := fakeCluster(t, 1, 6)
	config := fakeConfig(cluster)
	a := startWorker(t, config)
	until(t, "all partitions", func() bool { return a.owned() == 6 })
	cutting := &killableNet{}
	second := config
	second.Dial = cutting.dial
	b := startWorker(t, second)
	until(t, "three each", func() bool { return a.owned() == 3 && b.owned() == 3 })
	s, _ := a.now()
	before, _ := b.now()
	cutting.kill()
	cutting.revive()
	until(t, "the follower to come back", func() bool { now, _ := b.now(); return now != before })
	again, _ := b.now()
	if again.Generation() != s.Generation() || !slices.Equal(again.Assigned(), before.Assigned()) {
		t.Errorf("it comes back in generation %d with %v, was in %d with %v",
			again.Generation(), again.Assigned(), s.Generation(), before.Assigned())
	}
	if !pause(t.Context(), 5*config.HeartbeatInterval) {
		return
	}
	if now, _ := a.now(); now != s {
		t.Errorf("the other member began a new generation %d", now.Generation())
	}
}
