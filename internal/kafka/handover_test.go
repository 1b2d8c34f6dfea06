package kafka

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"spillway/consumer"
)

// slowFeed is a testFeed that can be made slow to take what comes, and tells when a grant is about to come back.
type slowFeed struct {
	*testFeed
	deliver func(b consumer.Batch) // called before a batch is taken
	back    func(partition int32)  // called before a grant comes back
}

func (f *slowFeed) Deliver(b consumer.Batch) {
	if f.deliver != nil {
		f.deliver(b)
	}
	if f.back != nil {
		f.back(b.Partition)
	}
	f.testFeed.Deliver(b)
}

func (f *slowFeed) Release(g consumer.Grant) {
	if f.back != nil {
		f.back(g.Partition)
	}
	f.testFeed.Release(g)
}

// bubble is a cluster of one broker inside a bubble of synctest, and a group that reads it.
type bubble struct {
	cluster *kfake.Cluster
	network kfake.VirtualNetwork

	mu    sync.Mutex // guards asked
	asked [][]int32  // the partitions of each fetch request

	second chan struct{} // if there is one, the second request is answered when it is closed

	feed    *testFeed  // once read has returned
	fetched chan error // what Fetch returned
	cancel  context.CancelFunc
	ended   chan error
}

func newBubble(t *testing.T, partitions int32) *bubble {
	t.Helper()
	b := &bubble{fetched: make(chan error, 1), ended: make(chan error, 1)}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, fakeTopic),
		kfake.ListenFn(b.network.Listen), kfake.Ports(9092))
	if err != nil {
		t.Fatal(err)
	}
	b.cluster = cluster
	cluster.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		var asked []int32
		for _, p := range as[*kmsg.FetchRequest](t, r).Topics[0].Partitions {
			asked = append(asked, p.Partition)
		}
		b.mu.Lock()
		b.asked = append(b.asked, asked)
		n := len(b.asked)
		b.mu.Unlock()
		if n == 2 && b.second != nil {
			cluster.SleepControl(func() { <-b.second })
		}
		return nil, nil, false
	})
	return b
}

// produce writes batches of one record each, a little larger than size. A value begins with its partition and number.
func (b *bubble) produce(t *testing.T, partition int32, n, size int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:9092"), kgo.Dialer(b.network.DialContext),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for i := range n {
		value := append(fmt.Appendf(nil, "%d/%d ", partition, i), make([]byte, size)...)
		r := &kgo.Record{Topic: fakeTopic, Partition: partition, Value: value}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// read begins to read the topic with grants of so many bytes, into a feed that slow makes slower.
func (b *bubble) read(t *testing.T, grant int32, slow slowFeed) {
	t.Helper()
	group, err := New(Config{Brokers: []string{"127.0.0.1:9092"}, Topic: fakeTopic, Group: "w", Dial: b.network.DialContext})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	b.cancel = cancel
	began := make(chan *testFeed, 1)
	go func() {
		b.ended <- group.Run(ctx, func(ctx context.Context, s consumer.Session) error {
			slow.testFeed = newTestFeed(grant, s.Assigned())
			began <- slow.testFeed
			b.fetched <- s.Fetch(ctx, &slow)
			return nil
		})
	}()
	b.feed = <-began
}

// requests lists what was asked for until now, when nothing more happens without time going by.
func (b *bubble) requests() [][]int32 {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.asked)
}

// values lists the values that were read, without their padding.
func (b *bubble) values() []string {
	var all []string
	for _, v := range b.feed.values() {
		name, _, _ := strings.Cut(v, " ")
		all = append(all, name)
	}
	return all
}

// end waits for everything, and checks that all grants have come back.
func (b *bubble) end(t *testing.T) {
	t.Helper()
	b.cancel()
	if err := <-b.ended; err != nil {
		t.Error(err)
	}
	if err := <-b.fetched; err != nil || b.feed.given != b.feed.back {
		t.Errorf("of %d grants %d came back: %v", b.feed.given, b.feed.back, err)
	}
	b.cluster.Close()
}

func TestNextRequestLeavesWhileALargeResponseIsHandedOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 3)
		// A broker gives a batch that is larger than the grant to the first partition only.
		b.produce(t, 1, 2, largeResponse)
		b.produce(t, 2, 2, largeResponse)
		open := make(chan struct{})
		b.read(t, largeResponse*3/4, slowFeed{deliver: func(batch consumer.Batch) {
			if batch.Partition == 1 {
				<-open
			}
		}})
		time.Sleep(time.Minute)
		// Partition 0 has nothing, and 1 is being handed over. The answer for 2 waits for that, and nothing is asked for then.
		if got, want := fmt.Sprint(b.requests()), "[[0 1 2] [2]]"; got != want || b.feed.count() != 0 {
			t.Errorf("requests for %s with %d records handed over, want %s", got, b.feed.count(), want)
		}
		close(open)
		time.Sleep(time.Minute)
		if got, want := fmt.Sprint(b.values()), "[1/0 1/1 2/0 2/1]"; got != want {
			t.Errorf("read %v, want %s", got, want)
		}
		b.end(t)
	})
}

