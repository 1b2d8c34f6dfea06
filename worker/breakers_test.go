package worker

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"spillway/breaker"
	"spillway/internal/admin"
)

func TestBreakersAreServedWithTheirLatestMove(t *testing.T) {
	t.Parallel()
	w := &Worker{owner: "host-1", health: newHealth()}
	r := &route{}
	for i, endpoint := range []string{"submit", "lookup"} {
		b, err := breaker.New(breaker.Key{Service: "wallet", Endpoint: endpoint}, breaker.Config{ConsecutiveFailures: 2}, nil, w.health.moves.note)
		if err != nil {
			t.Fatal(err)
		}
		r.breakers[i] = b
	}
	w.routes = []*route{r}
	for range 2 {
		p, ok := r.breakers[0].Allow()
		if !ok {
			t.Fatal("a closed breaker refuses")
		}
		r.breakers[0].Done(p, breaker.Failure)
	}
	r.breakers[0].Allow() // refused

	rec := httptest.NewRecorder()
	w.serveBreakers(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/breakers", nil))
	var got admin.WorkerBreakers
	if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Owner != "host-1" || len(got.Breakers) != 2 || rec.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("answer %+v", got)
	}
	submit, lookup := got.Breakers[0], got.Breakers[1]
	if submit.Route != "wallet" || submit.Endpoint != "submit" || submit.State != "open" || submit.Mode != "enforce" || submit.Opened != 1 ||
		submit.Refused != 1 || submit.Admitted != 2 || submit.LastReason != "consecutive-failures" || submit.LastMove.IsZero() ||
		!submit.NextProbe.After(submit.Since) || submit.Share != 0 {
		t.Errorf("submit %+v", submit)
	}
	if lookup.Endpoint != "lookup" || lookup.State != "closed" || lookup.LastReason != "" || !lookup.NextProbe.IsZero() || lookup.Share != 1 {
		t.Errorf("lookup %+v", lookup)
	}
}

func TestOfTwoMovesTheLaterOneIsRemembered(t *testing.T) {
	t.Parallel()
	var m breakerMoves
	key := breaker.Key{Service: "wallet", Endpoint: "submit"}
	at := time.Unix(1, 0)
	m.note(breaker.Event{Key: key, Generation: 2, Reason: breaker.ReasonWaitOver, At: at})
	m.note(breaker.Event{Key: key, Generation: 1, Reason: breaker.ReasonFailureRate, At: at})
	if e, ok := m.of(key); !ok || e.Reason != breaker.ReasonWaitOver {
		t.Errorf("remembered %+v", e)
	}
	if _, ok := m.of(breaker.Key{}); ok {
		t.Error("a move of a breaker that made none")
	}
}
