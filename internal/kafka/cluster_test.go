package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"spillway/consumer"
)

const fakeTopic = "orders"

// fakeCluster starts an in-process cluster with the topic in it.
func fakeCluster(t *testing.T, brokers int, partitions int32, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append(opts, kfake.NumBrokers(brokers), kfake.SeedTopics(partitions, fakeTopic),
		kfake.GroupMinSessionTimeout(100*time.Millisecond))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// fakeConfig is a quick configuration for an in-process cluster.
func fakeConfig(c *kfake.Cluster) Config {
	return Config{
		Brokers: c.ListenAddrs(), Topic: fakeTopic, Group: "w", MaxWait: 100 * time.Millisecond,
		SessionTimeout: 3 * time.Second, HeartbeatInterval: 200 * time.Millisecond,
	}
}

// as is a type assertion that fails the test.
func as[T any](t *testing.T, v any) T {
	t.Helper()
	got, ok := v.(T)
	if !ok {
		t.Errorf("it is a %T", v)
	}
	return got
}

// fakeProduce writes records to one partition.
func fakeProduce(t *testing.T, c *kfake.Cluster, partition int32, rs ...*kgo.Record) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, r := range rs {
		r.Topic, r.Partition = fakeTopic, partition
	}
	if err := client.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func TestPausedPartitionIsNotAskedFor(t *testing.T) {
	t.Parallel()
	cluster := fakeCluster(t, 1, 3)
	var asked [3]atomic.Int64
	cluster.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		for _, topic := range as[*kmsg.FetchRequest](t, r).Topics {
			for _, p := range topic.Partitions {
				asked[p.Partition].Add(1)
			}
		}
		return nil, nil, false
	})
	w := startWorker(t, fakeConfig(cluster))
	until(t, "three partitions", func() bool { return w.owned() == 3 })
	_, feed := w.now()
	feed.pause(true, 1)
	until(t, "the last request for partition 1", func() bool {
		feed.mu.Lock()
		defer feed.mu.Unlock()
		return !feed.busy[1]
	})
	before, others := asked[1].Load(), asked[0].Load()
	fakeProduce(t, cluster, 0, records(0, 5)...)
	fakeProduce(t, cluster, 1, records(5, 5)...)
	until(t, "ten more requests", func() bool { return asked[0].Load() >= others+10 })
	if n := asked[1].Load() - before; n != 0 || w.count() != 5 {
		t.Errorf("partition 1 was asked for %d times while paused; %d records came", n, w.count())
	}
	feed.pause(false, 1)
	until(t, "partition 1 to flow again", func() bool { return w.count() == 10 })
}

func TestLeaderMovesAreFollowed(t *testing.T) {
	t.Parallel()
	cluster := fakeCluster(t, 3, 2)
	w := startWorker(t, fakeConfig(cluster))
	total := 0
	for round := range 6 {
		for p := range int32(2) {
			if err := cluster.MoveTopicPartition(fakeTopic, p, int32(round+int(p))%3); err != nil {
				t.Fatal(err)
			}
			fakeProduce(t, cluster, p, records(total, 5)...)
			total += 5
		}
		until(t, fmt.Sprintf("%d records", total), func() bool { return w.count() == total })
	}
	if w.sessions != 1 {
		t.Errorf("%d generations for moves of leaders", w.sessions)
	}
}

func TestBrokerThatGoesAwayIsReplaced(t *testing.T) {
	t.Parallel()
	cluster := fakeCluster(t, 3, 3)
	w := startWorker(t, fakeConfig(cluster))
	for p := range int32(3) {
		if err := cluster.MoveTopicPartition(fakeTopic, p, p); err != nil {
			t.Fatal(err)
		}
		fakeProduce(t, cluster, p, records(int(p)*10, 10)...)
	}
	until(t, "30 records", func() bool { return w.count() == 30 })
	gone := (cluster.CoordinatorFor("w") + 1) % 3
	if err := cluster.RemoveNode(gone); err != nil {
		t.Fatal(err)
	}
	cluster.ShufflePartitionLeaders()
	for p := range int32(3) {
		fakeProduce(t, cluster, p, records(100+int(p)*10, 10)...)
	}
	until(t, "60 records", func() bool { return w.count() >= 60 })
}

