package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"spillway/bench/report"
	"spillway/bench/rig"
)

const (
	killPermits = 1000
	killLatency = 600 * time.Millisecond
	killTimeout = 3 * time.Second
	killOrders  = 30_000
)

// kill ends a worker with a thousand calls in flight and thousands of orders done, starts another, and counts what is
// called again.
func (b *bench) kill(ctx context.Context, setup map[string]string) (results []report.Result, err error) {
	setup["kill"] = fmt.Sprintf("%d permits, calls of %v, %d orders", killPermits, killLatency, killOrders)
	if err := b.stub.set(ctx, mood{Latency: killLatency}); err != nil {
		return nil, err
	}
	d, err := b.Database(ctx, "kill")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.End(ctx)) }()
	topic := b.Tag + "_kill"
	if err := b.Topic(ctx, topic, partitions, killOrders, newRecord); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Drop(context.WithoutCancel(ctx), topic)) }()
	more := fmt.Sprintf("    permits: {limit: %d}", killPermits)
	more += "\n    lease: 10s"
	w, err := b.work(ctx, topic, d, killTimeout, more)
	if err != nil {
		return nil, err
	}
	defer w.kill()
	flying, err := b.filled(ctx, w)
	if err != nil {
		return nil, err
	}
	w.kill()
	done, err := b.finished(ctx, d)
	if err != nil {
		return nil, err
	}
	fmt.Printf("killed with %d calls in flight and %d orders done\n", flying, len(done))
	began := time.Now()
	next, err := b.work(ctx, topic, d, killTimeout, more)
	if err != nil {
		return nil, err
	}
	defer next.kill()
	if err := b.allFinal(ctx, next, d); err != nil {
		return nil, err
	}
	fmt.Printf("all %d orders final %.1f s after the restart\n", killOrders, time.Since(began).Seconds())
	if err := errors.Join(next.stop(), b.verify(ctx, d)); err != nil {
		return nil, err
	}
	submits, err := b.stub.counts(ctx, "submits")
	if err != nil {
		return nil, err
	}
	again := 0
	for _, number := range done {
		if i, ok := index(number); ok && submits[i] > 1 {
			again++
		}
	}
	return []report.Result{
		report.Figure("in_flight_at_kill", "calls", "calls in flight when the worker was killed with SIGKILL", []float64{float64(flying)}, nil),
		report.Figure("finished_called_again", "orders",
			fmt.Sprintf("of %d orders that were final at the kill, those that were submitted again", len(done)), []float64{float64(again)}, nil),
	}, nil
}

// filled waits until thousands of orders are done and all permits are in use, and returns how many.
func (b *bench) filled(ctx context.Context, w *worker) (int64, error) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if err := errors.Join(w.alive(), rig.Sleep(ctx, 20*time.Millisecond)); err != nil {
			return 0, err
		}
		seen, err := b.stub.read(ctx)
		if err != nil {
			return 0, err
		}
		if seen.Submits < killOrders/3 || seen.Flying < killPermits*99/100 {
			continue
		}
		return seen.Flying, nil
	}
	return 0, errors.New("the permits were never all in use")
}

// finished returns the orders that are final, once no statement of the killed worker is under way any more.
func (b *bench) finished(ctx context.Context, d *rig.Database) ([]string, error) {
	for range 500 {
		left, err := d.Count(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'")
		if err != nil {
			return nil, err
		}
		if left == 0 {
			return d.Texts(ctx, "SELECT number FROM orders WHERE state = 2")
		}
		if err := rig.Sleep(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("the killed worker's sessions do not end")
}

// allFinal waits until every order is.
func (b *bench) allFinal(ctx context.Context, w *worker, d *rig.Database) error {
	final := int64(0)
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		if err := errors.Join(w.alive(), rig.Sleep(ctx, 250*time.Millisecond)); err != nil {
			return err
		}
		var err error
		if final, err = d.Count(ctx, "SELECT count(*) FROM orders WHERE state = 2"); err != nil || final == killOrders {
			return err
		}
	}
	return fmt.Errorf("%d of %d orders final after two minutes", final, killOrders)
}
