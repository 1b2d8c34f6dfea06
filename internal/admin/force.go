package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"spillway/breaker"
	"spillway/breaker/fleet"
)

// Bounds of what an operator may order, and of what is shown of it.
const (
	MinForce = time.Second
	MaxForce = 720 * time.Hour
	// MaxWhy bounds the reason of an order, in bytes.
	MaxWhy = 200
	// maxOrders is how many orders are shown, of the hundred that are kept.
	maxOrders = 20
)

// aliveFor is how long a worker counts as alive after its latest statement: the lease of the workers' own exchanges.
const aliveFor = 1500 * time.Millisecond

// ErrUnconfirmed is wrapped by the error of an order that may have been taken or not.
var ErrUnconfirmed = errors.New("the order may have been taken or not")

// FleetBreaker is one breaker as the workers share it. Moments are by this machine's clock.
type FleetBreaker struct {
	Route     string        `json:"route"`
	Endpoint  string        `json:"endpoint"` // submit or lookup
	Epoch     uint64        `json:"epoch"`    // of the record; 0 while nobody has moved it
	State     string        `json:"state"`    // what the workers do now, a force included
	Ramping   bool          `json:"ramping"`  // half-open and past the first probes
	Since     time.Time     `json:"since,omitzero"`
	NextProbe time.Time     `json:"next_probe,omitzero"` // when an open breaker admits its next call
	Opens     int           `json:"opens"`               // openings since the service was last in good health
	Force     string        `json:"force"`
	ForceEnds time.Time     `json:"force_ends,omitzero"`
	After     string        `json:"after,omitempty"` // the state that comes after the force
	Reason    string        `json:"reason"`          // the rule behind the latest move
	By        string        `json:"by,omitempty"`    // the worker or operator who made it
	Rate      float64       `json:"rate"`            // what the rule saw
	Bound     float64       `json:"bound"`
	Threshold float64       `json:"threshold"`
	Samples   int           `json:"samples"`
	Failures  int           `json:"failures"`
	Slow      int           `json:"slow"`
	Workers   []FleetWorker `json:"workers"` // those that made a statement lately
	Orders    []FleetOrder  `json:"orders"`  // the latest, newest first
}

// FleetWorker is one worker's statement about a breaker.
type FleetWorker struct {
	Worker  string    `json:"worker"`
	Seen    time.Time `json:"seen"`
	Alive   bool      `json:"alive"`
	Follows bool      `json:"follows"` // alive, and has adopted the record as it is
	State   string    `json:"state"`
	Own     bool      `json:"own"` // its state comes from its own evidence and differs from the record's
	Force   string    `json:"force"`
	Failure Window    `json:"failure"`
	Slow    Window    `json:"slow"`
	Slots   int       `json:"slots"`  // first probes it may run at once
	Probing int       `json:"probes"` // first probes it runs
}

// FleetOrder is an order that somebody gave.
type FleetOrder struct {
	At       time.Time `json:"at"` // by the clock of Redis
	Order    string    `json:"order"`
	Ends     time.Time `json:"ends,omitzero"` // zero for a release
	Operator string    `json:"operator"`
	Reason   string    `json:"reason"`
	Epoch    uint64    `json:"epoch"` // of the record that carries it
}

// ForceAnswer is what became of an order.
type ForceAnswer struct {
	Route    string     `json:"route"`
	Endpoint string     `json:"endpoint"`
	Order    FleetOrder `json:"order"`
	Workers  int        `json:"workers"` // that were alive when it was given
	Follow   int        `json:"follow"`  // of them, those that were seen to have taken it
}

// ShowFleetBreaker reads what the store knows of a breaker, and the latest orders for it.
func ShowFleetBreaker(ctx context.Context, store fleet.Store, key breaker.Key, now time.Time) (FleetBreaker, error) {
	views, err := store.Look(ctx, []breaker.Key{key})
	if err != nil {
		return FleetBreaker{}, err
	}
	notes, err := store.Audit(ctx, key, maxOrders)
	if err != nil {
		return FleetBreaker{}, err
	}
	f := fleetBreaker(key, views[0], now)
	f.Orders = make([]FleetOrder, len(notes))
	for i := range notes {
		f.Orders[i] = fleetOrder(&notes[i])
	}
	return f, nil
}

