package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"spillway/bench/rig"
)

// stubEnv makes this program the downstream service instead of the benchmark.
const stubEnv = "SPILLWAY_BENCH_STUB"

// mood is how the stub answers from now on.
type mood struct {
	Latency time.Duration `json:"latency"`
	// Failing of a thousand submits are answered 500 after the latency. Every other one of them was applied.
	Failing int `json:"failing"`
}

// reading is what the stub has seen.
type reading struct {
	Submits  int64         `json:"submits"`
	Failures int64         `json:"failures"`
	Lookups  int64         `json:"lookups"`
	Flying   int64         `json:"flying"`
	Most     int64         `json:"most"` // in flight at once since the last change of mood
	Held     time.Duration `json:"held"` // by all submits together
}

// stub is a service that takes its time. It is in a process of its own.
type stub struct {
	mood             atomic.Pointer[mood]
	waits            *rig.Waits
	one              sync.Mutex // guards what follows
	now              reading
	submits, applied []uint8 // how often, by order
}

// runStub serves until its standard input ends, so that it never outlives the benchmark. It prints its address.
func runStub(ctx context.Context) error {
	s := &stub{waits: rig.NewWaits()}
	s.mood.Store(&mood{Latency: 10 * time.Millisecond})
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.submit)
	mux.HandleFunc("GET /orders/{number}", s.lookup)
	mux.HandleFunc("POST /mood", s.change)
	mux.HandleFunc("GET /reading", s.read)
	mux.HandleFunc("GET /counts/{what}", s.all)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends with whoever holds the other end
		_ = server.Close()
	}()
	if _, err := fmt.Println(l.Addr()); err != nil {
		return err
	}
	if err := server.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// enter counts a call in, and says how this one goes.
func (s *stub) enter(number string, submit bool) (fails bool) {
	m := s.mood.Load()
	s.one.Lock()
	defer s.one.Unlock()
	s.now.Flying++
	s.now.Most = max(s.now.Most, s.now.Flying)
	if !submit {
		s.now.Lookups++
		return false
	}
	s.now.Submits++
	// Evenly among the calls, so that a short window has its share.
	fails = m.Failing > 0 && s.now.Submits%int64(1000/m.Failing) == 0
	if fails {
		s.now.Failures++
	}
	if i, ok := index(number); ok {
		for len(s.submits) <= i {
			s.submits = append(s.submits, make([]uint8, max(1<<16, len(s.submits)))...)
			s.applied = append(s.applied, make([]uint8, len(s.submits)-len(s.applied))...)
		}
		s.submits[i] = min(s.submits[i], 254) + 1
		if !fails || s.now.Failures%2 == 0 {
			s.applied[i] = min(s.applied[i], 254) + 1
		}
	}
	return fails
}

func (s *stub) leave(held time.Duration) {
	s.one.Lock()
	defer s.one.Unlock()
	s.now.Flying--
	s.now.Held += held
}

func (s *stub) submit(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	fails := s.enter(r.Header.Get("Idempotency-Key"), true)
	_, _ = io.Copy(io.Discard, r.Body) // a body cut short still took its time
	s.waits.Wait(s.mood.Load().Latency)
	s.leave(time.Since(began))
	if fails {
		http.Error(w, "by chance", http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, `{"status":"SUCCEEDED"}`) // the caller is told by the broken connection
}

func (s *stub) lookup(w http.ResponseWriter, r *http.Request) {
	_ = s.enter("", false)
	defer s.leave(0)
	s.waits.Wait(time.Millisecond)
	s.one.Lock()
	i, ok := index(r.PathValue("number"))
	known := ok && i < len(s.applied) && s.applied[i] > 0
	s.one.Unlock()
	if !known {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_, _ = io.WriteString(w, `{"status":"SUCCEEDED"}`)
}

// change sets the mood and begins a new count of the most in flight.
func (s *stub) change(w http.ResponseWriter, r *http.Request) {
	var m mood
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil || m.Failing < 0 || m.Failing > 1000 {
		http.Error(w, "want a mood", http.StatusBadRequest)
		return
	}
	s.mood.Store(&m)
	s.one.Lock()
	s.now.Most = s.now.Flying
	s.one.Unlock()
}

func (s *stub) read(w http.ResponseWriter, _ *http.Request) {
	s.one.Lock()
	now := s.now
	s.one.Unlock()
	_ = json.NewEncoder(w).Encode(now) // the reader is told by the broken connection
}

// all answers how often each order was submitted, or applied, a byte each.
func (s *stub) all(w http.ResponseWriter, r *http.Request) {
	s.one.Lock()
	counts := slices.Clone(s.submits)
	if r.PathValue("what") == "applied" {
		counts = slices.Clone(s.applied)
	}
	s.one.Unlock()
	_, _ = w.Write(counts) // the reader is told by the broken connection
}

// index is the place of an order in the topic, by its number.
func index(number string) (int, bool) {
	digits, ok := strings.CutPrefix(number, "T-")
	if !ok {
		return 0, false
	}
	i, err := strconv.Atoi(digits)
	return i, err == nil && i >= 0 && i < 1<<26
}
