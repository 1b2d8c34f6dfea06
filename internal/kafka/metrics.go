package kafka

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics is what one group counts. Every name carries the constant label route.
type metrics struct {
	lost       prometheus.Counter
	resets     *prometheus.CounterVec // by reason
	corrupt    prometheus.Counter
	fetches    prometheus.Counter
	errors     *prometheus.CounterVec // by kind
	bytes      prometheus.Counter
	records    prometheus.Counter
	assigned   prometheus.Gauge
	failing    prometheus.Gauge
	missing    prometheus.Gauge
	joins      prometheus.Counter
	joinErrors prometheus.Counter
	commits    *prometheus.CounterVec // by result
}

// Why a partition's position was set anew.
const (
	resetExpired   = "expired"   // the records were deleted before they were read
	resetBeyond    = "beyond"    // the position lay beyond the log's end
	resetRecreated = "recreated" // the topic was deleted and made again
)

// Kinds of fetch errors.
const (
	errorNetwork = "network" // the whole request failed
	errorLeader  = "leader"  // the partition is led by somebody else now, or by nobody
	errorRange   = "range"   // the position is not in the log
	errorCorrupt = "corrupt" // a batch can't be decoded
	errorBroker  = "broker"  // the broker's other codes
)

// Results of commits.
const (
	commitDone   = "ok"
	commitFenced = "fenced"
	commitFailed = "error"
)

// newMetrics makes and registers the metrics; a nil registerer registers none.
func newMetrics(registerer prometheus.Registerer, route string) (*metrics, error) {
	labels := prometheus.Labels{"route": route}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "spillway", Subsystem: "kafka", Name: name, Help: help, ConstLabels: labels,
		})
	}
	counters := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "spillway", Subsystem: "kafka", Name: name, Help: help, ConstLabels: labels,
		}, []string{label})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "spillway", Subsystem: "kafka", Name: name, Help: help, ConstLabels: labels,
		})
	}
	m := &metrics{
		lost:       counter("records_lost_total", "Offsets that the log no longer had when they were to be read."),
		resets:     counters("position_resets_total", "Partitions whose position was not in the log and was set anew.", "reason"),
		corrupt:    counter("corrupt_batches_total", "Tries to read a record batch that could not be decoded."),
		fetches:    counter("fetches_total", "Fetch requests sent."),
		errors:     counters("fetch_errors_total", "Fetch errors, of whole requests and of single partitions.", "kind"),
		bytes:      counter("fetched_bytes_total", "Bytes of fetch responses."),
		records:    counter("fetched_records_total", "Records handed over."),
		assigned:   gauge("assigned_partitions", "Partitions this worker owns."),
		failing:    gauge("failing_partitions", "Partitions whose last fetches all failed."),
		missing:    gauge("topic_missing", "1 while the cluster does not know the topic."),
		joins:      counter("generations_total", "Generations of the group this worker took part in."),
		joinErrors: counter("join_errors_total", "Failed tries to join the group."),
		commits:    counters("commits_total", "Offset commits.", "result"),
	}
	for _, reason := range []string{resetExpired, resetBeyond, resetRecreated} {
		m.resets.WithLabelValues(reason)
	}
	for _, kind := range []string{errorNetwork, errorLeader, errorRange, errorCorrupt, errorBroker} {
		m.errors.WithLabelValues(kind)
	}
	for _, result := range []string{commitDone, commitFenced, commitFailed} {
		m.commits.WithLabelValues(result)
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.lost, m.resets, m.corrupt, m.fetches, m.errors, m.bytes, m.records,
		m.assigned, m.failing, m.missing, m.joins, m.joinErrors, m.commits,
	} {
		if err := registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
