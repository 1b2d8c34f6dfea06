package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"spillway/consumer"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/order"
)

// MaxResolve bounds how many dead letters one command resolves.
const MaxResolve = 10_000

// chunk is how many dead letters one statement resolves: small enough to be quick and to lose little when it fails.
const chunk = 100

// Fate is what became of a dead letter that a person wanted resolved: a closed set, stable for scripts.
type Fate string

// What can become of a dead letter.
const (
	Requeued        Fate = "requeued"
	Discarded       Fate = "discarded"
	WouldRequeue    Fate = "would_requeue" // a dry run found nothing in the way
	WouldDiscard    Fate = "would_discard"
	Refused         Fate = "refused"          // it can't be done as things stand
	NotFound        Fate = "not_found"        // there is no such dead letter
	ResolvedAlready Fate = "resolved_already" // somebody did one or the other before
	Unconfirmed     Fate = "unconfirmed"      // the call failed: it may have been done or not; asking again is harmless
)

// Done reports whether it is as the person wanted it, or would be.
func (f Fate) Done() bool {
	switch f {
	case Requeued, Discarded, WouldRequeue, WouldDiscard:
		return true
	case Refused, NotFound, ResolvedAlready, Unconfirmed:
		return false
	}
	return false
}

// Result is what became of one dead letter.
type Result struct {
	ID      int64  `json:"id"`
	Result  Fate   `json:"result"`
	OrderID int64  `json:"order_id,omitempty"`
	Number  string `json:"number,omitempty"` // the business number read from the record now, where it was no order
	Why     string `json:"why,omitempty"`
}

// Results is what became of all of them.
type Results struct {
	DryRun  bool     `json:"dry_run"`
	Done    int      `json:"done"`
	NotDone int      `json:"not_done"`
	Letters []Result `json:"letters"`
}

func (r *Results) add(more ...Result) {
	for _, one := range more {
		if one.Result.Done() {
			r.Done++
		} else {
			r.NotDone++
		}
	}
	r.Letters = append(r.Letters, more...)
}

// WriteTable writes a line for each dead letter, for people.
func (r *Results) WriteTable(w io.Writer) error {
	t := newTable(w, "ID", "RESULT", "ORDER", "NUMBER", "WHY")
	for i := range r.Letters {
		l := &r.Letters[i]
		orderID := "-"
		if l.OrderID != 0 {
			orderID = strconv.FormatInt(l.OrderID, 10)
		}
		t.row(strconv.FormatInt(l.ID, 10), string(l.Result), orderID, cell(l.Number, 0), cell(l.Why, 0))
	}
	if err := t.flush(); err != nil {
		return err
	}
	done, not := "done", "not done"
	if r.DryRun {
		done, not = "would be done", "would not"
	}
	_, err := fmt.Fprintf(w, "%d %s, %d %s\n", r.Done, done, r.NotDone, not)
	return err
}

// NumberRules says for each route where its records carry their business number, as the settings have it now.
func NumberRules(cfg *config.Config) map[string]consumer.Number {
	rules := make(map[string]consumer.Number, len(cfg.Routes))
	for i := range cfg.Routes {
		rules[cfg.Routes[i].Name] = NumberRule(cfg.Routes[i].Number)
	}
	return rules
}

// NumberRule is where a route's records carry their business number: the worker and a requeue read it by the same rule.
func NumberRule(n config.Number) consumer.Number {
	switch n.From {
	case config.FromHeader:
		return consumer.Number{From: consumer.FromHeader, Header: n.Header}
	case config.FromValue:
		return consumer.Number{From: consumer.FromPointer, Pointer: n.Pointer}
	}
	return consumer.Number{From: consumer.FromKey}
}

// Resolver requeues and discards dead letters.
type Resolver struct {
	Letters Letters
	Orders  Orders
	Rules   map[string]consumer.Number // by route: see NumberRules
	By      desk.Sign
	DryRun  bool // look and tell, change nothing
}

// Pick returns the ids of the dead letters that wait and pass the filter, the oldest first: of more than limit (1 to
// MaxResolve) the newest.
func (r *Resolver) Pick(ctx context.Context, f desk.LetterFilter, limit int) ([]int64, error) {
	f.Status = desk.Waiting
	var ids []int64
	for len(ids) < limit {
		f.Limit = min(limit-len(ids), desk.MaxPage)
		page, err := r.Letters.ListDeadLetters(ctx, f)
		if err != nil {
			return nil, err
		}
		for i := range page {
			ids = append(ids, page[i].ID)
		}
		if len(page) < f.Limit {
			break
		}
		f.Before = page[len(page)-1].ID
	}
	slices.Reverse(ids)
	return ids, nil
}

// Requeue starts a new life for the dead letters, each once however often it is named. An order is looked up first, so
// that one which was applied after all is not sent again. A record that is no order becomes one if a business number
// can be read from it by the route's settings as they are now.
//
// Each is done or not by itself. An error means that the rest was not tried; what is known of the others is in the
// results, which are never nil.
func (r *Resolver) Requeue(ctx context.Context, ids []int64) (*Results, error) {
	taken := map[string]bool{} // numbers that this run has used, for a dry run
	return r.each(ctx, ids, func(ctx context.Context, ids []int64) ([]Result, error) {
		out := make([]Result, len(ids))
		var asks []desk.Requeue
		var places []int // of the asks in out
		for i, id := range ids {
			ask, refusal, err := r.prepare(ctx, id, taken)
			if err != nil {
				return unconfirmed(ids, err, false), err
			}
			out[i] = Result{ID: id, Result: WouldRequeue, OrderID: refusal.OrderID, Number: ask.Number}
			if refusal.Err != nil {
				out[i].Result, out[i].Why = fate(refusal.Err)
				continue
			}
			asks, places = append(asks, ask), append(places, i)
		}
		if r.DryRun || len(asks) == 0 {
			return out, nil
		}
		answers, err := r.Letters.Requeue(ctx, r.By, asks)
		for i, at := range places {
			if err != nil {
				out[at].Result, out[at].Why = Unconfirmed, err.Error()
				continue
			}
			out[at] = settled(answers[i], Requeued)
			out[at].Number = asks[i].Number
		}
		return out, err
	})
}

