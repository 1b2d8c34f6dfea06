package downstream

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// instanceMetrics shows the instances of a service that has several, by their index in the settings, 0 for the first: the
// number of series is bounded, and no address becomes a label. Of a service with one it shows nothing.
type instanceMetrics struct {
	ends                         *endpoints
	ejected, ejections, inFlight *prometheus.Desc
}

func newInstanceMetrics(route string, ends *endpoints) *instanceMetrics {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("spillway_endpoint_"+name, help, []string{"endpoint"}, prometheus.Labels{"route": route})
	}
	return &instanceMetrics{
		ends:      ends,
		ejected:   desc("ejected", "1 while an instance of a downstream that has several is taken out, by its place in the settings."),
		ejections: desc("ejections_total", "Times an instance was taken out or, by a failed probe, kept out."),
		inFlight:  desc("in_flight", "Calls in flight to an instance."),
	}
}

// Describe implements prometheus.Collector.
func (m *instanceMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- m.ejected
	to <- m.ejections
	to <- m.inFlight
}

// Collect implements prometheus.Collector.
func (m *instanceMetrics) Collect(to chan<- prometheus.Metric) {
	for i, s := range m.ends.look() {
		index := strconv.Itoa(i)
		to <- prometheus.MustNewConstMetric(m.ejected, prometheus.GaugeValue, s.ejected, index)
		to <- prometheus.MustNewConstMetric(m.ejections, prometheus.CounterValue, s.ejections, index)
		to <- prometheus.MustNewConstMetric(m.inFlight, prometheus.GaugeValue, s.inFlight, index)
	}
}

// standing is what the metrics show of an instance.
type standing struct{ ejected, ejections, inFlight float64 }

// look returns where each instance stands; nothing where there is one only.
func (e *endpoints) look() []standing {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]standing, len(e.choice.ends))
	for i := range all {
		end := &e.choice.ends[i]
		all[i] = standing{ejections: float64(end.total), inFlight: float64(end.inFlight)}
		if end.out {
			all[i].ejected = 1
		}
	}
	return all
}