func TestSmallResponseIsHandedOverBeforeTheNextRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 2)
		b.produce(t, 0, 1, largeResponse/2)
		b.produce(t, 1, 1, largeResponse/2)
		open := make(chan struct{})
		b.read(t, largeResponse/3, slowFeed{deliver: func(batch consumer.Batch) {
			if batch.Partition == 0 {
				<-open
			}
		}})
		time.Sleep(time.Minute)
		if got, want := fmt.Sprint(b.requests()), "[[0 1]]"; got != want {
			t.Errorf("requests for %s, want %s", got, want)
		}
		close(open)
		time.Sleep(time.Minute)
		if got, want := fmt.Sprint(b.values()), "[0/0 1/0]"; got != want {
			t.Errorf("read %v, want %s", got, want)
		}
		b.end(t)
	})
}

func TestFetchReturnsAfterTheLastDelivery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 2)
		b.second = make(chan struct{})
		b.produce(t, 0, 1, largeResponse)
		b.produce(t, 1, 1, largeResponse)
		open := make(chan struct{})
		b.read(t, largeResponse*3/4, slowFeed{deliver: func(batch consumer.Batch) {
			if batch.Partition == 0 {
				<-open
			}
		}})
		time.Sleep(time.Second)
		if got, want := fmt.Sprint(b.requests()), "[[0 1] [1]]"; got != want {
			t.Errorf("requests for %s, want %s", got, want)
		}
		b.cancel() // the second request is given up
		synctest.Wait()
		if len(b.fetched) > 0 || b.feed.count() > 0 {
			t.Errorf("Fetch returned while a response was being handed over, %d records of it were", b.feed.count())
		}
		close(open)
		synctest.Wait()
		if len(b.fetched) == 0 {
			t.Error("Fetch did not return when the response was handed over")
		}
		close(b.second)
		b.end(t)
		if got, want := fmt.Sprint(b.values()), "[0/0]"; got != want {
			t.Errorf("read %v, want %s", got, want)
		}
	})
}

func TestAtRestOneRequestIsHeldAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 4)
		b.produce(t, 0, 1, largeResponse)
		b.read(t, 1<<20, slowFeed{})
		time.Sleep(time.Minute)
		before := len(b.requests())
		time.Sleep(time.Minute)
		// The broker holds each for 500 ms.
		if n := len(b.requests()) - before; n < 119 || n > 120 {
			t.Errorf("%d requests in a quiet minute, want 120", n)
		}
		if got, want := fmt.Sprint(b.values()), "[0/0]"; got != want {
			t.Errorf("read %v, want %s", got, want)
		}
		b.end(t)
	})
}

func TestPartitionIsInOneRequestAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const partitions, each = 6, 8
		b := newBubble(t, partitions)
		var want []string
		for p := range int32(partitions) {
			b.produce(t, p, each, largeResponse)
			for i := range each {
				want = append(want, fmt.Sprintf("%d/%d", p, i))
			}
		}
		var mu sync.Mutex
		back := map[int32]int{} // grants that are about to come back
		most := 0
		b.read(t, largeResponse/2, slowFeed{
			deliver: func(consumer.Batch) { time.Sleep(10 * time.Millisecond) },
			back: func(partition int32) {
				mu.Lock()
				defer mu.Unlock()
				back[partition]++
				asked := 0
				b.mu.Lock()
				defer b.mu.Unlock()
				for _, request := range b.asked {
					if slices.Contains(request, partition) {
						asked++
					}
				}
				most = max(most, asked-back[partition]+1)
			},
		})
		time.Sleep(time.Minute)
		if got := b.values(); !slices.Equal(got, want) {
			t.Errorf("read %v, want %v", got, want)
		}
		b.end(t)
		if most != 1 {
			t.Errorf("a partition was in %d requests at once", most)
		}
	})
}

// TestFailureIsNotedBeforeTheGrantComesBack: a partition that comes back earlier is asked again at once by the loop, which
// does not wait for its own hand-over.
func TestFailureIsNotedBeforeTheGrantComesBack(t *testing.T) {
	t.Parallel()
	cluster := fakeCluster(t, 1, 1)
	good, bad := simple(0, -1, 0, 1).bytes(), simple(2, -1, 0, 1).bytes()
	bad[len(bad)-1] ^= 1
	cluster.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		request := as[*kmsg.FetchRequest](t, r)
		response := as[*kmsg.FetchResponse](t, request.ResponseKind())
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic = fakeTopic
		answer := kmsg.NewFetchResponseTopicPartition()
		answer.HighWatermark, answer.LastStableOffset = 4, 4
		answer.RecordBatches = slices.Concat(good, bad)
		topic.Partitions = append(topic.Partitions, answer)
		response.Topics = append(response.Topics, topic)
		return response, nil, true
	})
	config := fakeConfig(cluster)
	registry := prometheus.NewRegistry()
	config.Registerer = registry
	noted := make(chan float64, 1)
	group, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = group.Run(ctx, func(ctx context.Context, s consumer.Session) error {
		feed := &slowFeed{testFeed: newTestFeed(1<<20, s.Assigned()), back: func(int32) {
			select {
			case noted <- metric(t, registry, "spillway_kafka_corrupt_batches_total"):
				cancel()
			default:
			}
		}}
		return s.Fetch(ctx, feed)
	})
	if n := <-noted; err != nil || n != 1 {
		t.Errorf("the grant came back with %v corrupt batches noted, want 1: %v", n, err)
	}
}