// Discard gives the dead letters up for good, each once however often it is named. Errors are as with Requeue.
func (r *Resolver) Discard(ctx context.Context, ids []int64) (*Results, error) {
	return r.each(ctx, ids, func(ctx context.Context, ids []int64) ([]Result, error) {
		if !r.DryRun {
			answers, err := r.Letters.Discard(ctx, r.By, ids)
			if err != nil {
				return unconfirmed(ids, err, true), err
			}
			out := make([]Result, len(answers))
			for i, a := range answers {
				out[i] = settled(a, Discarded)
			}
			return out, nil
		}
		out := make([]Result, len(ids))
		for i, id := range ids {
			l, err := r.Letters.ShowDeadLetter(ctx, id)
			if err != nil && !errors.Is(err, desk.ErrNotFound) {
				return unconfirmed(ids, err, false), err
			}
			if err == nil {
				err = l.Obstacle("", false)
			}
			out[i] = settled(desk.Resolved{ID: id, OrderID: l.OrderID, Err: err}, WouldDiscard)
		}
		return out, nil
	})
}

// each resolves ids in chunks until one of them fails.
func (r *Resolver) each(ctx context.Context, ids []int64, some func(ctx context.Context, ids []int64) ([]Result, error)) (*Results, error) {
	results := &Results{DryRun: r.DryRun, Letters: []Result{}}
	if err := r.By.Check(); err != nil {
		return results, err
	}
	seen := make(map[int64]bool, len(ids))
	ids = slices.DeleteFunc(slices.Clone(ids), func(id int64) bool {
		again := seen[id]
		seen[id] = true
		return again
	})
	if len(ids) > MaxResolve {
		return results, fmt.Errorf("%d dead letters: want at most %d at a time", len(ids), MaxResolve)
	}
	for part := range slices.Chunk(ids, chunk) {
		out, err := some(ctx, part)
		results.add(out...)
		if err != nil {
			return results, err
		}
	}
	return results, nil
}

// prepare makes the request to requeue a dead letter, or says in refusal.Err why it can't be.
func (r *Resolver) prepare(ctx context.Context, id int64, taken map[string]bool) (ask desk.Requeue, refusal desk.Resolved, err error) {
	ask.ID, refusal.ID = id, id
	l, err := r.Letters.ShowDeadLetter(ctx, id)
	if errors.Is(err, desk.ErrNotFound) {
		refusal.Err = desk.ErrNotFound
		return ask, refusal, nil
	}
	if err != nil {
		return ask, refusal, err
	}
	refusal.OrderID = l.OrderID
	rule, known := r.Rules[l.Route]
	switch {
	case l.Status != desk.Waiting, l.Unreadable:
		refusal.Err = l.Obstacle("", true)
		return ask, refusal, nil
	case !known:
		refusal.Err = fmt.Errorf("no route %q in the settings, so no worker would act on it: %w", l.Route, desk.ErrRefused)
		return ask, refusal, nil
	case l.OrderID != 0:
		return ask, refusal, nil
	}
	number, why, detail := rule.Of(&l.Message)
	if why != order.NoReason {
		refusal.Err = fmt.Errorf("no business number by the route's settings: %s: %s: %w", why, detail, desk.ErrRefused)
		return ask, refusal, nil
	}
	ask.Number = number
	if r.DryRun {
		refusal.Err, err = r.free(ctx, &l, number, taken)
	}
	return ask, refusal, err
}

// free says whether a letter could have a business number, as the store would when it was asked for it.
func (r *Resolver) free(ctx context.Context, l *desk.Letter, number string, taken map[string]bool) (refusal, err error) {
	key := l.Route + "\x00" + number
	v, err := r.Orders.ShowOrder(ctx, l.Route, number)
	switch {
	case err == nil:
		return l.Taken(v.Order), nil
	case !errors.Is(err, desk.ErrNotFound):
		return nil, err
	case taken[key]:
		return fmt.Errorf("another dead letter of this run has business number %q: %w", number, desk.ErrRefused), nil
	}
	taken[key] = true
	return nil, nil
}

// settled turns the store's answer into a result; done is what it is when nothing was in the way.
func settled(a desk.Resolved, done Fate) Result {
	out := Result{ID: a.ID, OrderID: a.OrderID, Result: done}
	if a.Err != nil {
		out.Result, out.Why = fate(a.Err)
	}
	return out
}

// fate tells the kinds of refusal apart.
func fate(err error) (Fate, string) {
	switch {
	case errors.Is(err, desk.ErrNotFound):
		return NotFound, ""
	case errors.Is(err, desk.ErrResolved):
		return ResolvedAlready, strings.TrimSuffix(err.Error(), ": "+desk.ErrResolved.Error())
	case errors.Is(err, desk.ErrRefused):
		return Refused, strings.TrimSuffix(err.Error(), ": "+desk.ErrRefused.Error())
	}
	return Unconfirmed, err.Error()
}

// unconfirmed is what there is to say of letters whose call failed; asked: whether the change itself was asked for.
func unconfirmed(ids []int64, err error, asked bool) []Result {
	out := make([]Result, len(ids))
	for i, id := range ids {
		out[i] = Result{ID: id, Result: Unconfirmed, Why: err.Error()}
		if !asked {
			out[i].Why = "not tried: " + err.Error()
		}
	}
	return out
}
