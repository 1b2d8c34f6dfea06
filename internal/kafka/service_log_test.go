package kafka

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"spillway/consumer"
	"spillway/internal/testkit"
)

// compactedTopic writes T-1, many records of one key, then T-2 and T-3, and waits until the cleaner has made the hole.
func compactedTopic(t *testing.T, broker *testkit.Broker, many int, tail bool) string {
	t.Helper()
	topic := broker.Topic(t, 1, map[string]string{
		"cleanup.policy": "compact", "segment.ms": "500", "min.cleanable.dirty.ratio": "0.01",
		"min.compaction.lag.ms": "0", "max.compaction.lag.ms": "1", "delete.retention.ms": "1",
	})
	one := func(key string) *kgo.Record { return &kgo.Record{Key: []byte(key), Value: []byte(key)} }
	broker.ProduceTo(t, topic, 0, one("T-1"))
	filler := func() []*kgo.Record {
		all := make([]*kgo.Record, many)
		for i := range all {
			all[i] = &kgo.Record{Key: []byte("x"), Value: fmt.Appendf(nil, "%020d", i)}
		}
		return all
	}
	broker.ProduceTo(t, topic, 0, filler()...)
	broker.ProduceTo(t, topic, 0, one("T-2"), one("T-3"))
	if tail {
		// The hole is the last thing that is compacted away: more of the same key, then only the one record that makes
		// the log roll, of the same key too.
		broker.ProduceTo(t, topic, 0, filler()...)
	}
	end := broker.EndOffsets(t, topic)[0]
	// A record written after segment.ms rolls the segment, which makes the earlier one cleanable.
	until(t, "the cleaner makes a hole", func() bool {
		broker.ProduceTo(t, topic, 0, one("x"))
		return countRecords(t, broker, topic) < int(end)/10
	})
	return topic
}

// countRecords reads a partition to its end with another client and counts the records it holds.
func countRecords(t *testing.T, broker *testkit.Broker, topic string) int {
	t.Helper()
	end := broker.EndOffsets(t, topic)[0]
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	n := 0
	for last := int64(-1); last < end-1; {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) { n, last = n+1, r.Offset })
	}
	return n
}

func TestCompactionHolesAreStepped(t *testing.T) {
	t.Parallel()
	broker := testkit.Shared(t)
	for _, tail := range []bool{false, true} {
		topic := compactedTopic(t, broker, 30_000, tail)
		end := broker.EndOffsets(t, topic)[0]
		for name, start := range map[string]int64{"from the start": -1, "from inside the hole": 15_000} {
			group := testkit.Prefix(t) + strings.ReplaceAll(name, " ", "-")
			if start >= 0 {
				commitAs(t, broker, group, topic, map[int32]int64{0: start})
			}
			w := startWorker(t, Config{Brokers: []string{broker.Addr}, Topic: topic, Group: group})
			until(t, "the end of the log "+name, func() bool {
				_, feed := w.now()
				return feed != nil && feed.positions()[0] >= end
			})
			w.end(t)
			got := w.values()
			want := []string{"T-1", "T-2", "T-3"}
			if start >= 0 {
				want = want[1:]
			}
			for _, v := range want {
				if n := len(slices.DeleteFunc(slices.Clone(got), func(s string) bool { return s != v })); n != 1 {
					t.Errorf("%s, tail %v: %s came %d times", name, tail, v, n)
				}
			}
			if committed := broker.CommittedOffsets(t, group, topic)[0]; committed < end {
				t.Errorf("%s: committed %d, want at least %d", name, committed, end)
			}
			if gaps := w.gaps(); len(gaps) > 0 {
				t.Errorf("%s: a hole was reported as lost: %v", name, gaps)
			}
		}
	}
}