func TestCutConnectionsAreRetried(t *testing.T) {
	t.Parallel()
	cluster := fakeCluster(t, 1, 1)
	var cuts atomic.Int64
	cluster.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if cuts.Add(1)%3 != 0 {
			return nil, errors.New("cut"), true
		}
		return nil, nil, false
	})
	fakeProduce(t, cluster, 0, records(0, 20)...)
	w := startWorker(t, fakeConfig(cluster))
	until(t, "20 records", func() bool { return w.count() == 20 })
	fakeProduce(t, cluster, 0, records(20, 20)...)
	until(t, "40 records", func() bool { return w.count() == 40 })
	w.end(t)
	if err := w.lastCommit(); err != nil {
		t.Error(err)
	}
}

func TestCorruptBatchIsReportedAndNeverSkipped(t *testing.T) {
	t.Parallel()
	cluster := fakeCluster(t, 1, 2)
	registry := prometheus.NewRegistry()
	var healed atomic.Bool
	bad, good := simple(0, -1, 0, 1).bytes(), simple(0, -1, 0, 1, 2).bytes()
	bad[len(bad)-1] ^= 1
	cluster.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		request := as[*kmsg.FetchRequest](t, r)
		response := as[*kmsg.FetchResponse](t, request.ResponseKind())
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic = fakeTopic
		for _, p := range request.Topics[0].Partitions {
			answer := kmsg.NewFetchResponseTopicPartition()
			answer.Partition, answer.HighWatermark, answer.LastStableOffset = p.Partition, 3, 3
			switch {
			case p.FetchOffset > 0:
			case p.Partition == 0 && !healed.Load():
				answer.RecordBatches = bad
			default:
				answer.RecordBatches = good
			}
			topic.Partitions = append(topic.Partitions, answer)
		}
		response.Topics = append(response.Topics, topic)
		return response, nil, true
	})
	config := fakeConfig(cluster)
	config.Registerer = registry
	w := startWorker(t, config)
	until(t, "the partition to be reported", func() bool {
		return metric(t, registry, "spillway_kafka_failing_partitions") == 1 && w.log.count("ERROR kafka partition can't be read") > 0
	})
	_, feed := w.now()
	if at := feed.positions(); at[0] != 0 || at[1] != 3 || w.count() != 3 {
		t.Errorf("positions %v with %d records", at, w.count())
	}
	if w.log.count("partition 0, reading on from offset 0") == 0 {
		t.Errorf("the place is not named: %q", w.log.lines)
	}
	healed.Store(true)
	until(t, "the partition to be read again", func() bool { return w.count() == 6 })
	if n := metric(t, registry, "spillway_kafka_failing_partitions"); n != 0 {
		t.Errorf("%v partitions are failing", n)
	}
}

func TestCommitTriesAgainWhileTheCoordinatorMoves(t *testing.T) {
	t.Parallel()
	cluster := fakeCluster(t, 3, 1)
	fakeProduce(t, cluster, 0, records(0, 5)...)
	w := startWorker(t, fakeConfig(cluster))
	until(t, "five records", func() bool { return w.count() == 5 })
	s, _ := w.now()
	offset := int64(0)
	for _, code := range []*kerr.Error{kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress} {
		offset++
		cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: code, Count: 2})
		if err := s.Commit(t.Context(), map[int32]int64{0: offset}); err != nil {
			t.Errorf("%v: %v", code, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	handle := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.CoordinatorLoadInProgress, Count: -1})
	if err := s.Commit(ctx, map[int32]int64{0: 5}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a commit whose time is over: %v", err)
	}
	handle.Remove()
	if err := s.Commit(t.Context(), map[int32]int64{0: 5}); err != nil {
		t.Error(err)
	}
}

func TestCommitIsFencedOnceTheGroupMovedOn(t *testing.T) {
	t.Parallel()
	for _, code := range []*kerr.Error{kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.RebalanceInProgress, kerr.FencedInstanceID} {
		cluster := fakeCluster(t, 1, 1)
		fakeProduce(t, cluster, 0, records(0, 5)...)
		w := startWorker(t, fakeConfig(cluster))
		until(t, "five records", func() bool { return w.count() == 5 })
		s, _ := w.now()
		fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: code})
		if err := s.Commit(t.Context(), map[int32]int64{0: 1}); !errors.Is(err, consumer.ErrFenced) {
			t.Errorf("%v: %v", code, err)
		}
		fault.Remove()
		if err := s.Commit(t.Context(), map[int32]int64{0: 2}); !errors.Is(err, consumer.ErrFenced) {
			t.Errorf("%v: a later commit: %v", code, err)
		}
	}
}

