package worker

import (
	"net/http"
	"time"

	"spillway/consumer"
	"spillway/internal/admin"
)

// laneView is a route's live lane for people.
func laneView(route string, s consumer.Status) admin.Lane {
	v := admin.Lane{
		Route: route, Constraint: string(s.Constraint), Holds: []string{}, Partitions: s.Assigned, Paused: s.Paused,
		InFlight: s.InFlight, Queued: s.Queued, HeldBytes: s.HeldBytes, Lag: s.Lag,
	}
	for _, why := range s.Holds {
		v.Holds = append(v.Holds, why.String())
	}
	if h := s.Head; h != (consumer.Head{}) {
		v.Head = &admin.Head{
			Partition: h.Partition, Offset: h.Offset, Number: h.Number, Seconds: h.For.Seconds(), Behind: h.Behind, At: string(h.At),
		}
	}
	return v
}

// serveLanes answers GET /lanes: this worker's live lanes as they are now.
func (w *Worker) serveLanes(rw http.ResponseWriter, _ *http.Request) {
	report := admin.WorkerLanes{Owner: w.owner, At: time.Now().UTC(), Lanes: []admin.Lane{}}
	for _, r := range w.routes {
		report.Lanes = append(report.Lanes, laneView(r.cfg.Name, r.lane.Level()))
	}
	rw.Header().Set("Content-Type", "application/json")
	_ = admin.WriteJSON(rw, report) // the asker may be gone
}
