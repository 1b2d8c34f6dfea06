package testkit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Broker does a test's administrative work on one Kafka broker, through a client that is not the worker's. Its methods
// fail the test and may be called from its goroutine only.
type Broker struct {
	Addr   string
	client *kgo.Client
	admin  *kadm.Client
}

// Dial makes a Broker for host:port, closed when the test ends. It connects on first use.
func Dial(t testing.TB, addr string) *Broker {
	t.Helper()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(addr),
		kgo.ProducerBatchMaxBytes(16<<20),
		kgo.BrokerMaxWriteBytes(32<<20),
		kgo.MetadataMinAge(50*time.Millisecond), // topics come and go under a test
	)
	if err != nil {
		t.Fatalf("Kafka client: %v", err)
	}
	t.Cleanup(client.Close)
	return &Broker{Addr: addr, client: client, admin: kadm.NewClient(client)}
}

// call bounds one administrative call.
func call(t testing.TB) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), callTimeout)
}

// Topic creates a topic of the test's own and returns its name. The configs are topic-level settings of Kafka, such as
// cleanup.policy. The topic is deleted when the test ends.
func (b *Broker) Topic(t testing.TB, partitions int, configs map[string]string) string {
	t.Helper()
	if partitions < 1 || partitions > math.MaxInt32 {
		t.Fatalf("a topic cannot have %d partitions", partitions)
	}
	ctx, cancel := call(t)
	defer cancel()
	name := "t-" + unique(t, 100)
	settings := map[string]*string{}
	for key, value := range configs {
		settings[key] = &value
	}
	if _, err := b.admin.CreateTopic(ctx, int32(partitions), 1, settings, name); err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_, _ = b.admin.DeleteTopic(ctx, name) // the broker may be gone, or the test has deleted it
	})
	// A topic is created before every partition has a leader that the metadata shows.
	Eventually(t, callTimeout, func() (bool, string) {
		details, err := b.admin.ListTopics(ctx, name)
		if err != nil {
			return false, err.Error()
		}
		ready := 0
		for _, partition := range details[name].Partitions {
			if partition.Err == nil && partition.Leader >= 0 {
				ready++
			}
		}
		return ready == partitions, fmt.Sprintf("%d of %d partitions of %s have a leader", ready, partitions, name)
	})
	return name
}

// Produce writes the records and waits until the broker has them. A record's key decides its partition, as with Kafka's
// own producer; ProduceTo names it instead.
func (b *Broker) Produce(t testing.TB, topic string, records ...*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*callTimeout)
	defer cancel()
	for _, record := range records {
		record.Topic = topic
	}
	if err := b.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatalf("produce to %s: %v", topic, err)
	}
}

// ProduceTo writes the records to one partition, in order, and waits until the broker has them.
func (b *Broker) ProduceTo(t testing.TB, topic string, partition int32, records ...*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*callTimeout)
	defer cancel()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(b.Addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(16<<20),
	)
	if err != nil {
		t.Fatalf("Kafka client: %v", err)
	}
	defer client.Close()
	for _, record := range records {
		record.Topic, record.Partition = topic, partition
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatalf("produce to %s/%d: %v", topic, partition, err)
	}
}

// CommittedOffsets returns the group's committed offset per partition of the topic. A partition without a commit is
// not in the map.
func (b *Broker) CommittedOffsets(t testing.TB, group, topic string) map[int32]int64 {
	t.Helper()
	ctx, cancel := call(t)
	defer cancel()
	var offsets kadm.OffsetResponses
	coordinated(t, "committed offsets of "+group, func() (err error) {
		offsets, err = b.admin.FetchOffsets(ctx, group)
		return err
	})
	committed := map[int32]int64{}
	offsets.Each(func(o kadm.OffsetResponse) {
		if o.Topic == topic && o.Err == nil && o.At >= 0 {
			committed[o.Partition] = o.At
		}
	})
	return committed
}

// coordinated repeats a question to a group's coordinator until it is answered: a broker that has just started has no
// coordinator yet.
func coordinated(t testing.TB, what string, ask func() error) {
	t.Helper()
	Eventually(t, callTimeout, func() (bool, string) {
		if err := ask(); err != nil {
			return false, fmt.Sprintf("%s: %v", what, err)
		}
		return true, ""
	})
}

// EndOffsets returns the offset after the last record per partition of the topic.
func (b *Broker) EndOffsets(t testing.TB, topic string) map[int32]int64 {
	t.Helper()
	ctx, cancel := call(t)
	defer cancel()
	listed, err := b.admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		t.Fatalf("end offsets of %s: %v", topic, err)
	}
	return offsets(listed, topic)
}

// StartOffsets returns the offset of the first record kept per partition of the topic.
func (b *Broker) StartOffsets(t testing.TB, topic string) map[int32]int64 {
	t.Helper()
	ctx, cancel := call(t)
	defer cancel()
	listed, err := b.admin.ListStartOffsets(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		t.Fatalf("start offsets of %s: %v", topic, err)
	}
	return offsets(listed, topic)
}

// offsets picks one topic's out of a list.
func offsets(listed kadm.ListedOffsets, topic string) map[int32]int64 {
	found := map[int32]int64{}
	for partition, o := range listed[topic] {
		found[partition] = o.Offset
	}
	return found
}