// commitAs commits offsets of a group that has no members.
func commitAs(t *testing.T, broker *testkit.Broker, group, topic string, offsets map[int32]int64) {
	t.Helper()
	client, err := newClient(new(mustDefaults(t, Config{Brokers: []string{broker.Addr}, Topic: topic, Group: group})))
	if err != nil {
		t.Fatal(err)
	}
	defer client.close()
	g := &Group{config: *client.config}
	g.metrics, err = newMetrics(nil, "test")
	if err != nil {
		t.Fatal(err)
	}
	s := &session{group: g, client: client, generation: -1, last: map[int32]int64{}, beyond: map[int32]int64{}}
	until(t, "a commit without members", func() bool { err = s.commitOnce(t.Context(), offsets); return err == nil })
}

func mustDefaults(t *testing.T, c Config) Config {
	t.Helper()
	c, err := c.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// metric reads one sample of a registry, summed over its labels.
func metric(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

func (l *logbook) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, line := range l.lines {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

func TestRecordsDeletedBeforeTheyWereReadAreReportedAndReadingGoesOn(t *testing.T) {
	t.Parallel()
	broker := testkit.Shared(t)
	topic := broker.Topic(t, 1, nil)
	group := testkit.Prefix(t) + "w"
	broker.ProduceTo(t, topic, 0, records(0, 1000)...)
	commitAs(t, broker, group, topic, map[int32]int64{0: 100})
	broker.DeleteRecords(t, topic, 0, 500)

	registry := prometheus.NewRegistry()
	w := startWorker(t, Config{Brokers: []string{broker.Addr}, Topic: topic, Group: group, Registerer: registry})
	until(t, "500 records", func() bool { return w.count() >= 500 })
	if got := w.values(); got[0] != "v500" || len(got) != 500 {
		t.Errorf("reading went on at %s with %d records", got[0], len(got))
	}
	if gaps := w.gaps(); len(gaps) != 1 || gaps[0].From != 100 || gaps[0].To != 500 {
		t.Errorf("gaps are %+v, want 100 to 500", gaps)
	}
	if lost := metric(t, registry, "spillway_kafka_records_lost_total"); lost != 400 {
		t.Errorf("records lost: %v, want 400", lost)
	}
	if n := w.log.count("ERROR kafka records were deleted"); n != 1 {
		t.Errorf("%d ERROR lines, want 1: %q", n, w.log.lines)
	}
}

func TestRecreatedTopicIsReadFromItsBeginning(t *testing.T) {
	t.Parallel()
	for _, pause := range []bool{false, true} {
		broker := testkit.Shared(t)
		topic := broker.Topic(t, 1, nil)
		group := testkit.Prefix(t) + "w"
		broker.ProduceTo(t, topic, 0, records(0, 900)...)
		registry := prometheus.NewRegistry()
		w := startWorker(t, Config{
			Brokers: []string{broker.Addr}, Topic: topic, Group: group, WatchInterval: 2 * time.Second, Registerer: registry,
		})
		until(t, "900 records", func() bool { return w.count() == 900 })
		s, feed := w.now()
		if err := s.Commit(t.Context(), feed.positions()); err != nil {
			t.Fatal(err)
		}
		if pause {
			feed.pause(true, 0) // nothing is fetched, so no error tells: the watcher must
		}
		broker.DeleteTopic(t, topic)
		if pause {
			until(t, "the alert", func() bool { return metric(t, registry, "spillway_kafka_topic_missing") == 1 })
		}
		until(t, "the topic again", func() bool {
			_, err := broker.Admin().CreateTopic(t.Context(), 1, 1, nil, topic)
			return err == nil
		})
		broker.ProduceTo(t, topic, 0, records(2000, 10)...)

		until(t, "the ten new records", func() bool { return w.count() >= 910 })
		if got := w.values()[900:]; got[0] != "v2000" || got[9] != "v2009" || len(got) != 10 {
			t.Errorf("pause %v: the new topic's records are %q", pause, got)
		}
		if n := w.log.count("ERROR"); n == 0 {
			t.Errorf("pause %v: nothing loud was said: %q", pause, w.log.lines)
		}
		w.end(t)
		if err := w.lastCommit(); err != nil {
			t.Errorf("pause %v: last commit: %v", pause, err)
		}
		if at := broker.CommittedOffsets(t, group, topic)[0]; at != 10 {
			t.Errorf("pause %v: committed %d, want 10", pause, at)
		}
	}
}

func TestPositionBeyondTheLogIsSetBackLoudly(t *testing.T) {
	t.Parallel()
	broker := testkit.Shared(t)
	topic := broker.Topic(t, 1, nil)
	group := testkit.Prefix(t) + "w"
	broker.ProduceTo(t, topic, 0, records(0, 10)...)
	commitAs(t, broker, group, topic, map[int32]int64{0: 900})
	w := startWorker(t, Config{Brokers: []string{broker.Addr}, Topic: topic, Group: group})
	until(t, "ten records", func() bool { return w.count() == 10 })
	if gaps := w.gaps(); len(gaps) != 1 || gaps[0].From != 900 || gaps[0].To != 0 {
		t.Errorf("gaps are %+v, want 900 to 0", gaps)
	}
	if w.log.count("ERROR kafka log ends before the position") != 1 {
		t.Errorf("nothing loud was said: %q", w.log.lines)
	}
	s, _ := w.now()
	if err := s.Commit(t.Context(), map[int32]int64{0: 900}); err != nil {
		t.Errorf("a late commit of before: %v", err)
	}
	if at := broker.CommittedOffsets(t, group, topic)[0]; at != 900 {
		t.Errorf("committed %d: nothing was to be committed yet", at)
	}
	w.end(t)
	if at := broker.CommittedOffsets(t, group, topic)[0]; at != 10 {
		t.Errorf("committed %d, want 10", at)
	}
}

func TestAbortedAndControlRecordsAreLeftOut(t *testing.T) {
	t.Parallel()
	broker := testkit.Shared(t)
	topic := broker.Topic(t, 1, nil)
	for _, commit := range []bool{true, false, true} {
		client, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr), kgo.TransactionalID(testkit.Prefix(t)+"p"),
			kgo.DefaultProduceTopic(topic))
		if err != nil {
			t.Fatal(err)
		}
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		value := fmt.Appendf(nil, "committed %v", commit)
		if err := client.ProduceSync(t.Context(), &kgo.Record{Value: value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := client.EndTransaction(t.Context(), kgo.TransactionEndTry(commit)); err != nil {
			t.Fatal(err)
		}
		client.Close()
	}
	end := broker.EndOffsets(t, topic)[0]
	for isolation, want := range map[Isolation][]string{
		ReadCommitted:   {"committed true", "committed true"},
		ReadUncommitted: {"committed true", "committed false", "committed true"},
	} {
		w := startWorker(t, Config{
			Brokers: []string{broker.Addr}, Topic: topic, Group: testkit.Prefix(t) + "w", Isolation: isolation,
		})
		until(t, "the end of the log", func() bool {
			_, feed := w.now()
			return feed != nil && feed.positions()[0] >= end // the last marker may come after its transaction has ended
		})
		if got := w.values(); !slices.Equal(got, want) {
			t.Errorf("isolation %v: %q, want %q", isolation, got, want)
		}
	}
}

func TestRecordLargerThanTheGrantIsRead(t *testing.T) {
	t.Parallel()
	broker := testkit.Shared(t)
	topic := broker.Topic(t, 3, nil)
	large := bytes.Repeat([]byte("x"), 2<<20)
	for p := range int32(3) {
		for range 3 {
			broker.ProduceTo(t, topic, p, &kgo.Record{Value: large}, &kgo.Record{Value: []byte("small")})
		}
	}
	w := startWorker(t, Config{Brokers: []string{broker.Addr}, Topic: topic, Group: testkit.Prefix(t) + "w"},
		func(w *worker) { w.grant = 1 << 20 })
	until(t, "18 records", func() bool { return w.count() == 18 })
	for _, v := range w.values() {
		if v != "small" && len(v) != len(large) {
			t.Errorf("a record has %d bytes", len(v))
		}
	}
}

func TestEveryCodecIsRead(t *testing.T) {
	t.Parallel()
	broker := testkit.Shared(t)
	topic := broker.Topic(t, 1, nil)
	n := 0
	for _, codec := range []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	} {
		client, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr), kgo.ProducerBatchCompression(codec), kgo.DefaultProduceTopic(topic))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			n++
			record := &kgo.Record{
				Key: fmt.Appendf(nil, "k%d", i), Value: bytes.Repeat([]byte("value"), i),
				Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}, {Key: "b", Value: []byte{}}},
			}
			client.Produce(t.Context(), record, nil)
		}
		if err := client.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		client.Close()
	}
	w := startWorker(t, Config{Brokers: []string{broker.Addr}, Topic: topic, Group: testkit.Prefix(t) + "w"},
		func(w *worker) { w.grant = 64 << 10 })
	until(t, "all records", func() bool { return w.count() == n })
	_, feed := w.now()
	for i, m := range feed.messages[0] {
		if m.Offset != int64(i) || string(m.Key) != fmt.Sprintf("k%d", i%200) || len(m.Value) != 5*(i%200) {
			t.Fatalf("record %d: offset %d, key %q, %d bytes", i, m.Offset, m.Key, len(m.Value))
		}
		if m.Value == nil {
			t.Fatalf("record %d: an empty value became null", i)
		}
		if len(m.Headers) != 3 || m.Headers[1].Value != nil || m.Headers[2].Value == nil || m.Headers[2].Key != "b" {
			t.Fatalf("record %d: headers %+v", i, m.Headers)
		}
	}
	if most := 2*int(w.grant) + 4096; feed.biggest > most {
		t.Errorf("one batch of messages took %d bytes, want at most %d", feed.biggest, most)
	}
}

