package kafka

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"spillway/consumer"
	"spillway/internal/testkit"
)

func TestNewPartitionsAreReadFromTheirBeginning(t *testing.T) {
	t.Parallel()
	for _, start := range []Start{Earliest, Latest} {
		broker := testkit.Shared(t)
		topic := broker.Topic(t, 2, nil)
		registry := prometheus.NewRegistry()
		config := Config{
			Brokers: []string{broker.Addr}, Topic: topic, Group: testkit.Prefix(t) + "w",
			Start: start, WatchInterval: time.Second,
		}
		second := config
		config.Registerer = registry
		w := startWorker(t, config)
		until(t, "two partitions", func() bool { return w.owned() == 2 })
		// A second member, so that the one to notice first may be a follower.
		other := startWorker(t, second)
		until(t, "a partition each", func() bool { return w.owned() == 1 && other.owned() == 1 })

		broker.GrowTopic(t, topic, 4)
		until(t, "four partitions", func() bool { return len(broker.EndOffsets(t, topic)) == 4 })
		broker.ProduceTo(t, topic, 2, &kgo.Record{Value: []byte("T-20")})
		broker.ProduceTo(t, topic, 3, &kgo.Record{Value: []byte("T-30")})
		until(t, "both records", func() bool { return w.count()+other.count() >= 2 })
		if got := slices.Sorted(slices.Values(slices.Concat(w.values(), other.values()))); !slices.Equal(got, []string{"T-20", "T-30"}) {
			t.Errorf("start %v: records are %q", start, got)
		}
		until(t, "two partitions each", func() bool { return w.owned() == 2 && other.owned() == 2 })
		other.end(t)
		until(t, "all four partitions", func() bool {
			return metric(t, registry, "spillway_kafka_assigned_partitions") == 4
		})
		w.end(t)
	}
}

func TestPausedWorkerSendsNoFetchAndKeepsItsGeneration(t *testing.T) {
	t.Parallel()
	broker := testkit.Shared(t)
	topic := broker.Topic(t, 2, nil)
	registry := prometheus.NewRegistry()
	w := startWorker(t, Config{
		Brokers: []string{broker.Addr}, Topic: topic, Group: testkit.Prefix(t) + "w", Registerer: registry,
		SessionTimeout: 2 * time.Second, HeartbeatInterval: 500 * time.Millisecond, MaxWait: 100 * time.Millisecond,
	})
	broker.Produce(t, topic, records(0, 20)...)
	until(t, "20 records", func() bool { return w.count() == 20 })
	s, feed := w.now()
	feed.pause(true, 0, 1)
	broker.Produce(t, topic, records(20, 20)...)
	fetches := func() float64 { return metric(t, registry, "spillway_kafka_fetches_total") }
	until(t, "the last request to come back", func() bool {
		feed.mu.Lock()
		defer feed.mu.Unlock()
		return feed.given == feed.back
	})
	paused, before, read := time.Now(), fetches(), w.count()
	until(t, "three session timeouts", func() bool { return time.Since(paused) > 3*2*time.Second })
	if n := fetches() - before; n != 0 {
		t.Errorf("%v fetches were sent while everything was paused", n)
	}
	if w.count() != read {
		t.Errorf("%d records came while everything was paused", w.count()-read)
	}
	feed.pause(false, 0)
	until(t, "partition 0 to flow again", func() bool { return feed.positions()[0] == broker.EndOffsets(t, topic)[0] })
	feed.pause(false, 1)
	until(t, "all 40 records", func() bool { return w.count() == 40 })
	if again, _ := w.now(); again.Generation() != s.Generation() || w.sessions != 1 {
		t.Errorf("the member lost its generation: %d, then %d", s.Generation(), again.Generation())
	}
}

