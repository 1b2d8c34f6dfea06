package worker

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"spillway/internal/admin"
)

// health is what /readyz says: a list of names, each well or with the reason why not.
type health struct {
	mu     sync.Mutex
	checks map[string]string // name → reason, empty when well

	moves breakerMoves // of the breakers, for /breakers
}

func newHealth() *health {
	return &health{checks: map[string]string{"start": "the first look has not been taken"}}
}

func (h *health) set(name string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.checks, "start")
	h.checks[name] = ""
	if err != nil {
		h.checks[name] = err.Error()
	}
}

// report is the body of /readyz.
type report struct {
	Ready  bool              `json:"ready"`
	Checks map[string]string `json:"checks"`
}

func (h *health) report() report {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := report{Ready: true, Checks: map[string]string{}}
	for name, reason := range h.checks {
		r.Checks[name] = "ok"
		if reason != "" {
			r.Ready, r.Checks[name] = false, reason
		}
	}
	return r
}

// serveHTTP serves /metrics, /livez, /readyz, /breakers and /lanes until ctx ends.
func (w *Worker) serveHTTP(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(w.opts.Registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc("GET /livez", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = rw.Write([]byte("ok\n")) // the asker may be gone
	})
	mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, _ *http.Request) {
		r := w.health.report()
		rw.Header().Set("Content-Type", "application/json")
		if !r.Ready {
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(rw).Encode(r) // the asker may be gone
	})
	mux.HandleFunc("GET "+admin.BreakersPath, w.serveBreakers)
	mux.HandleFunc("GET "+admin.LanesPath, w.serveLanes)
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // Serve says what matters
	defer stop()
	if err := server.Serve(w.listen); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
