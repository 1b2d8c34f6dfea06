package consumer

import (
	"github.com/prometheus/client_golang/prometheus"

	"spillway/order"
)

// metrics is what a lane counts. Every label is of a closed set, or the route.
type metrics struct {
	consumed     prometheus.Counter
	admitted     *prometheus.CounterVec
	outcomes     *prometheus.CounterVec
	buried       *prometheus.CounterVec
	spilled      prometheus.Counter
	withdrawn    prometheus.Counter
	retries      *prometheus.CounterVec
	wedged       *prometheus.CounterVec
	tombstones   prometheus.Counter
	conflicts    prometheus.Counter
	lost         prometheus.Counter
	commitErrors prometheus.Counter
	batch        *prometheus.HistogramVec
}

// collector reads the lane's level at each scrape.
type collector struct {
	level func() Status

	paused, assigned, generation, lag, inFlight, queued, waiting, held, reserved, target, pauses, headFor, headBehind, constraint, bound, imbalance *prometheus.Desc
}

func newMetrics(route string, reg prometheus.Registerer, level func() Status) *metrics {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	labels := prometheus.Labels{"route": route}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "spillway_" + name, Help: help, ConstLabels: labels})
		reg.MustRegister(c)
		return c
	}
	vec := func(name, help string, by ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_" + name, Help: help, ConstLabels: labels}, by)
		reg.MustRegister(c)
		return c
	}
	m := &metrics{
		consumed:     counter("consumed_records_total", "Records taken from Kafka."),
		admitted:     vec("admissions_total", "What admission found.", "kind"),
		outcomes:     vec("live_outcomes_total", "Outcomes of attempts of fresh records.", "outcome", "reason"),
		buried:       vec("undeliverable_records_total", "Records that could not become orders.", "reason"),
		spilled:      counter("spilled_orders_total", "Orders put into the replay queue by the live lane."),
		withdrawn:    counter("withdrawn_orders_total", "Orders handed back unsent when their partition went away; they are read again."),
		retries:      vec("retries_total", "Attempts of which nothing left this machine, by what became of their retry.", "result"),
		wedged:       vec("wedged_total", "Generations that ended because the lane was wedged.", "at"),
		tombstones:   counter("skipped_tombstones_total", "Records without a value that the route skips."),
		conflicts:    counter("conflicts_total", "Late answers that contradict a final state."),
		lost:         counter("lost_leases_total", "Orders whose lease ran out before they were settled."),
		commitErrors: counter("commit_errors_total", "Offset commits that went wrong."),
		batch: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "spillway_store_batch_size", Help: "Orders in one statement.", ConstLabels: labels,
			Buckets: []float64{1, 10, 50, 100, 200, 500}, NativeHistogramBucketFactor: 1.1,
		}, []string{"op"}),
	}
	reg.MustRegister(m.batch)
	reg.MustRegister(newCollector(labels, level))
	return m
}

func newCollector(labels prometheus.Labels, level func() Status) *collector {
	desc := func(name, help string, by ...string) *prometheus.Desc {
		return prometheus.NewDesc("spillway_"+name, help, by, labels)
	}
	return &collector{
		level:      level,
		paused:     desc("paused_partitions", "Assigned partitions left out of the fetch."),
		assigned:   desc("assigned_partitions", "Partitions this worker holds."),
		generation: desc("group_generation", "The consumer group's generation."),
		lag:        desc("kafka_lag_records", "Records of the assigned partitions that are not settled yet."),
		inFlight:   desc("live_in_flight", "Attempts of fresh records under way."),
		queued:     desc("prefetched_records", "Records that wait for a permit."),
		waiting:    desc("prefetched_bytes", "Bytes of records that wait for a permit."),
		held:       desc("held_bytes", "Bytes of records taken and not settled."),
		reserved:   desc("reserved_bytes", "Bytes granted to fetches under way."),
		target:     desc("prefetch_target_bytes", "Bytes that wait for permits at most, by drain rate and round trip: the high mark."),
		pauses:     desc("pauses_total", "Partitions paused."),
		imbalance:  desc("conservation_imbalance", "Records taken that are in no place they can be in; anything but 0 is a bug."),
		bound: desc("binding_constraint_seconds_total",
			"For how long each constraint has limited the route, one at a time.", "constraint"),
		headFor:    desc("head_of_line_seconds", "How long the record that holds back an offset for longest has done so."),
		headBehind: desc("head_of_line_records", "Records read after that one."),
		constraint: desc("binding_constraint", "What limits the route now: 1 for the one that binds.", "constraint"),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.level()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(c.paused, float64(s.Paused))
	gauge(c.assigned, float64(s.Assigned))
	gauge(c.generation, float64(s.Generation))
	gauge(c.lag, float64(s.Lag))
	gauge(c.inFlight, float64(s.InFlight))
	gauge(c.queued, float64(s.Queued))
	gauge(c.waiting, float64(s.WaitingBytes))
	gauge(c.held, float64(s.HeldBytes))
	gauge(c.reserved, float64(s.ReservedBytes))
	gauge(c.target, float64(s.Target))
	gauge(c.imbalance, float64(s.Imbalance))
	ch <- prometheus.MustNewConstMetric(c.pauses, prometheus.CounterValue, float64(s.Pauses))
	gauge(c.headFor, s.Head.For.Seconds())
	gauge(c.headBehind, float64(s.Head.Behind))
	for _, k := range Constraints() {
		v := 0.0
		if k == s.Constraint {
			v = 1
		}
		gauge(c.constraint, v, string(k))
		ch <- prometheus.MustNewConstMetric(c.bound, prometheus.CounterValue, s.Bound[k].Seconds(), string(k))
	}
}

func (m *metrics) outcome(a order.Answer) {
	m.outcomes.WithLabelValues(a.Outcome.String(), string(a.Reason)).Inc()
}
