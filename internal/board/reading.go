package board

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Reading is what the metrics of one route said at a moment. A metric that is not there is zero.
type Reading struct {
	At time.Time

	// These only grow, from the worker's start.

	Consumed float64 // records
	Final    float64 // orders that became SUCCEEDED or FAILED
	Pauses   float64 // partitions paused
	Spilled  float64 // orders the live lane put into the replay queue
	Replayed float64 // orders that became final by a replay
	Settled  float64 // unknown outcomes the compensator cleared up: final, or found not to have happened
	Opened   float64 // times a breaker opened

	// These are as of now.

	Lag            float64 // records
	Assigned       float64 // partitions
	Paused         float64 // partitions
	Prefetched     float64 // records
	PrefetchBytes  float64
	PrefetchTarget float64 // bytes
	Constraint     string

	Permits    float64
	InUse      map[string]float64 // by lane
	Breakers   map[string]string  // endpoint → state
	Replay     map[string]float64 // by state
	Processing map[string]float64 // by phase
	Oldest     time.Duration      // of the oldest PROCESSING order
	Dead       float64            // letters that wait
}

// InFlight is the sum over the lanes.
func (r *Reading) InFlight() float64 {
	sum := 0.0
	for _, n := range r.InUse {
		sum += n
	}
	return sum
}

// Calm reports whether nothing is under way, by what the gauges show.
func (r *Reading) Calm() bool {
	return r.Lag+r.InFlight()+r.Prefetched+sum(r.Replay)+sum(r.Processing) == 0
}

// Read takes down a route's metrics. What a collector could not tell is missing from the reading, and the error says so.
func Read(from prometheus.Gatherer, route string, at time.Time) (Reading, error) {
	r := Reading{
		At: at, InUse: map[string]float64{}, Breakers: map[string]string{}, Replay: map[string]float64{},
		Processing: map[string]float64{},
	}
	families, err := from.Gather()
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := make(map[string]string, len(m.GetLabel()))
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["route"] == route {
				// A metric is either; the other's value is zero.
				r.take(family.GetName(), labels, m.GetCounter().GetValue()+m.GetGauge().GetValue())
			}
		}
	}
	return r, err
}

// take puts one sample in its place.
func (r *Reading) take(name string, labels map[string]string, v float64) {
	switch name {
	case "spillway_live_outcomes_total":
		switch labels["outcome"] {
		case "SUCCEEDED", "REJECTED":
			r.Final += v
		}
	case "spillway_replay_finished_total":
		switch labels["became"] {
		case "SUCCEEDED", "FAILED":
			r.Final += v
			r.Replayed += v
		}
	case "spillway_compensator_settled_total":
		switch labels["became"] {
		case "SUCCEEDED", "FAILED":
			r.Final += v
			r.Settled += v
		case "REPLAYING":
			r.Settled += v
		}
	case "spillway_breaker_moves_total":
		if labels["to"] == "open" {
			r.Opened += v
		}
	case "spillway_breaker_state":
		r.Breakers[labels["endpoint"]] = breakerState(v)
	case "spillway_binding_constraint":
		if v == 1 {
			r.Constraint = labels["constraint"]
		}
	case "spillway_permits_in_use":
		r.InUse[labels["lane"]] = v
	case "spillway_replay_depth":
		r.Replay[labels["state"]] = v
	case "spillway_processing_orders":
		r.Processing[labels["phase"]] = v
	case "spillway_oldest_processing_seconds":
		r.Oldest = time.Duration(max(v, 0) * float64(time.Second))
	default:
		if field := r.plain(name); field != nil {
			*field = v
		}
	}
}

// plain is the field of a metric without labels but the route.
func (r *Reading) plain(name string) *float64 {
	switch name {
	case "spillway_consumed_records_total":
		return &r.Consumed
	case "spillway_pauses_total":
		return &r.Pauses
	case "spillway_spilled_orders_total":
		return &r.Spilled
	case "spillway_kafka_lag_records":
		return &r.Lag
	case "spillway_assigned_partitions":
		return &r.Assigned
	case "spillway_paused_partitions":
		return &r.Paused
	case "spillway_prefetched_records":
		return &r.Prefetched
	case "spillway_prefetched_bytes":
		return &r.PrefetchBytes
	case "spillway_prefetch_target_bytes":
		return &r.PrefetchTarget
	case "spillway_permits":
		return &r.Permits
	case "spillway_dead_letters":
		return &r.Dead
	}
	return nil
}

// breakerState names the number that the metric gives a state.
func breakerState(level float64) string {
	switch level {
	case 0:
		return "closed"
	case 1:
		return "half-open"
	case 2:
		return "open"
	}
	return "unknown"
}