// Lag returns how many offsets lie between the group's commits and the ends of the topic's partitions.
func (b *Broker) Lag(t testing.TB, group, topic string) int64 {
	t.Helper()
	committed := b.CommittedOffsets(t, group, topic)
	starts := b.StartOffsets(t, topic)
	var lag int64
	for partition, end := range b.EndOffsets(t, topic) {
		at, ok := committed[partition]
		if !ok {
			at = starts[partition]
		}
		lag += max(0, end-at)
	}
	return lag
}

// DeleteRecords deletes the records of a partition before the offset, as retention does.
func (b *Broker) DeleteRecords(t testing.TB, topic string, partition int32, before int64) {
	t.Helper()
	ctx, cancel := call(t)
	defer cancel()
	var at kadm.Offsets
	at.Add(kadm.Offset{Topic: topic, Partition: partition, At: before, LeaderEpoch: -1})
	response, err := b.admin.DeleteRecords(ctx, at)
	if err == nil {
		err = response.Error()
	}
	if err != nil {
		t.Fatalf("delete records of %s/%d before %d: %v", topic, partition, before, err)
	}
}

// DeleteTopic deletes the topic and waits until the broker no longer knows it.
func (b *Broker) DeleteTopic(t testing.TB, topic string) {
	t.Helper()
	ctx, cancel := call(t)
	defer cancel()
	if _, err := b.admin.DeleteTopic(ctx, topic); err != nil {
		t.Fatalf("delete topic %s: %v", topic, err)
	}
	Eventually(t, callTimeout, func() (bool, string) {
		details, err := b.admin.ListTopics(ctx, topic)
		if err != nil {
			return false, err.Error()
		}
		return details[topic].Err != nil, topic + " is still there"
	})
}

// GrowTopic raises the topic's number of partitions to total.
func (b *Broker) GrowTopic(t testing.TB, topic string, total int) {
	t.Helper()
	ctx, cancel := call(t)
	defer cancel()
	response, err := b.admin.UpdatePartitions(ctx, total, topic)
	if err == nil {
		err = response.Error()
	}
	if err != nil {
		t.Fatalf("grow topic %s to %d partitions: %v", topic, total, err)
	}
}

// Admin is the client itself, for what has no method here.
func (b *Broker) Admin() *kadm.Client { return b.admin }

// Group is a consumer group as its coordinator sees it.
type Group struct {
	State      string // "Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead"
	Generation int32  // -1 while the group has never had one
	Members    []Member
}

// Member is one member of a group.
type Member struct {
	ID         string
	ClientID   string
	Partitions map[string][]int32 // by topic, ascending
}

// Group describes a group of the classic protocol.
func (b *Broker) Group(t testing.TB, group string) Group {
	t.Helper()
	ctx, cancel := call(t)
	defer cancel()
	var described kadm.DescribedGroups
	coordinated(t, "describe group "+group, func() (err error) {
		described, err = b.admin.DescribeGroups(ctx, group)
		return err
	})
	found := Group{State: described[group].State, Generation: b.generation(ctx, t, group)}
	for _, m := range described[group].Members {
		member := Member{ID: m.MemberID, ClientID: m.ClientID, Partitions: map[string][]int32{}}
		if assigned, ok := m.Assigned.AsConsumer(); ok {
			for _, topic := range assigned.Topics {
				slices.Sort(topic.Partitions)
				member.Partitions[topic.Topic] = topic.Partitions
			}
		}
		found.Members = append(found.Members, member)
	}
	return found
}

// groupsTopic is where a coordinator keeps its groups.
const groupsTopic = "__consumer_offsets"

// generation reads the group's generation where the coordinator writes it down: no request of the classic protocol
// tells it to somebody outside the group.
func (b *Broker) generation(ctx context.Context, t testing.TB, group string) int32 {
	t.Helper()
	ends, err := b.admin.ListEndOffsets(ctx, groupsTopic)
	if err != nil {
		t.Fatalf("the end of %s: %v", groupsTopic, err)
	}
	partitions := int32(len(ends[groupsTopic]))
	if partitions == 0 {
		return -1
	}
	partition := int32(max(int64(javaHash(group)), -int64(javaHash(group))) % int64(partitions))
	end := ends[groupsTopic][partition].Offset
	if end == 0 {
		return -1
	}
	reader, err := kgo.NewClient(
		kgo.SeedBrokers(b.Addr),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.KeepControlRecords(), // so that the last offset is seen whatever it holds
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{groupsTopic: {partition: kgo.NewOffset().AtStart()}}),
	)
	if err != nil {
		t.Fatalf("Kafka client: %v", err)
	}
	defer reader.Close()
	generation, reached := int32(-1), int64(0)
	for reached < end {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read %s/%d: %v", groupsTopic, partition, errors.Join(err, ctx.Err()))
		}
		fetches.EachRecord(func(r *kgo.Record) {
			reached = r.Offset + 1
			var key kmsg.GroupMetadataKey
			var value kmsg.GroupMetadataValue
			if key.ReadFrom(r.Key) == nil && key.Version == 2 && key.Group == group && value.ReadFrom(r.Value) == nil {
				generation = value.Generation
			}
		})
	}
	return generation
}

// javaHash is String.hashCode for ASCII, which decides the partition a group is kept in.
func javaHash(s string) int32 {
	var sum int32
	for i := range len(s) {
		sum = 31*sum + int32(s[i])
	}
	return sum
}
