package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/bench/rig"
	"spillway/order"
	"spillway/worker"
)

// settings are the defaults, but for the permits, and what a call of the case's length needs.
const settings = `
kafka: {brokers: ["%s"]}
redis: {url: "%s", prefix: "%s"}
postgres: {url: "%s"}
http: {listen: "127.0.0.1:0"}
routes:
  - name: little
    topic: %s
    group: %s
    permits: {limit: %d}
%s
    downstream:
      url: http://127.0.0.1:9
      timeout: 1s
      submit: {path: /orders}
      lookup: {path: "/orders/{number}"}
`

// keyed is what the settings of a route need for the topic with few keys.
const keyed = `    number: {from: header, header: order-no}
    ordering: key`

// outcome is what one case reached.
type outcome struct {
	rate   float64       // final rows a second
	took   time.Duration // of a call, mean
	flying int64         // most calls at once
	cores  float64       // of this process, handler included
}

// one measures a case once.
func (b *bench) one(ctx context.Context, l law) (o outcome, err error) {
	d, err := b.Database(ctx, "little")
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, d.End(ctx)) }()
	group, more := fmt.Sprintf("%s-%d", b.Tag, time.Now().UnixNano()), ""
	handler := &sleeper{latency: l.latency, waits: rig.NewWaits()}
	defer handler.waits.Close()
	if l.keyed {
		more, handler.keyed = keyed, newTurns()
	}
	cfg, err := rig.WorkerConfig(fmt.Sprintf(settings, b.Kafka, b.Redis, group, d.URL, b.topic(l.keyed), group, l.permits, more))
	if err != nil {
		return o, err
	}
	w, err := worker.New(ctx, cfg, worker.Options{
		Handlers: map[string]order.Handler{"little": handler}, Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		return o, err
	}
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make(chan error, 1)
	go func() {
		err := w.Run(working)
		stop(err)
		ended <- err
	}()
	from, to, err := b.watch(working, handler, &o)
	stop(nil)
	if err := errors.Join(err, <-ended); err != nil {
		return o, err
	}
	if handler.calls.Load() == b.orders[l.keyed] {
		return o, errors.New("the topic ran dry")
	}
	return o, settled(ctx, d, handler, from, to, &o)
}

// watch waits for the first call and for the warm-up, and returns the window's ends.
func (b *bench) watch(ctx context.Context, s *sleeper, o *outcome) (from, to time.Time, err error) {
	for s.calls.Load() == 0 {
		if err := rig.Sleep(ctx, time.Millisecond); err != nil {
			return from, to, err
		}
	}
	if err := rig.Sleep(ctx, b.warm); err != nil {
		return from, to, err
	}
	calls, took, cpu := s.calls.Load(), s.took.Load(), rig.CPU()
	from = time.Now()
	err = rig.Sleep(ctx, b.window)
	to = time.Now()
	o.took = time.Duration((s.took.Load() - took) / max(s.calls.Load()-calls, 1))
	o.cores = (rig.CPU() - cpu).Seconds() / to.Sub(from).Seconds()
	return from, to, err
}

// settled counts the rows that became final within the window, by the statement that made them so, and says whether
// what was measured really happened: each call's order is final, and no order was called twice.
func settled(ctx context.Context, d *rig.Database, s *sleeper, from, to time.Time, o *outcome) error {
	rows, err := d.Count(ctx, "SELECT count(*) FROM orders WHERE state = 2 AND updated_at >= $1 AND updated_at < $2", from, to)
	if err != nil {
		return err
	}
	o.rate, o.flying = float64(rows)/to.Sub(from).Seconds(), s.most.Load()
	final, err := d.Count(ctx, "SELECT count(*) FROM orders WHERE state = 2")
	if err != nil {
		return err
	}
	// What was admitted and never sent was handed back when the worker ended.
	other, err := d.Count(ctx, "SELECT count(*) FROM orders WHERE state NOT IN (1, 2)")
	switch {
	case err != nil:
		return err
	case final != s.calls.Load() || other > 0:
		return fmt.Errorf("%d calls, %d orders succeeded, %d ended otherwise: it lost or doubled some", s.calls.Load(), final, other)
	case s.keyed != nil && s.keyed.seen() != "":
		return fmt.Errorf("out of order: %s", s.keyed.seen())
	}
	return nil
}
