package worker

import (
	"testing"

	"spillway/breaker"
	"spillway/internal/config"
)

func TestOnlyBreakersOfSharedScopeAreShared(t *testing.T) {
	t.Parallel()
	w := &Worker{}
	for _, scope := range []string{config.ScopeWorker, config.ScopeShared, config.ScopeWorker} {
		r := &route{cfg: &config.Route{Breaker: config.Breaker{Scope: scope}}}
		for i := range r.breakers {
			b, err := breaker.New(breaker.Key{Service: scope}, breaker.Config{}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.breakers[i] = b
		}
		w.routes = append(w.routes, r)
	}
	got := w.sharedBreakers()
	if len(got) != 2 || got[0] != w.routes[1].breakers[0] || got[1] != w.routes[1].breakers[1] {
		t.Errorf("%d breakers are shared, want the two of the second route", len(got))
	}
}
