package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"spillway/internal/desk"
)

// What the table of breaker events keeps: rows no older than breakerEventsAge, and about breakerEventsRows of them at
// most. Each write deletes up to breakerEventsSweep that are too many, so that it stays cheap.
const (
	breakerEventsAge   = 30 * 24 * time.Hour
	breakerEventsRows  = 100_000
	breakerEventsSweep = 1000
)

// MaxBreakerEvents bounds the events of one call.
const MaxBreakerEvents = 256

// addEventsSQL writes events and sweeps old ones. An event that is there already is not written again. Ages, not times,
// come from the worker: the database's clock dates the rows.
const addEventsSQL = `
WITH swept AS (
	DELETE FROM breaker_events WHERE id IN (
		(SELECT id FROM breaker_events WHERE at < now() - $1::bigint * interval '1 microsecond' ORDER BY at LIMIT $3)
		UNION ALL
		(SELECT id FROM breaker_events WHERE id <= (SELECT max(id) FROM breaker_events) - $2::bigint ORDER BY id LIMIT $3)))
INSERT INTO breaker_events (at, worker, route, endpoint, from_state, to_state, reason, source, mode, generation, window_us,
	samples, failures, slow, rate, bound, threshold, wait_us, operator, note, errors)
SELECT now() - u.age * interval '1 microsecond', u.worker, u.route, u.endpoint, u.from_state, u.to_state, u.reason, u.source,
	u.mode, u.generation, u.window_us, u.samples, u.failures, u.slow, u.rate, u.bound, u.threshold, u.wait_us, u.operator,
	u.note, u.errors::jsonb
FROM unnest($4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[],
	$12::text[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::float8[], $19::float8[],
	$20::float8[], $21::bigint[], $22::text[], $23::text[], $24::text[])
	AS u(age, worker, route, endpoint, from_state, to_state, reason, source, mode, generation, window_us, samples,
		failures, slow, rate, bound, threshold, wait_us, operator, note, errors)
ON CONFLICT DO NOTHING`

// eventColumns are the columns of unnest in addEventsSQL.
type eventColumns struct {
	age, generation, window, samples, failures, slow, wait                          []int64
	worker, route, endpoint, from, to, reason, source, mode, operator, note, errors []string
	rate, bound, threshold                                                          []float64
}

func (c *eventColumns) add(e *desk.BreakerEvent, now time.Time) error {
	calls := make([]desk.CallError, 0, desk.MaxCallErrors)
	for _, call := range e.Errors[max(0, len(e.Errors)-desk.MaxCallErrors):] {
		call.Number, call.RequestID, call.Detail = desk.Fit(call.Number), desk.Fit(call.RequestID), desk.Fit(call.Detail)
		call.At = call.At.UTC()
		calls = append(calls, call)
	}
	text, err := json.Marshal(calls)
	if err != nil {
		return err
	}
	c.age = append(c.age, micros(now.Sub(e.At)))
	c.generation = append(c.generation, int64(min(e.Generation, math.MaxInt64)))
	c.window, c.wait = append(c.window, micros(e.Window)), append(c.wait, micros(e.Wait))
	c.samples, c.failures = append(c.samples, int64(e.Samples)), append(c.failures, int64(e.Failures))
	c.slow = append(c.slow, int64(e.Slow))
	c.rate, c.bound = append(c.rate, e.Rate), append(c.bound, e.Bound)
	c.threshold = append(c.threshold, e.Threshold)
	c.worker, c.route = append(c.worker, desk.Fit(e.Worker)), append(c.route, desk.Fit(e.Route))
	c.endpoint = append(c.endpoint, desk.Fit(e.Endpoint))
	c.from, c.to = append(c.from, e.From), append(c.to, e.To)
	c.reason, c.source = append(c.reason, e.Reason), append(c.source, e.Source)
	c.mode, c.errors = append(c.mode, e.Mode), append(c.errors, string(text))
	c.operator, c.note = append(c.operator, desk.Fit(e.Operator)), append(c.note, desk.Fit(e.Note))
	return nil
}