func TestDrainLongerThanTheSessionTimeoutKeepsTheMember(t *testing.T) {
	t.Parallel()
	broker := testkit.Shared(t)
	topic := broker.Topic(t, 2, nil)
	broker.ProduceTo(t, topic, 0, records(0, 50)...)
	broker.ProduceTo(t, topic, 1, records(50, 50)...)
	config := Config{
		Brokers: []string{broker.Addr}, Topic: topic, Group: testkit.Prefix(t) + "w",
		SessionTimeout: 1500 * time.Millisecond, HeartbeatInterval: 300 * time.Millisecond,
	}
	const drain = 4 * time.Second
	var once sync.Once
	first := startWorker(t, config, func(w *worker) {
		w.drain = func(ctx context.Context, _ consumer.Session) {
			if !errors.Is(context.Cause(ctx), errRebalance) {
				return
			}
			once.Do(func() { pause(context.WithoutCancel(ctx), drain) })
		}
	})
	until(t, "100 records", func() bool { return first.count() == 100 })
	second := startWorker(t, config)
	until(t, "a partition each", func() bool { return first.owned() == 1 && second.owned() == 1 })
	if err := first.lastCommit(); err != nil {
		t.Fatalf("the commit after the drain: %v", err)
	}
	if n := second.count() + first.count(); n != 100 {
		t.Errorf("%d records were read, want each of the 100 once", n)
	}
	if committed := broker.CommittedOffsets(t, config.Group, topic); committed[0] != 50 || committed[1] != 50 {
		t.Errorf("committed %v", committed)
	}
}

func TestCommitOfAnEvictedMemberIsFenced(t *testing.T) {
	t.Parallel()
	broker := testkit.Shared(t)
	topic := broker.Topic(t, 1, nil)
	broker.ProduceTo(t, topic, 0, records(0, 10)...)
	net1 := &killableNet{}
	config := Config{
		Brokers: []string{broker.Addr}, Topic: topic, Group: testkit.Prefix(t) + "w",
		SessionTimeout: 1500 * time.Millisecond, HeartbeatInterval: 300 * time.Millisecond,
	}
	survivor := config
	config.Dial = net1.dial
	w := startWorker(t, config, func(w *worker) { w.commit = false })
	until(t, "ten records", func() bool { return w.count() == 10 })
	s, _ := w.now()
	if err := s.Commit(t.Context(), map[int32]int64{0: 4}); err != nil {
		t.Fatal(err)
	}
	net1.kill()

	other := startWorker(t, survivor)
	until(t, "the dead member's partition", func() bool { return other.count() == 6 })
	if got := other.values(); got[0] != "v4" {
		t.Errorf("the new owner begins at %s", got[0])
	}
	until(t, "the new owner's commit", func() bool {
		o, feed := other.now()
		return o.Commit(t.Context(), feed.positions()) == nil
	})
	net1.revive()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Commit(ctx, map[int32]int64{0: 7}); !errors.Is(err, consumer.ErrFenced) {
		t.Errorf("the late commit: %v, want %v", err, consumer.ErrFenced)
	}
	if at := broker.CommittedOffsets(t, config.Group, topic)[0]; at != 10 {
		t.Errorf("committed %d, want 10", at)
	}
}

// killableNet is a network that goes away as a process that is killed does: its connections close and nothing is dialed.
type killableNet struct {
	mu   sync.Mutex
	dead bool
	open []net.Conn
}

func (n *killableNet) dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dead {
		return nil, errors.New("the process is dead")
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		n.open = append(n.open, conn)
	}
	return conn, err
}

func (n *killableNet) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dead = true
	for _, c := range n.open {
		_ = c.Close()
	}
}

func (n *killableNet) revive() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dead = false
}

func TestMembersExchangePartitionsWithoutLossOrRepeat(t *testing.T) {
	t.Parallel()
	broker := testkit.Shared(t)
	topic := broker.Topic(t, 6, nil)
	config := Config{Brokers: []string{broker.Addr}, Topic: topic, Group: testkit.Prefix(t) + "w", Balance: RoundRobin}
	total := 0
	produce := func(n int) {
		broker.Produce(t, topic, records(total, n)...)
		total += n
	}
	produce(300)
	a := startWorker(t, config)
	until(t, "300 records", func() bool { return a.count() == total })
	b := startWorker(t, config)
	until(t, "three partitions each", func() bool { return a.owned() == 3 && b.owned() == 3 })
	produce(300)
	until(t, "600 records", func() bool { return a.count()+b.count() == total })
	a.end(t)
	until(t, "all six partitions", func() bool { return b.owned() == 6 })
	produce(300)
	until(t, "900 records", func() bool { return a.count()+b.count() == total })
	b.end(t)
	seen := map[string]int{}
	for _, v := range slices.Concat(a.values(), b.values()) {
		seen[v]++
	}
	if len(seen) != total || slices.Max(slices.Collect(maps.Values(seen))) != 1 {
		t.Errorf("%d different records of %d came, one of them %d times", len(seen), total, slices.Max(slices.Collect(maps.Values(seen))))
	}
	if lag := broker.Lag(t, config.Group, topic); lag != 0 {
		t.Errorf("lag is %d", lag)
	}
}