func TestNullAndEmptyValuesStayDifferent(t *testing.T) {
	t.Parallel()
	broker := testkit.Shared(t)
	topic := broker.Topic(t, 1, nil)
	broker.ProduceTo(t, topic, 0,
		&kgo.Record{Key: []byte("T-1"), Value: []byte("1")},
		&kgo.Record{Key: []byte("T-2"), Value: nil, Headers: []kgo.RecordHeader{{Key: "traceparent", Value: []byte("00-4bf9-01")}}},
		&kgo.Record{Key: []byte("T-3"), Value: []byte{}},
		&kgo.Record{Key: nil, Value: []byte("4")},
	)
	w := startWorker(t, Config{Brokers: []string{broker.Addr}, Topic: topic, Group: testkit.Prefix(t) + "w"})
	until(t, "four records", func() bool { return w.count() == 4 })
	_, feed := w.now()
	got := feed.messages[0]
	if got[1].Value != nil || len(got[1].Headers) != 1 || got[2].Value == nil || len(got[2].Value) != 0 || got[3].Key != nil {
		t.Errorf("records are %+v", got)
	}
}

func TestLatestBeginsAtTheEndOnceAndCommitsIt(t *testing.T) {
	t.Parallel()
	broker := testkit.Shared(t)
	topic := broker.Topic(t, 2, nil)
	broker.ProduceTo(t, topic, 0, records(0, 10)...)
	broker.ProduceTo(t, topic, 1, records(0, 20)...)
	config := Config{Brokers: []string{broker.Addr}, Topic: topic, Group: testkit.Prefix(t) + "w", Start: Latest}
	first := startWorker(t, config, func(w *worker) { w.commit = false })
	until(t, "two partitions", func() bool { return first.owned() == 2 })
	first.end(t)
	if first.count() != 0 {
		t.Errorf("%d records came from before the start", first.count())
	}
	broker.ProduceTo(t, topic, 1, records(20, 1)...)
	broker.GrowTopic(t, topic, 3)
	until(t, "the third partition", func() bool { return len(broker.EndOffsets(t, topic)) == 3 })
	broker.ProduceTo(t, topic, 2, records(30, 2)...)

	second := startWorker(t, config)
	until(t, "what came while nobody was there", func() bool { return second.count() == 3 })
	if got := second.values(); !slices.Equal(got, []string{"v20", "v30", "v31"}) {
		t.Errorf("records are %q", got)
	}
	ends, err := second.group.Ends(t.Context())
	if err != nil || ends[0] != 10 || ends[1] != 21 || ends[2] != 2 {
		t.Errorf("ends are %v, %v", ends, err)
	}
}

var _ consumer.Feed = (*testFeed)(nil)