// AddBreakerEvents writes events, at most MaxBreakerEvents, and deletes some of those that are kept no longer. It may be
// called again with events of which it is not known whether they were written.
func (s *Store) AddBreakerEvents(ctx context.Context, events []desk.BreakerEvent) error {
	if len(events) == 0 {
		return nil
	}
	if len(events) > MaxBreakerEvents {
		return fmt.Errorf("write %d breaker events: want at most %d in one batch", len(events), MaxBreakerEvents)
	}
	var c eventColumns
	now := time.Now()
	for i := range events {
		if err := c.add(&events[i], now); err != nil {
			return fmt.Errorf("write breaker events: %w", err)
		}
	}
	return s.do(ctx, "write breaker events", func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, addEventsSQL, breakerEventsAge.Microseconds(), int64(breakerEventsRows), breakerEventsSweep,
			c.age, c.worker, c.route, c.endpoint, c.from, c.to, c.reason, c.source, c.mode, c.generation, c.window, c.samples,
			c.failures, c.slow, c.rate, c.bound, c.threshold, c.wait, c.operator, c.note, c.errors)
		return err
	})
}

const listEventsSQL = `
SELECT at, worker, route, endpoint, from_state, to_state, reason, source, mode, generation, window_us, samples, failures, slow,
	rate, bound, threshold, wait_us, operator, note, errors
FROM breaker_events
WHERE ($1::text = '' OR route = $1) AND ($2::text = '' OR endpoint = $2)
	AND ($3::bigint = 0 OR at >= now() - $3::bigint * interval '1 microsecond')
ORDER BY id DESC LIMIT $4`

// BreakerEvents lists events, the latest written first. Their times are the database's.
func (s *Store) BreakerEvents(ctx context.Context, f desk.BreakerEventFilter) ([]desk.BreakerEvent, error) {
	var events []desk.BreakerEvent
	err := s.do(ctx, "list breaker events", func(ctx context.Context) error {
		events = events[:0]
		var e desk.BreakerEvent
		var generation, window, wait int64
		var calls []byte
		args := planned([]any{f.Route, f.Endpoint, micros(f.Since), desk.Page(f.Limit)})
		targets := []any{
			&e.At, &e.Worker, &e.Route, &e.Endpoint, &e.From, &e.To, &e.Reason, &e.Source, &e.Mode, &generation, &window,
			&e.Samples, &e.Failures, &e.Slow, &e.Rate, &e.Bound, &e.Threshold, &wait, &e.Operator, &e.Note, &calls,
		}
		return s.each(ctx, listEventsSQL, args, targets, func() error {
			e.Generation = uint64(max(0, generation))
			e.Window, e.Wait = time.Duration(window)*time.Microsecond, time.Duration(wait)*time.Microsecond
			e.Errors = nil
			if err := json.Unmarshal(calls, &e.Errors); err != nil {
				return fmt.Errorf("errors of a breaker event: %w", err)
			}
			events = append(events, e)
			return nil
		})
	})
	return events, err
}

// maxSummarized bounds the events that a summary reads: the latest ones.
const maxSummarized = 20_000

const summarizeSQL = `
SELECT at, worker, route, endpoint, from_state, to_state, reason, generation, wait_us, now()
FROM breaker_events WHERE at >= now() - $1::bigint * interval '1 microsecond'
ORDER BY at DESC LIMIT $2`

// BreakerSummary sums up what became of the breakers in the time that ends now, over all workers: one entry for each
// route's endpoint that has an event in it or in as much time before. Its times are the database's. Of more than 20000
// events it sees the latest.
func (s *Store) BreakerSummary(ctx context.Context, window time.Duration) ([]desk.BreakerSummary, error) {
	var events []desk.BreakerEvent
	var now time.Time
	err := s.do(ctx, "sum up breaker events", func(ctx context.Context) error {
		events = events[:0]
		var e desk.BreakerEvent
		var generation, wait int64
		args := planned([]any{2 * micros(window), maxSummarized})
		targets := []any{&e.At, &e.Worker, &e.Route, &e.Endpoint, &e.From, &e.To, &e.Reason, &generation, &wait, &now}
		return s.each(ctx, summarizeSQL, args, targets, func() error {
			e.Generation = uint64(max(0, generation))
			e.Wait = time.Duration(wait) * time.Microsecond
			events = append(events, e)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return desk.SummarizeBreakers(events, now, window), nil
}
