package wallet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Config holds the numbers of a wallet. The zero value is a service that answers at once and uses no key.
type Config struct {
	// Dedupe makes the service use the key: a number that was applied is not applied again.
	Dedupe bool
	// Seed is of what is drawn by chance.
	Seed uint64
	// MaxHang bounds a hang, default 30 s.
	MaxHang time.Duration
	// MaxBody bounds a body in bytes, default 4 MiB; a larger one is answered 413.
	MaxBody int64
	// Mode at the start.
	Mode Mode
}

// Wallet is the service: an http.Handler. It is safe for concurrent use.
type Wallet struct {
	config Config
	ledger ledger
	mux    *http.ServeMux

	mu   sync.Mutex // guards mode and rng
	mode Mode
	rng  *rand.Rand
}

// New makes a service. It panics on a mode that can't be, which is the programmer's.
func New(c Config) *Wallet {
	if c.MaxHang == 0 {
		c.MaxHang = 30 * time.Second
	}
	if c.MaxBody == 0 {
		c.MaxBody = 4 << 20
	}
	w := &Wallet{config: c, ledger: ledger{entries: map[string]*Entry{}}, mux: http.NewServeMux()}
	w.rng = rand.New(rand.NewPCG(c.Seed, 0x5bd1e995)) //nolint:gosec // faults by chance, not secrets
	w.SetMode(c.Mode)
	w.mux.HandleFunc("POST /pay", w.pay)
	w.mux.HandleFunc("GET /pay/", w.lookup) // not {number}, which does not match a number that is a slash
	return w
}

// ServeHTTP answers POST /pay and GET /pay/{number}.
func (w *Wallet) ServeHTTP(rw http.ResponseWriter, r *http.Request) { w.mux.ServeHTTP(rw, r) }

// SetMode switches how the service behaves. Requests under way keep the behaviour they got. It panics on a mode that
// can't be; ParseMode checks one that came from outside.
func (w *Wallet) SetMode(m Mode) {
	if err := m.check(); err != nil {
		panic(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mode = m
}

// Mode returns how the service behaves now.
func (w *Wallet) Mode() Mode {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mode
}

// fate is what was drawn for one request.
type fate struct {
	Behaviour
	latency       time.Duration
	applied, late bool
	undecided     bool
}

// draw chooses what happens to a request.
func (w *Wallet) draw(lookup bool) (fate, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	from := w.mode.Pay
	if lookup {
		from = w.mode.Lookup
	}
	f := fate{Behaviour: Behaviour{Kind: Answer}, undecided: w.mode.Undecided}
	total := 0
	for _, b := range from {
		total += max(b.Weight, 1)
	}
	if total > 0 {
		n := w.rng.IntN(total)
		for _, b := range from {
			if n -= max(b.Weight, 1); n < 0 {
				f.Behaviour = b
				break
			}
		}
	}
	if f.Status == 0 {
		f.Status = http.StatusOK
	}
	f.latency = time.Duration(f.Latency)
	if f.Jitter > 0 {
		f.latency += time.Duration(w.rng.Int64N(int64(f.Jitter) + 1))
	}
	f.applied = w.rng.Float64() < f.Applied || f.Kind == Answer && f.Status < 300
	f.late = w.rng.Float64() < f.Late
	return f, w.mode.Capacity
}

func (w *Wallet) pay(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, w.config.MaxBody))
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			say(rw, http.StatusRequestEntityTooLarge, "error", "the body is too large")
		}
		return // a request that did not arrive whole has no effect
	}
	number := r.Header.Get("Idempotency-Key")
	if why := checkPayment(number, body); why != "" {
		w.ledger.bad()
		say(rw, http.StatusBadRequest, "error", why)
		return
	}
	w.ledger.posted(number, body)
	f, capacity := w.draw(false)
	if !w.ledger.enter(true, capacity) {
		w.ledger.refused()
		rw.Header().Set("Retry-After", "1")
		say(rw, http.StatusServiceUnavailable, "error", "over capacity")
		return
	}
	defer w.ledger.leave(true)
	wait(context.WithoutCancel(r.Context()), f.latency) // a client that gives up does not stop the work
	if f.applied && !f.late {
		w.ledger.apply(number, w.config.Dedupe)
	}
	w.finish(rw, r, f, func() { w.answerPayment(rw, f, number) }, func() {
		if f.applied && f.late {
			w.ledger.apply(number, w.config.Dedupe)
		}
	})
}

// checkPayment says what is wrong with a POST.
func checkPayment(number string, body []byte) string {
	var in struct {
		OrderNo *string `json:"order_no"`
	}
	switch {
	case number == "":
		return "no Idempotency-Key"
	case json.Unmarshal(body, &in) != nil:
		return "the body is not a JSON object with a text order_no"
	case in.OrderNo != nil && *in.OrderNo != number:
		return "order_no is not the Idempotency-Key"
	}
	return ""
}