func TestSASLLetsInWhoKnowsThePassword(t *testing.T) {
	t.Parallel()
	const secret = "canary-secret"
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		cluster := fakeCluster(t, 1, 1, kfake.EnableSASL(), kfake.Superuser(strings.ToUpper(mechanism), "worker", secret))
		config := fakeConfig(cluster)
		config.SASL = SASL{Mechanism: mechanism, Username: "worker", Password: secret}
		w := startWorker(t, config)
		until(t, "the partition", func() bool { return w.owned() == 1 })
		if err := w.group.Check(t.Context()); err != nil {
			t.Errorf("%s: %v", mechanism, err)
		}
		w.end(t)

		config.SASL.Password = "wrong-" + secret
		refused := startWorker(t, config)
		err := refused.group.Check(t.Context())
		if err == nil || !strings.Contains(err.Error(), "SASL authentication") {
			t.Errorf("%s with a wrong password: %v", mechanism, err)
		}
		until(t, "a log line", func() bool { return refused.log.count("WARN kafka group can't be joined") > 0 })
		if refused.log.count("SASL authentication") == 0 {
			t.Errorf("%s: the log does not say why: %q", mechanism, refused.log.lines)
		}
		for _, text := range append(slices.Clone(refused.log.lines), fmt.Sprint(err)) {
			if strings.Contains(text, secret) {
				t.Errorf("%s: the password is in %q", mechanism, text)
			}
		}
	}
}

func TestTLSIsSpokenToEveryBroker(t *testing.T) {
	t.Parallel()
	https := httptest.NewTLSServer(nil) // for its certificate
	defer https.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(https.Certificate())
	cluster := fakeCluster(t, 1, 1, kfake.TLS(&tls.Config{Certificates: https.TLS.Certificates, MinVersion: tls.VersionTLS12}))
	config := fakeConfig(cluster)
	untrusting, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	config.TLS = &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}
	w := startWorker(t, config)
	until(t, "the partition", func() bool { return w.owned() == 1 })
	if err := w.group.Check(t.Context()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := untrusting.Check(ctx); err == nil {
		t.Error("a broker that wants TLS was spoken to without")
	}
}

func TestCheckNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	cluster := fakeCluster(t, 1, 1)
	config := fakeConfig(cluster)
	config.Topic = "no-such-topic"
	group, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := group.Check(t.Context()); err == nil || !strings.Contains(err.Error(), `topic "no-such-topic" does not exist`) {
		t.Errorf("an unknown topic: %v", err)
	}
	if cluster.TopicInfo("no-such-topic") != nil {
		t.Error("the check made the topic")
	}
	config.Brokers = []string{"127.0.0.1:1"}
	group, err = New(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := group.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("no broker: %v", err)
	}
}

func TestWorkerOfAnUnknownTopicStartsWhenItIsMade(t *testing.T) {
	t.Parallel()
	cluster := fakeCluster(t, 1, 1)
	registry := prometheus.NewRegistry()
	config := fakeConfig(cluster)
	config.Topic, config.Registerer = "later", registry
	w := startWorker(t, config)
	until(t, "the alert", func() bool { return metric(t, registry, "spillway_kafka_topic_missing") == 1 })
	if err := cluster.CreateTopic("later", 2, nil); err != nil {
		t.Fatal(err)
	}
	until(t, "two partitions", func() bool { return w.owned() == 2 })
	if n := metric(t, registry, "spillway_kafka_topic_missing"); n != 0 {
		t.Errorf("the topic is still said to be missing")
	}
}

func TestRunEndsWithEverythingItStarted(t *testing.T) {
	t.Parallel()
	// A bubble ends only when every goroutine in it has: kafka-go's transport and group, our loops, the heartbeats.
	synctest.Test(t, func(t *testing.T) {
		var network kfake.VirtualNetwork
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, fakeTopic), kfake.ListenFn(network.Listen),
			kfake.Ports(9092))
		if err != nil {
			t.Fatal(err)
		}
		group, err := New(Config{
			Brokers: []string{"127.0.0.1:9092"}, Topic: fakeTopic, Group: "w", Dial: network.DialContext,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		served := make(chan consumer.Session, 1)
		go func() {
			ended <- group.Run(ctx, func(ctx context.Context, s consumer.Session) error {
				served <- s
				return s.Fetch(ctx, newTestFeed(1<<20, s.Assigned()))
			})
		}()
		s := <-served
		if n := len(s.Assigned()); n != 4 {
			t.Errorf("%d partitions", n)
		}
		time.Sleep(time.Minute)
		if len(served) != 0 {
			t.Error("the generation changed in a quiet minute")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		cluster.Close()
	})
}
