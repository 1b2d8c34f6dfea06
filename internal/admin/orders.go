package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"spillway/internal/desk"
	"spillway/order"
)

// Orders reads the record of orders.
type Orders interface {
	// ListOrders lists orders, the newest first, without the bytes of their records.
	ListOrders(ctx context.Context, f desk.OrderFilter) ([]order.Order, error)
	// ShowOrder reads one order whole. It returns desk.ErrNotFound where there is none.
	ShowOrder(ctx context.Context, route, number string) (desk.OrderView, error)
}

// Order is an order's row as JSON shows it.
type Order struct {
	ID            int64     `json:"id"`
	Route         string    `json:"route"`
	Number        string    `json:"number"`
	State         string    `json:"state"`
	Phase         string    `json:"phase,omitempty"`
	Version       int64     `json:"version"`
	Attempts      int       `json:"attempts"`
	AttemptsTotal int       `json:"attempts_total"`
	Lookups       int       `json:"lookups"`
	Life          int       `json:"life"`
	Outcome       string    `json:"outcome,omitempty"`
	Reason        string    `json:"reason,omitempty"`
	Detail        string    `json:"detail,omitempty"`
	Topic         string    `json:"topic"`
	Partition     int32     `json:"partition"`
	Offset        int64     `json:"offset"`
	AdmittedAt    time.Time `json:"admitted_at,omitzero"`
	LastAttempt   time.Time `json:"last_attempt,omitzero"`
	Due           time.Time `json:"due,omitzero"`
	UpdatedAt     time.Time `json:"updated_at,omitzero"`
}

func newOrder(o *order.Order) Order {
	due := time.Time{}
	if o.State == order.Processing {
		due = utc(o.Due)
	}
	return Order{
		ID: o.ID, Route: o.Route, Number: o.Number, State: o.State.String(), Phase: phaseName(o.Phase), Version: o.Version,
		Attempts: o.Attempts, AttemptsTotal: o.AttemptsTotal, Lookups: o.Lookups, Life: o.Life,
		Outcome: outcomeName(o.Outcome), Reason: string(o.Reason), Detail: o.Detail,
		Topic: o.Message.Topic, Partition: o.Message.Partition, Offset: o.Message.Offset,
		AdmittedAt: utc(o.AdmittedAt), LastAttempt: utc(o.LastAttempt), Due: due, UpdatedAt: utc(o.UpdatedAt),
	}
}

// phaseName leaves the phase of an order that has none empty.
func phaseName(p order.Phase) string {
	if p == order.NoPhase {
		return ""
	}
	return p.String()
}

func outcomeName(o order.Outcome) string {
	if o == order.NoOutcome {
		return ""
	}
	return o.String()
}

// OrderList is one page of orders.
type OrderList struct {
	Orders []Order `json:"orders"`
	// NextBefore is the Before of the next page; zero on the last one.
	NextBefore int64 `json:"next_before,omitempty"`
}

// ListOrders reads one page of orders, the newest first.
func ListOrders(ctx context.Context, from Orders, f desk.OrderFilter) (OrderList, error) {
	rows, err := from.ListOrders(ctx, f)
	if err != nil {
		return OrderList{}, err
	}
	l := OrderList{Orders: make([]Order, len(rows))}
	for i := range rows {
		l.Orders[i] = newOrder(&rows[i])
	}
	if len(rows) == desk.Page(f.Limit) {
		l.NextBefore = rows[len(rows)-1].ID
	}
	return l, nil
}

// WriteTable writes the page for people, with ages as of now.
func (l OrderList) WriteTable(w io.Writer, now time.Time) error {
	t := newTable(w, "ID", "ROUTE", "NUMBER", "STATE", "PHASE", "ATTEMPTS", "LIFE", "OUTCOME", "REASON", "AGE", "DUE IN")
	for i := range l.Orders {
		o := &l.Orders[i]
		t.row(strconv.FormatInt(o.ID, 10), cell(o.Route, 0), cell(o.Number, 0), o.State, cell(o.Phase, 0),
			strconv.Itoa(o.AttemptsTotal), strconv.Itoa(o.Life), cell(o.Outcome, 0), cell(o.Reason, 0),
			Age(now.Sub(o.AdmittedAt)), until(o.Due, now))
	}
	if err := t.flush(); err != nil {
		return err
	}
	return writeMore(w, len(l.Orders), "order", l.NextBefore)
}