func (w *Wallet) answerPayment(rw http.ResponseWriter, f fate, number string) {
	if f.Status == http.StatusServiceUnavailable {
		w.ledger.refused()
	}
	if f.RetryAfter > 0 {
		seconds := (time.Duration(f.RetryAfter) + time.Second - 1) / time.Second
		rw.Header().Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	}
	if f.Status < 300 {
		say(rw, f.Status, "order_no", number)
		return
	}
	say(rw, f.Status, "error", http.StatusText(f.Status))
}

func (w *Wallet) lookup(rw http.ResponseWriter, r *http.Request) {
	number, err := url.PathUnescape(strings.TrimPrefix(r.URL.EscapedPath(), "/pay/"))
	if err != nil || number == "" {
		say(rw, http.StatusBadRequest, "error", "no business number in the path")
		return
	}
	w.ledger.lookedUp(number)
	f, capacity := w.draw(true)
	if !w.ledger.enter(false, capacity) {
		w.ledger.refused()
		say(rw, http.StatusServiceUnavailable, "error", "over capacity")
		return
	}
	defer w.ledger.leave(false)
	wait(r.Context(), f.latency)
	w.finish(rw, r, f, func() {
		switch {
		case f.Status >= 300:
			w.answerPayment(rw, f, number)
		case !w.ledger.has(number):
			say(rw, http.StatusNotFound, "status", "NOT_FOUND")
		case f.undecided:
			say(rw, http.StatusOK, "status", "PROCESSING")
		default:
			say(rw, http.StatusOK, "status", "SUCCEEDED")
		}
	}, func() {})
}

// finish ends a request in the way of its kind. late runs where a late effect comes.
func (w *Wallet) finish(rw http.ResponseWriter, r *http.Request, f fate, answer, late func()) {
	switch f.Kind {
	case Answer:
		answer()
		late()
	case Hang:
		began := time.Now()
		wait(context.WithoutCancel(r.Context()), min(time.Duration(f.LateBy), w.config.MaxHang))
		late()
		wait(r.Context(), w.config.MaxHang-time.Since(began))
		panic(http.ErrAbortHandler)
	case Reset:
		late()
		panic(http.ErrAbortHandler) // net/http's way to drop the connection
	case Cut:
		rw.Header().Set("Content-Length", "100")
		rw.WriteHeader(http.StatusOK)
		if _, err := io.WriteString(rw, `{"order_no":"`); err == nil {
			_ = http.NewResponseController(rw).Flush() // a client that is gone has its cut already
		}
		late()
		panic(http.ErrAbortHandler)
	}
}

// wait sleeps for d or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// say answers with a JSON object of one text.
func say(rw http.ResponseWriter, status int, name, text string) {
	b, err := json.Marshal(map[string]string{name: text})
	if err != nil {
		status, b = http.StatusInternalServerError, nil
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("Content-Length", strconv.Itoa(len(b)))
	rw.WriteHeader(status)
	_, _ = rw.Write(b) // the client may be gone
}

// Admin returns the service with its switches beside it: GET and PUT /mode, GET /counts, GET /duplicates, POST /forget
// and GET /healthz. It is not meant for an open network.
func (w *Wallet) Admin() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/pay", w)
	mux.Handle("/pay/", w)
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) { say(rw, http.StatusOK, "status", "ok") })
	mux.HandleFunc("GET /mode", func(rw http.ResponseWriter, _ *http.Request) { tell(rw, w.Mode()) })
	mux.HandleFunc("GET /counts", func(rw http.ResponseWriter, _ *http.Request) { tell(rw, w.Counts()) })
	mux.HandleFunc("GET /duplicates", func(rw http.ResponseWriter, _ *http.Request) { tell(rw, append([]string{}, w.Duplicates()...)) })
	mux.HandleFunc("POST /forget", func(rw http.ResponseWriter, _ *http.Request) {
		w.Forget()
		tell(rw, w.Counts())
	})
	mux.HandleFunc("PUT /mode", func(rw http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, 64<<10))
		if err != nil {
			say(rw, http.StatusBadRequest, "error", "the mode did not arrive whole")
			return
		}
		m, err := ParseMode(b)
		if err != nil {
			say(rw, http.StatusBadRequest, "error", err.Error())
			return
		}
		w.SetMode(m)
		tell(rw, m)
	})
	return mux
}

func tell(rw http.ResponseWriter, v any) {
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(v) // the client may be gone
}

// Run serves the wallet and its switches on addr until ctx ends, then gives requests under way a second. ready, which
// may be nil, is told the address once it is listened on.
func (w *Wallet) Run(ctx context.Context, addr string, ready func(net.Addr)) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("wallet: listen on %s: %w", addr, err)
	}
	if ready != nil {
		ready(l.Addr())
	}
	server := &http.Server{
		Handler: w.Admin(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("wallet: serve on %s: %w", addr, err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if server.Shutdown(grace) != nil {
		_ = server.Close() // what still hangs is meant to
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("wallet: serve on %s: %w", addr, err)
	}
	return nil
}
