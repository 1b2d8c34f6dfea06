package testkit

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Shared dials the shared broker.
func Shared(t testing.TB) *Broker {
	t.Helper()
	return Dial(t, Kafka(t))
}

// Topic creates a topic of the test's own on the shared broker; see Broker.Topic.
func Topic(t testing.TB, partitions int, configs map[string]string) string {
	t.Helper()
	return Shared(t).Topic(t, partitions, configs)
}

// Produce writes records to the shared broker; see Broker.Produce.
func Produce(t testing.TB, topic string, records ...*kgo.Record) {
	t.Helper()
	Shared(t).Produce(t, topic, records...)
}

// CommittedOffsets returns a group's commits on the shared broker; see Broker.CommittedOffsets. A test that polls
// should Dial once.
func CommittedOffsets(t testing.TB, group, topic string) map[int32]int64 {
	t.Helper()
	return Shared(t).CommittedOffsets(t, group, topic)
}

// EndOffsets returns a topic's end offsets on the shared broker; see Broker.EndOffsets.
func EndOffsets(t testing.TB, topic string) map[int32]int64 {
	t.Helper()
	return Shared(t).EndOffsets(t, topic)
}
