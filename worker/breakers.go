package worker

import (
	"net/http"
	"sync"
	"time"

	"spillway/breaker"
	"spillway/internal/admin"
)

// breakerMoves remembers each breaker's latest move. It is safe for concurrent use; its zero value remembers none.
type breakerMoves struct {
	mu     sync.Mutex // guards latest
	latest map[breaker.Key]breaker.Event
}

// note takes a move in. Two moves of one breaker may come in either order; the later one stays.
func (m *breakerMoves) note(e breaker.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.latest == nil {
		m.latest = make(map[breaker.Key]breaker.Event)
	}
	if known, ok := m.latest[e.Key]; !ok || known.Generation < e.Generation {
		m.latest[e.Key] = e
	}
}

func (m *breakerMoves) of(key breaker.Key) (breaker.Event, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.latest[key]
	return e, ok
}

// breakerView is a breaker for the admin command. move is its latest one; the zero Event where none is known.
func breakerView(s breaker.Snapshot, move breaker.Event) admin.Breaker {
	v := admin.Breaker{
		Route: s.Key.Service, Endpoint: s.Key.Endpoint, State: s.State.String(), Mode: s.Mode.String(),
		Force: s.Force.String(), ForceEnds: s.ForceEnds.UTC(), Since: s.Since.UTC(), NextProbe: s.NextProbe.UTC(),
		Share: s.Share, Streak: s.Streak,
		Failure: admin.Window{Samples: s.FailureSamples, Bad: s.Failures, Rate: s.FailureRate, Bound: s.FailureBound},
		Slow:    admin.Window{Samples: s.SlowSamples, Bad: s.SlowCalls, Rate: s.SlowRate, Bound: s.SlowBound},
		Opened:  s.Totals.Opened, Admitted: s.Totals.Admitted, Refused: s.Totals.Refused, WouldRefuse: s.Totals.WouldRefuse,
	}
	if move.Reason != breaker.ReasonNone {
		v.LastReason, v.LastMove = move.Reason.String(), move.At.UTC()
	}
	return v
}

// serveBreakers answers GET /breakers: this worker's breakers as they are now, submit before lookup for each route.
func (w *Worker) serveBreakers(rw http.ResponseWriter, _ *http.Request) {
	report := admin.WorkerBreakers{Owner: w.owner, At: time.Now().UTC(), Breakers: []admin.Breaker{}}
	for _, r := range w.routes {
		for _, b := range r.breakers {
			move, _ := w.health.moves.of(b.Key())
			report.Breakers = append(report.Breakers, breakerView(b.Snapshot(), move))
		}
	}
	rw.Header().Set("Content-Type", "application/json")
	_ = admin.WriteJSON(rw, report) // the asker may be gone
}
