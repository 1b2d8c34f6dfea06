package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// BreakersPath is where a worker serves WorkerBreakers as JSON, beside its metrics.
const BreakersPath = "/breakers"

// WorkerBreakers is what a worker says of its own breakers.
type WorkerBreakers struct {
	Owner    string    `json:"owner"` // the worker's name in leases and history
	At       time.Time `json:"at"`
	Breakers []Breaker `json:"breakers"`
}

// Breaker is one breaker at one moment.
type Breaker struct {
	Route     string    `json:"route"`
	Endpoint  string    `json:"endpoint"` // submit or lookup
	State     string    `json:"state"`
	Mode      string    `json:"mode"`
	Force     string    `json:"force"`
	ForceEnds time.Time `json:"force_ends,omitzero"`
	Since     time.Time `json:"since"`
	NextProbe time.Time `json:"next_probe,omitzero"` // when an open breaker admits its next call
	Share     float64   `json:"share"`               // of the calls that are admitted, 0 to 1
	Streak    int       `json:"streak"`              // failures in a row
	Failure   Window    `json:"failure"`
	Slow      Window    `json:"slow"`

	Opened      uint64 `json:"opened"` // how often, since the worker started
	Admitted    uint64 `json:"admitted"`
	Refused     uint64 `json:"refused"`
	WouldRefuse uint64 `json:"would_refuse"` // what enforce mode would have refused

	// LastReason is the rule behind the latest move that was announced, and LastMove when that was: empty before the
	// first, and in the modes that announce none.
	LastReason string    `json:"last_reason,omitempty"`
	LastMove   time.Time `json:"last_move,omitzero"`
}

// Window is what one rule of a breaker looks at.
type Window struct {
	Samples int     `json:"samples"`
	Bad     int     `json:"bad"`
	Rate    float64 `json:"rate"`
	Bound   float64 `json:"bound"` // the Wilson lower bound of Rate
}

// FleetBreakers is what several workers said.
type FleetBreakers struct {
	Workers []WorkerAnswer   `json:"workers"`
	History []BreakerHistory `json:"last_24h"` // never null
	// HistoryError is why PostgreSQL did not tell the history.
	HistoryError string `json:"last_24h_error,omitempty"`
}

// WorkerAnswer is what one worker said, or why it said nothing.
type WorkerAnswer struct {
	Worker string `json:"worker"` // the address asked
	Error  string `json:"error,omitempty"`
	*WorkerBreakers
}

// Missing counts the workers that did not answer.
func (f FleetBreakers) Missing() int {
	n := 0
	for _, a := range f.Workers {
		if a.Error != "" {
			n++
		}
	}
	return n
}

// Bounds of asking workers.
const (
	MaxWorkers = 64
	maxAnswer  = 4 << 20
)

// CheckWorker says what is wrong with a worker's address; nil for a legal one. Its error does not show the address's
// user information.
func CheckWorker(address string) error {
	const want = "want http://host:port"
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return errors.New("the worker's address does not parse: " + want)
	case u.User != nil:
		return errors.New("the worker's address holds a user or a password: " + want)
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", strings.Trim(u.Path, "/") != "", u.RawQuery != "", u.Fragment != "":
		return fmt.Errorf("the worker's address is %q: %s", address, want)
	}
	return nil
}

// AskBreakers asks the workers at the addresses, all at once and each within timeout. The answers come in the order of
// the addresses.
func AskBreakers(ctx context.Context, addresses []string, timeout time.Duration) FleetBreakers {
	client := &http.Client{
		Timeout: timeout,
		// Workers are neighbours: no proxy, no redirect to elsewhere.
		Transport:     &http.Transport{DisableKeepAlives: true, ResponseHeaderTimeout: timeout},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	out := FleetBreakers{Workers: make([]WorkerAnswer, len(addresses)), History: []BreakerHistory{}}
	var asked sync.WaitGroup
	for i, address := range addresses {
		asked.Go(func() {
			out.Workers[i].Worker = address
			b, err := askBreakers(ctx, client, address)
			if err != nil {
				out.Workers[i].Error = err.Error()
				return
			}
			out.Workers[i].WorkerBreakers = b
		})
	}
	asked.Wait()
	return out
}

func askBreakers(ctx context.Context, client *http.Client, address string) (*WorkerBreakers, error) {
	if err := CheckWorker(address); err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(address, "/")+BreakersPath, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }() // it was read, or is of no use
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %d: is it a spillway worker of this version?", address+BreakersPath, response.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("%s answers more than %d bytes", address+BreakersPath, maxAnswer)
	}
	var b WorkerBreakers
	if err := json.Unmarshal(body, &b); err != nil {
		return nil, fmt.Errorf("%s does not answer as a worker: %s", address+BreakersPath, err.Error())
	}
	return &b, nil
}

// WriteTable writes the breakers for people, with ages as of now.
func (f FleetBreakers) WriteTable(w io.Writer, now time.Time) error {
	t := newTable(w, "WORKER", "ROUTE", "ENDPOINT", "STATE", "MODE", "SINCE", "FAILURES", "SLOW", "STREAK", "SHARE",
		"NEXT PROBE IN", "OPENED", "REFUSED", "LAST REASON")
	for _, a := range f.Workers {
		if a.WorkerBreakers == nil {
			continue
		}
		for i := range a.Breakers {
			b := &a.Breakers[i]
			state := cell(b.State, 0)
			if b.Force != "" && b.Force != "none" {
				state += " (forced, ends in " + until(b.ForceEnds, now) + ")"
			}
			t.row(cell(a.Worker, 0), cell(b.Route, 0), cell(b.Endpoint, 0), state, cell(b.Mode, 0),
				Age(now.Sub(b.Since)), b.Failure.String(), b.Slow.String(), strconv.Itoa(b.Streak),
				fmt.Sprintf("%.0f%%", 100*b.Share), until(b.NextProbe, now), strconv.FormatUint(b.Opened, 10),
				strconv.FormatUint(b.Refused, 10), cell(b.LastReason, 0))
		}
	}
	if err := t.flush(); err != nil {
		return err
	}
	if err := writeHistory(w, f.History, now); err != nil {
		return err
	}
	if f.HistoryError != "" {
		if _, err := fmt.Fprintf(w, "no history from PostgreSQL: %s\n", Printable(f.HistoryError)); err != nil {
			return err
		}
	}
	for _, a := range f.Workers {
		if a.Error == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "no answer from %s: %s\n", Printable(a.Worker), Printable(a.Error)); err != nil {
			return err
		}
	}
	return nil
}

// String is the window as a share: 3/40 8%.
func (w Window) String() string {
	if w.Samples == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d %.0f%%", w.Bad, w.Samples, 100*w.Rate)
}