func fleetBreaker(key breaker.Key, v fleet.View, now time.Time) FleetBreaker {
	r := &v.Record
	force := standing(r)
	f := FleetBreaker{
		Route: key.Service, Endpoint: key.Endpoint, Epoch: r.Epoch, State: r.State.String(), Ramping: r.Ramping, Opens: r.Opens,
		Force: force.String(), Reason: r.Why.Reason.String(), By: r.By, Rate: r.Why.Rate, Bound: r.Why.Bound,
		Threshold: r.Why.Threshold, Samples: r.Why.Samples, Failures: r.Why.Failures, Slow: r.Why.Slow, Workers: []FleetWorker{},
	}
	if r.Epoch > 0 {
		f.Since = now.Add(-r.Age).UTC()
	}
	if r.State == breaker.Open && r.Wait > r.Age {
		f.NextProbe = now.Add(r.Wait - r.Age).UTC()
	}
	if force != breaker.ForceNone {
		f.ForceEnds = now.Add(r.ForceLeft).UTC()
	}
	switch force {
	case breaker.ForceOpen:
		f.State, f.After, f.NextProbe = breaker.Open.String(), f.State, f.ForceEnds
	case breaker.ForceClosed:
		f.State, f.After = breaker.Closed.String(), f.State
	case breaker.ForceNone, breaker.ForceObserve:
	}
	for i := range v.Members {
		m := &v.Members[i]
		e := &m.Evidence
		alive := m.Seen <= aliveFor
		f.Workers = append(f.Workers, FleetWorker{
			Worker: m.Worker, Seen: now.Add(-m.Seen).UTC(), Alive: alive, Follows: alive && e.Epoch >= r.Epoch,
			State: e.State.String(), Own: e.Own, Force: e.Force.String(), Slots: e.Slots, Probing: e.Probing,
			Failure: window(e.Failure, e.Failure.Failures), Slow: window(e.Slow, e.Slow.Slow),
		})
	}
	slices.SortFunc(f.Workers, func(a, b FleetWorker) int { return cmp.Compare(a.Worker, b.Worker) })
	return f
}

// standing is the force of a record that has not run out. A record keeps one until a worker takes it off.
func standing(r *breaker.Record) breaker.Force {
	if r.ForceLeft <= 0 {
		return breaker.ForceNone
	}
	return r.Force
}

func window(w breaker.Window, bad int) Window {
	out := Window{Samples: w.Samples, Bad: bad}
	if w.Samples > 0 {
		out.Rate = float64(bad) / float64(w.Samples)
		out.Bound = out.Rate
	}
	return out
}

func fleetOrder(n *fleet.Note) FleetOrder {
	o := FleetOrder{At: n.At, Order: orderName(n.Force), Operator: n.Operator, Reason: n.Reason, Epoch: n.Epoch}
	if n.Force != breaker.ForceNone {
		o.Ends = n.At.Add(n.For)
	}
	return o
}

// orderName is an order as the command that gives it is called.
func orderName(f breaker.Force) string {
	switch f {
	case breaker.ForceNone:
		return "release"
	case breaker.ForceOpen:
		return "force-open"
	case breaker.ForceClosed:
		return "force-close"
	case breaker.ForceObserve:
		return "observe"
	}
	return f.String()
}

// GiveOrder puts an order into the shared record, then waits for at most patience until every worker that is alive has
// taken it; how many have is in the answer. An order that was taken by nobody yet stands all the same. The error wraps
// fleet.ErrNotForced for a release of nothing, and ErrUnconfirmed when the answer to the change itself was lost.
func GiveOrder(ctx context.Context, store fleet.Store, o fleet.Order, patience time.Duration) (ForceAnswer, error) {
	asked := &asking{Store: store}
	record, err := fleet.Give(ctx, asked, o)
	if err != nil {
		if asked.lost {
			err = fmt.Errorf("%w: %w", ErrUnconfirmed, err)
		}
		return ForceAnswer{}, err
	}
	a := ForceAnswer{Route: o.Key.Service, Endpoint: o.Key.Endpoint, Order: FleetOrder{
		At: time.Now().UTC(), Order: orderName(o.Force), Operator: o.Operator, Reason: o.Reason, Epoch: record.Epoch,
	}}
	if o.Force != breaker.ForceNone {
		a.Order.Ends = a.Order.At.Add(o.For)
	}
	a.Workers, a.Follow = awaitFollowers(ctx, store, o.Key, record.Epoch, patience)
	return a, nil
}

// asking remembers whether a change was asked for and not answered.
type asking struct {
	fleet.Store
	lost bool
}

// Move implements fleet.Store.
func (s *asking) Move(ctx context.Context, moves []fleet.Move) ([]bool, error) {
	done, err := s.Store.Move(ctx, moves)
	s.lost = err != nil
	return done, err
}

