package downstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/order"
)

// three returns a handler for three instances that answer as they are told.
func three(t *testing.T, cfg Ejection, answers ...http.HandlerFunc) (*HTTP, []*service, *prometheus.Registry) {
	t.Helper()
	services := make([]*service, len(answers))
	reg := prometheus.NewRegistry()
	c := Config{Ejection: cfg, Route: "payments", Registerer: reg}
	for i, answer := range answers {
		services[i] = newService(t, answer)
		if i > 0 {
			c.Others = append(c.Others, services[i].URL)
		}
	}
	c.URL = services[0].URL
	h := newHTTP(t, c)
	h.ends.choice.shy = time.Millisecond // the tests have no seconds to wait for the next call to a failing instance
	return h, services, reg
}

func well(http.ResponseWriter, *http.Request) {}

func failing(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }

// gauges reads a metric of all instances by index.
func gauges(t *testing.T, reg *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			for _, l := range m.GetLabel() {
				if l.GetName() == "endpoint" {
					out[l.GetValue()] = value
				}
			}
		}
	}
	return out
}

// until calls f until it says so, for ten seconds at most.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); {
		if time.Now().After(end) {
			t.Fatalf("not within ten seconds: %s", what)
		}
	}
}

func TestBadInstanceGetsNoMoreCallsAndItsFailuresAreItsOwn(t *testing.T) {
	t.Parallel()
	h, services, reg := three(t, Ejection{Wait: time.Hour, WaitMax: time.Hour}, well, failing, well)
	counted, own := 0, 0
	until(t, "the failing instance is out", func() bool {
		a := h.Submit(within(t, 5*time.Second), testOrder("T-1"))
		failed := a.Outcome == order.OutcomeUnknown
		switch {
		case !failed && (a.Outcome != order.OutcomeSucceeded || a.OneInstance):
			t.Fatalf("answer %+v", a)
		case failed && !strings.HasPrefix(a.Detail, "endpoint 1: "):
			t.Errorf("detail %q does not name the instance", a.Detail)
		case a.OneInstance:
			own++
		case failed:
			counted++
		}
		return gauges(t, reg, "spillway_endpoint_ejected")["1"] == 1
	})
	if counted != 3 || own != 2 {
		t.Errorf("%d failures for the breaker and %d for the instance: want 3 and 2", counted, own)
	}
	before := len(services[1].log())
	for range 50 {
		if a := h.Submit(within(t, 5*time.Second), testOrder("T-2")); a.Outcome != order.OutcomeSucceeded {
			t.Fatalf("answer %+v", a)
		}
		if f := h.Lookup(within(t, 5*time.Second), testOrder("T-2")); f.OneInstance {
			t.Fatalf("finding %+v", f)
		}
	}
	if after := len(services[1].log()); after != before {
		t.Errorf("%d calls went to the instance that is out", after-before)
	}
	if a, b := len(services[0].log()), len(services[2].log()); a < 10 || b < 10 {
		t.Errorf("the others got %d and %d calls", a, b)
	}
}

func TestFlappingInstanceIsTakenOutAgainAndComesBackInTheEnd(t *testing.T) {
	t.Parallel()
	var ill atomic.Bool
	ill.Store(true)
	h, _, reg := three(t, Ejection{Wait: 5 * time.Millisecond, WaitMax: 20 * time.Millisecond},
		func(w http.ResponseWriter, _ *http.Request) {
			if ill.Load() {
				cutConn(t, w, "")
			}
		}, well, well)
	submit := func() { h.Submit(within(t, 5*time.Second), testOrder("T-1")) }
	out := func() bool { return gauges(t, reg, "spillway_endpoint_ejected")["0"] == 1 }
	total := func() float64 { return gauges(t, reg, "spillway_endpoint_ejections_total")["0"] }
	for round := range 3 {
		ill.Store(true)
		until(t, "it is taken out", func() bool { submit(); return out() })
		ill.Store(false)
		until(t, "it is back", func() bool { submit(); return !out() })
		if n := total(); n < float64(round+1) {
			t.Fatalf("%v ejections after round %d", n, round+1)
		}
	}
}