// writeMore ends a page.
func writeMore(w io.Writer, n int, noun string, before int64) error {
	if n != 1 {
		noun += "s"
	}
	text := fmt.Sprintf("%d %s", n, noun)
	if before > 0 {
		text += fmt.Sprintf("; there may be more: --before %d", before)
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// Event is an entry of an order's history as JSON shows it. Kind is "admitted", which begins each history, or one of
// desk's kinds.
type Event struct {
	Kind          string    `json:"kind"`
	At            time.Time `json:"at,omitzero"`
	Version       int64     `json:"version,omitempty"`
	From          string    `json:"from,omitempty"`
	To            string    `json:"to"`
	Phase         string    `json:"phase,omitempty"`
	Outcome       string    `json:"outcome,omitempty"`
	Reason        string    `json:"reason,omitempty"`
	Detail        string    `json:"detail,omitempty"`
	AttemptsTotal int       `json:"attempts_total"`
	Lookups       int       `json:"lookups"`
	Life          int       `json:"life"`
	Actor         string    `json:"actor,omitempty"`
}

const admitted = "admitted"

// OrderView is an order with its record and history.
type OrderView struct {
	Order      Order   `json:"order"`
	Owner      string  `json:"owner,omitempty"`       // who holds the lease
	DeadLetter int64   `json:"dead_letter,omitempty"` // the one that waits for a person
	Record     *Record `json:"record"`
	History    []Event `json:"history"`
	// HistoryCut says that the order has more than desk.MaxHistory entries: the oldest are missing after the admission.
	HistoryCut bool `json:"history_cut,omitempty"`

	message order.Message
}

// ShowOrder reads one order with its record and its history, the admission first. Its error wraps desk.ErrNotFound
// where there is none.
func ShowOrder(ctx context.Context, from Orders, route, number string) (*OrderView, error) {
	v, err := from.ShowOrder(ctx, route, number)
	if errors.Is(err, desk.ErrNotFound) {
		return nil, fmt.Errorf("order %q of route %q: %w; spillway admin orders list --route %s --prefix … finds what there is",
			number, route, desk.ErrNotFound, route)
	}
	if err != nil {
		return nil, err
	}
	return &OrderView{
		Order: newOrder(&v.Order), Owner: v.Owner, DeadLetter: v.Letter, Record: newRecord(&v.Order.Message),
		History: history(&v), HistoryCut: len(v.History) >= desk.MaxHistory, message: v.Order.Message,
	}, nil
}

// history adds to what was written down what the row alone tells: the admission, and the one transition of an order
// whose first attempt was final.
func history(v *desk.OrderView) []Event {
	o := &v.Order
	first := Event{
		Kind: admitted, At: utc(o.AdmittedAt), Version: 1, To: order.Processing.String(), Phase: order.InFlight.String(), AttemptsTotal: 1,
	}
	if len(v.History) > 0 && v.History[0].Version == 1 {
		// It was a dead letter without an order until a person sent that back.
		first = Event{Kind: admitted, At: first.At, Version: 1, To: order.Dead.String()}
	}
	events := []Event{first}
	moved := false
	for i := range v.History {
		e := &v.History[i]
		moved = moved || e.Kind == desk.Transition
		events = append(events, Event{
			Kind: string(e.Kind), At: utc(e.At), Version: e.Version, From: e.From.String(), To: e.To.String(),
			Phase: phaseName(e.Phase), Outcome: outcomeName(e.Outcome), Reason: string(e.Reason), Detail: e.Detail,
			AttemptsTotal: e.AttemptsTotal, Lookups: e.Lookups, Life: e.Life, Actor: e.Actor,
		})
	}
	if !moved && o.State.Final() {
		straight := Event{
			Kind: string(desk.Transition), At: utc(o.UpdatedAt), Version: o.Version, From: order.Processing.String(),
			To: o.State.String(), Outcome: outcomeName(o.Outcome), Reason: string(o.Reason), Detail: o.Detail,
			AttemptsTotal: o.AttemptsTotal, Lookups: o.Lookups, Life: o.Life,
		}
		events = append(events[:1], append([]Event{straight}, events[1:]...)...)
	}
	return events
}

// Write writes the order for people, with ages as of now.
func (v *OrderView) Write(w io.Writer, now time.Time) error {
	o, s := &v.Order, &sheet{w: w}
	s.line("order %s of route %s: %s%s", cell(o.Number, 0), cell(o.Route, 0), o.State, behind(o.Phase))
	s.field("id", fmt.Sprintf("%d, version %d", o.ID, o.Version))
	s.field("outcome", Printable(o.Outcome))
	s.field("reason", Printable(o.Reason))
	s.field("detail", Printable(o.Detail))
	s.field("attempts", fmt.Sprintf("%d counted, %d in all; %d lookups since; life %d", o.Attempts, o.AttemptsTotal, o.Lookups, o.Life))
	s.field("admitted", when(o.AdmittedAt, now))
	s.field("last attempt", when(o.LastAttempt, now))
	s.field("updated", when(o.UpdatedAt, now))
	if !o.Due.IsZero() {
		s.field("due", when(o.Due, now))
	}
	if v.Owner != "" {
		s.field("leased to", Printable(v.Owner))
	}
	if v.DeadLetter != 0 {
		s.field("dead letter", fmt.Sprintf("%d waits: spillway admin dead-letters show %d", v.DeadLetter, v.DeadLetter))
	}
	s.record(&v.message, now, "--json, base64")
	s.line("  history")
	if s.err != nil {
		return s.err
	}
	return v.writeHistory(w)
}

func behind(phase string) string {
	if phase == "" {
		return ""
	}
	return ", " + phase
}

func (v *OrderView) writeHistory(w io.Writer) error {
	t := newTable(w, "  AT", "KIND", "FROM", "TO", "OUTCOME", "REASON", "ATTEMPTS", "LOOKUPS", "LIFE", "BY", "DETAIL")
	for i := range v.History {
		e := &v.History[i]
		t.row("  "+e.At.Format(time.RFC3339), cell(e.Kind, 0), cell(e.From, 0), e.To+behind(e.Phase), cell(e.Outcome, 0),
			cell(e.Reason, 0), strconv.Itoa(e.AttemptsTotal), strconv.Itoa(e.Lookups), strconv.Itoa(e.Life),
			cell(e.Actor, 0), cell(e.Detail, 0))
		if i == 0 && v.HistoryCut {
			t.row("  …", fmt.Sprintf("the newest %d entries follow; older ones are left out", len(v.History)-1))
		}
	}
	return t.flush()
}