// awaitFollowers looks until every worker alive has adopted a record of an epoch, and counts them. The order is given
// by then, so what goes wrong here only leaves fewer known to follow.
func awaitFollowers(ctx context.Context, store fleet.Store, key breaker.Key, epoch uint64, patience time.Duration) (alive, follow int) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if views, err := store.Look(ctx, []breaker.Key{key}); err == nil {
			alive, follow = 0, 0
			for i := range views[0].Members {
				m := &views[0].Members[i]
				if m.Seen > aliveFor {
					continue
				}
				alive++
				if m.Evidence.Epoch >= epoch {
					follow++
				}
			}
			if follow == alive {
				return alive, follow
			}
		}
		select {
		case <-ctx.Done():
			return alive, follow
		case <-tick.C:
		}
	}
}

// Write writes what became of an order, for people.
func (a *ForceAnswer) Write(w io.Writer, now time.Time) error {
	s := &sheet{w: w}
	text := a.Order.Order
	if !a.Order.Ends.IsZero() {
		text += " until " + when(a.Order.Ends, now)
	}
	s.line("breaker %s/%s: %s", Printable(a.Route), Printable(a.Endpoint), text)
	switch {
	case a.Workers == 0:
		s.line("  no worker is alive; those that start take it")
	case a.Follow < a.Workers:
		s.line("  %d of %d workers have taken it so far", a.Follow, a.Workers)
	default:
		s.line("  taken by all workers: %d", a.Workers)
	}
	return s.err
}

// Write writes a breaker for people.
func (f *FleetBreaker) Write(w io.Writer, now time.Time) error {
	s := &sheet{w: w}
	state := f.State
	if f.Ramping && f.State == breaker.HalfOpen.String() {
		state += ", ramping"
	}
	s.line("breaker %s/%s: %s", Printable(f.Route), Printable(f.Endpoint), state)
	if f.Force != breaker.ForceNone.String() {
		s.field("force", f.Force+", ends "+when(f.ForceEnds, now))
		s.field("then", f.After)
	}
	if f.Epoch == 0 {
		s.field("record", "none: nobody has moved it yet")
	} else {
		s.field("since", when(f.Since, now))
		if !f.NextProbe.IsZero() {
			s.field("next probe", when(f.NextProbe, now))
		}
		s.field("reason", f.Reason+f.evidence())
		s.field("by", Printable(f.By))
		s.field("openings", fmt.Sprintf("%d since it was last well", f.Opens))
		s.field("epoch", fmt.Sprint(f.Epoch))
	}
	s.line("")
	if s.err != nil {
		return s.err
	}
	if err := f.writeWorkers(w, now); err != nil {
		return err
	}
	s.line("")
	if s.err != nil {
		return s.err
	}
	return f.writeOrders(w, now)
}

// evidence is what the rule behind the latest move saw.
func (f *FleetBreaker) evidence() string {
	if f.Samples == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d failures and %d slow of %d: rate %.2f, bound %.2f, threshold %g)", f.Failures, f.Slow, f.Samples, f.Rate, f.Bound, f.Threshold)
}

func (f *FleetBreaker) writeWorkers(w io.Writer, now time.Time) error {
	if len(f.Workers) == 0 {
		_, err := fmt.Fprintln(w, "no worker has spoken of it lately")
		return err
	}
	t := newTable(w, "WORKER", "SEEN", "FOLLOWS", "STATE", "FORCE", "FAILURES", "SLOW", "PROBES")
	for i := range f.Workers {
		m := &f.Workers[i]
		state, follows := m.State, "yes"
		if m.Own {
			state += " (its own)"
		}
		switch {
		case !m.Alive:
			follows = "silent"
		case !m.Follows:
			follows = "not yet"
		}
		t.row(cell(m.Worker, 0), Age(now.Sub(m.Seen))+" ago", follows, state, m.Force, m.Failure.String(), m.Slow.String(),
			fmt.Sprintf("%d of %d", m.Probing, m.Slots))
	}
	return t.flush()
}

func (f *FleetBreaker) writeOrders(w io.Writer, now time.Time) error {
	if len(f.Orders) == 0 {
		_, err := fmt.Fprintln(w, "no order was ever given")
		return err
	}
	t := newTable(w, "ORDER", "GIVEN", "UNTIL", "OPERATOR", "REASON")
	for i := range f.Orders {
		o := &f.Orders[i]
		t.row(o.Order, when(o.At, now), when(o.Ends, now), cell(o.Operator, 0), cell(o.Reason, 0))
	}
	return t.flush()
}