func TestSlowInstanceGetsFewerCallsAndIsNotTakenOut(t *testing.T) {
	t.Parallel()
	slow := func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-r.Context().Done():
		}
	}
	quick := func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(2 * time.Millisecond):
		case <-r.Context().Done():
		}
	}
	h, services, reg := three(t, Ejection{}, slow, quick, quick)
	var done sync.WaitGroup
	for range 8 {
		done.Go(func() {
			for range 30 {
				if a := h.Submit(within(t, 10*time.Second), testOrder("T-1")); a.Outcome != order.OutcomeSucceeded {
					t.Errorf("answer %+v", a)
				}
			}
		})
	}
	done.Wait()
	if n := len(services[0].log()); n > 60 { // a fair third were 80
		t.Errorf("%d of 240 calls went to the slow instance", n)
	}
	if out := gauges(t, reg, "spillway_endpoint_ejected"); len(out) != 3 || out["0"]+out["1"]+out["2"] != 0 {
		t.Errorf("taken out: %v", out)
	}
}

func TestInstanceThatIsGoneIsTakenOutAsNotSent(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s := newService(t, well)
	reg := prometheus.NewRegistry()
	h := newHTTP(t, Config{URL: gone, Others: []string{s.URL}, Route: "payments", Registerer: reg, Ejection: Ejection{Wait: time.Hour, WaitMax: time.Hour}})
	h.ends.choice.shy = time.Millisecond
	until(t, "the instance is out", func() bool {
		a := h.Submit(within(t, 5*time.Second), testOrder("T-1"))
		if a.Outcome == order.OutcomeNotSent && a.Sent {
			t.Errorf("answer %+v", a)
		}
		return gauges(t, reg, "spillway_endpoint_ejected")["0"] == 1
	})
	for range 20 {
		if a := h.Submit(within(t, 5*time.Second), testOrder("T-2")); a.Outcome != order.OutcomeSucceeded {
			t.Fatalf("answer %+v", a)
		}
	}
}

// TestCallsAtOnceLeaveNothingInFlight has instances that cut, stop and answer, under calls that are cancelled.
func TestCallsAtOnceLeaveNothingInFlight(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	h, _, reg := three(t, Ejection{Wait: time.Millisecond, WaitMax: 2 * time.Millisecond},
		well,
		func(w http.ResponseWriter, _ *http.Request) {
			if n.Add(1)%3 == 0 {
				cutConn(t, w, "")
			}
		},
		func(_ http.ResponseWriter, r *http.Request) {
			if n.Add(1)%5 == 0 {
				<-r.Context().Done()
			}
		})
	cause := errors.New("enough")
	var done sync.WaitGroup
	for worker := range 8 {
		done.Go(func() {
			for i := range 40 {
				ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, cause)
				if (worker+i)%7 == 0 {
					cancel()
				}
				h.Submit(ctx, testOrder("T-1"))
				h.Lookup(ctx, testOrder("T-1"))
				cancel()
			}
		})
	}
	done.Wait()
	for i, v := range gauges(t, reg, "spillway_endpoint_in_flight") {
		if v != 0 {
			t.Errorf("instance %s: %v calls in flight after all are over", i, v)
		}
	}
}

func TestInstancesThatDifferInMoreThanTheirHostsAreRefused(t *testing.T) {
	t.Parallel()
	for name, others := range map[string][]string{
		"scheme": {"https://b:8080/v1"}, "path": {"http://b:8080/v2"}, "the first again": {"http://A:8080/v1/"},
		"twice": {"http://b/v1", "http://b:80/v1"}, "query": {"http://b/v1?x=1"}, "user": {"http://u:CANARY@b/v1"}, "empty": {""},
		"many": strings.Split(strings.Repeat("http://b/v1 ", MaxEndpoints), " "),
	} {
		_, err := New(Config{URL: "http://a:8080/v1", Others: others, Submit: Request{Path: "/pay"}, Lookup: Request{Path: "/pay/{number}"}})
		if err == nil || !strings.HasPrefix(err.Error(), "others: ") || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	h := newHTTP(t, Config{URL: "http://a:8080/v1", Others: []string{"http://b:8080/v1/"}})
	if got := strings.Join(h.ends.hosts, " "); got != "a:8080 b:8080" {
		t.Errorf("hosts %q", got)
	}
}

func BenchmarkSubmitToOneOfThree(b *testing.B) {
	h, err := New(Config{
		URL: "http://a", Others: []string{"http://b", "http://c"}, Submit: Request{Path: "/pay"}, Lookup: Request{Path: "/pay/{number}"},
	})
	if err != nil {
		b.Fatal(err)
	}
	o := testOrder("T-1")
	b.ReportAllocs()
	for b.Loop() {
		req, bad := h.request(&h.submit, o)
		if bad != nil {
			b.Fatal(bad.detail)
		}
		h.ends.done(h.ends.direct(req), order.OutcomeSucceeded, "")
	}
}
