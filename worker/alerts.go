package worker

import (
	"context"
	"fmt"
	"time"

	"spillway/breaker"
	"spillway/internal/attempt"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/notify"
)

// newNotifier makes the one who tells of the breakers' moves.
func (w *Worker) newNotifier() (*notify.Notifier, error) {
	c := notify.Config{}
	for i := range w.cfg.Routes {
		c.Routes = append(c.Routes, w.cfg.Routes[i].Name)
	}
	for _, h := range w.cfg.Alerts.Webhooks {
		hook, err := webhook(h)
		if err != nil {
			return nil, err
		}
		c.Webhooks = append(c.Webhooks, hook)
	}
	return notify.New(c, w.store, nil, w.sign, w.opts.Logger, w.opts.Registry), nil
}

func webhook(h config.Webhook) (notify.Webhook, error) {
	form, err := notify.ParseForm(h.Form)
	if err != nil {
		return notify.Webhook{}, fmt.Errorf("alerts: webhook %s: %w", h.Name, err)
	}
	return notify.Webhook{
		Name: h.Name, Form: form, URL: h.URL.Reveal(), Secret: h.Secret.Reveal(), MinInterval: h.MinInterval,
	}, nil
}

// sign adds to a forced move who ordered it, where Redis can be asked in time.
func (w *Worker) sign(ctx context.Context, e *desk.BreakerEvent) {
	if e.Reason != breaker.ReasonForced.String() || e.Operator != "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	notes, err := w.redis.Breakers().Audit(ctx, breaker.Key{Service: e.Route, Endpoint: e.Endpoint}, auditLook)
	if err != nil {
		return
	}
	// The newest order of the kind that was given by then: the event may be told late, after others.
	force := breaker.ForceClosed
	if e.To == breaker.Open.String() {
		force = breaker.ForceOpen
	}
	for _, n := range notes {
		if n.Force == force && !n.At.After(e.At.Add(clockSlack)) {
			e.Operator, e.Note = n.Operator, n.Reason
			return
		}
	}
}

const (
	auditLook  = 10              // orders looked back for the one behind a move
	clockSlack = 2 * time.Second // between the store's clock and the worker's
)

// sampleAge is how old a failed call may be to be shown beside an opening, at least.
const sampleAge = time.Minute

// breakerEvent is a move as it is told. The failed calls go with openings alone: they are what there is to look at then.
func (r *route) breakerEvent(worker string, e breaker.Event) desk.BreakerEvent {
	told := desk.BreakerEvent{
		At: e.At, Worker: worker, Route: e.Key.Service, Endpoint: e.Key.Endpoint, From: e.From.String(), To: e.To.String(),
		Reason: e.Reason.String(), Source: e.Source.String(), Mode: e.Mode.String(), Generation: e.Generation, Window: e.Window,
		Samples: e.Samples, Failures: e.Failures, Slow: e.Slow, Rate: e.Rate, Bound: e.Bound, Threshold: e.Threshold, Wait: e.Wait,
	}
	if e.To != breaker.Open || r.attempter == nil {
		return told
	}
	since := e.At.Add(-max(e.Window, sampleAge))
	failed := r.attempter.SubmitFailures
	if e.Key.Endpoint == endpoints()[1] {
		failed = r.attempter.LookupFailures
	}
	for _, f := range failed(since) {
		told.Errors = append(told.Errors, callError(f))
	}
	return told
}

func callError(f attempt.Failure) desk.CallError {
	return desk.CallError{
		At: f.At.UTC(), Number: f.Number, RequestID: f.RequestID, Outcome: f.Outcome.String(), Reason: string(f.Reason), Status: f.Status, Detail: f.Detail,
	}
}
