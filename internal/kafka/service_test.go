package kafka

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"spillway/internal/testkit"
)

// records makes n records whose values are numbered from first.
func records(first, n int) []*kgo.Record {
	all := make([]*kgo.Record, n)
	for i := range all {
		all[i] = &kgo.Record{Key: fmt.Appendf(nil, "T-%d", first+i), Value: fmt.Appendf(nil, "v%d", first+i)}
	}
	return all
}

func TestWorkerReadsCommitsAndResumesWhereItLeftOff(t *testing.T) {
	t.Parallel()
	broker := testkit.Shared(t)
	topic := broker.Topic(t, 3, nil)
	config := Config{Brokers: []string{broker.Addr}, Topic: topic, Group: testkit.Prefix(t) + "w"}
	broker.Produce(t, topic, records(0, 100)...)

	first := startWorker(t, config)
	until(t, "100 records", func() bool { return first.count() == 100 })
	first.end(t)
	if err := first.lastCommit(); err != nil {
		t.Fatalf("last commit: %v", err)
	}
	if lag := broker.Lag(t, config.Group, topic); lag != 0 {
		t.Fatalf("lag is %d after the worker has read and left", lag)
	}
	if members := broker.Group(t, config.Group).Members; len(members) != 0 {
		t.Fatalf("the group still has %d members", len(members))
	}

	broker.Produce(t, topic, records(100, 50)...)
	second := startWorker(t, config)
	until(t, "50 more records", func() bool { return second.count() == 50 })
	got := second.values()
	for i := range 50 {
		if want := fmt.Sprintf("v%d", 100+i); !slices.Contains(got, want) {
			t.Errorf("%s did not come", want)
		}
	}
}