func TestCommitNeverMovesBackAndRefusesForeignPartitions(t *testing.T) {
	t.Parallel()
	broker := testkit.Shared(t)
	topic := broker.Topic(t, 1, nil)
	broker.ProduceTo(t, topic, 0, records(0, 10)...)
	w := startWorker(t, Config{Brokers: []string{broker.Addr}, Topic: topic, Group: testkit.Prefix(t) + "w"},
		func(w *worker) { w.commit = false })
	until(t, "ten records", func() bool { return w.count() == 10 })
	s, _ := w.now()
	var all sync.WaitGroup
	for _, offset := range []int64{3, 9, 1, 7, 2, 8} {
		all.Go(func() {
			if err := s.Commit(t.Context(), map[int32]int64{0: offset}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if at := broker.CommittedOffsets(t, w.group.config.Group, topic)[0]; at != 9 {
		t.Errorf("committed %d, want 9", at)
	}
	if err := s.Commit(t.Context(), map[int32]int64{5: 1}); err == nil {
		t.Error("a partition that is not ours was committed")
	}
}

func TestLeavingDoesNotWaitForOthersToDrain(t *testing.T) {
	t.Parallel()
	broker := testkit.Shared(t)
	topic := broker.Topic(t, 2, nil)
	config := Config{Brokers: []string{broker.Addr}, Topic: topic, Group: testkit.Prefix(t) + "w"}
	release := make(chan struct{})
	var once sync.Once
	slow := startWorker(t, config, func(w *worker) {
		w.drain = func(ctx context.Context, _ consumer.Session) {
			if errors.Is(context.Cause(ctx), errRebalance) {
				once.Do(func() { <-release })
			}
		}
	})
	defer close(release)
	until(t, "two partitions", func() bool { return slow.owned() == 2 })
	quick := startWorker(t, config) // its join waits until the slow one has drained
	until(t, "the rebalance", func() bool { return len(broker.Group(t, config.Group).Members) == 2 })
	began := time.Now()
	quick.end(t)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("leaving took %v", took)
	}
}

func TestBrokerRestartIsWaitedOut(t *testing.T) {
	t.Parallel()
	testkit.Kafka(t)
	server := testkit.StartKafka(t)
	broker := testkit.Dial(t, server.Addr())
	topic := broker.Topic(t, 2, nil)
	config := Config{
		Brokers: []string{broker.Addr}, Topic: topic, Group: testkit.Prefix(t) + "w",
		SessionTimeout: 3 * time.Second, HeartbeatInterval: 500 * time.Millisecond,
	}
	broker.Produce(t, topic, records(0, 50)...)
	w := startWorker(t, config)
	until(t, "50 records", func() bool { return w.count() == 50 })
	s, feed := w.now()
	if err := s.Commit(t.Context(), feed.positions()); err != nil {
		t.Fatal(err)
	}
	for round, end := range []func(){server.Stop, server.Kill} {
		end()
		if err := w.group.Check(t.Context()); err == nil {
			t.Error("Check is content without a broker")
		}
		server.Start()
		until(t, "the check", func() bool { return w.group.Check(t.Context()) == nil })
		broker.Produce(t, topic, records(50*(round+1), 50)...)
		until(t, "50 more records", func() bool {
			seen := map[string]bool{}
			for _, v := range w.values() {
				seen[v] = true
			}
			return len(seen) == 50*(round+2)
		})
	}
	w.end(t)
	if lag := broker.Lag(t, config.Group, topic); lag != 0 {
		t.Errorf("lag is %d", lag)
	}
}
