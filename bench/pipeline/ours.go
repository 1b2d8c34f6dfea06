package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/bench/rig"
	"spillway/internal/postgres"
	"spillway/order"
	"spillway/worker"
)

// settings are the defaults, but for the permits: a handler that answers at once must not wait for them.
const settings = `
kafka: {brokers: ["%s"]}
redis: {url: "%s", prefix: "%s"}
postgres: {url: "%s"}
http: {listen: "127.0.0.1:0"}
routes:
  - name: wallet
    topic: %s
    group: %s
    permits: {limit: 1000}
    downstream:
      url: http://127.0.0.1:9
      submit: {path: /orders}
      lookup: {path: "/orders/{number}"}
`

// confirms is a downstream that confirms at once.
type confirms struct{ calls atomic.Int64 }

func (c *confirms) Submit(context.Context, *order.Order) order.Answer {
	c.calls.Add(1)
	return order.Answer{Outcome: order.OutcomeSucceeded, Reason: order.Confirmed, Sent: true, Detail: "200"}
}

func (c *confirms) Lookup(context.Context, *order.Order) order.Finding {
	return order.Finding{Verdict: order.VerdictSucceeded}
}

// runPipeline measures a whole worker: the rate at which orders are written down as final.
func runPipeline(ctx context.Context, r *bench) (rate float64, err error) {
	d, err := r.Database(ctx, "ours")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.End(ctx)) }()
	cfg, err := r.config(d.URL)
	if err != nil {
		return 0, err
	}
	handler := &confirms{}
	registry := prometheus.NewRegistry()
	w, err := worker.New(ctx, cfg, worker.Options{
		Handlers: map[string]order.Handler{"wallet": handler}, Registry: registry,
	})
	if err != nil {
		return 0, err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	for handler.calls.Load() == 0 {
		if err := sleep(ctx, time.Millisecond); err != nil {
			return 0, err
		}
	}
	var first, last batches
	rate, err = r.pace(ctx, func() (float64, error) {
		first = last
		var err error
		last, err = readBatches(registry)
		return last.settled, err
	})
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return 0, err
	}
	fmt.Printf("         batches on average: admitted %.0f, settled %.0f\n",
		(last.admitted-first.admitted)/(last.admissions-first.admissions),
		(last.settled-first.settled)/(last.settlements-first.settlements))
	return rate, verify(ctx, r, d.URL, handler.calls.Load())
}

// verify says whether what was measured really happened: each order that was called is final in Postgres.
func verify(ctx context.Context, r *bench, url string, calls int64) error {
	store, err := postgres.Open(ctx, postgres.Config{URL: url})
	if err != nil {
		return err
	}
	defer store.Close()
	tally, err := store.Tally(ctx, "wallet")
	if err != nil {
		return err
	}
	// What was admitted and never sent was handed back when the worker ended.
	done, handedBack := tally.State(order.Succeeded), tally.State(order.Processing)
	if done != calls || tally.Total() != done+handedBack {
		return fmt.Errorf("%d calls, %d orders succeeded and %d handed back, of %d: it lost or doubled some", calls, done, handedBack, tally.Total())
	}
	if calls == int64(r.orders) {
		return errors.New("the topic ran dry: raise -orders")
	}
	return nil
}

func (r *bench) config(url string) (*worker.Config, error) {
	group := fmt.Sprintf("%s-%d", r.Tag, time.Now().UnixNano())
	return rig.WorkerConfig(fmt.Sprintf(settings, r.Kafka, r.Redis, group, url, r.topic, group))
}

// batches is what the worker's own metrics say of its statements.
type batches struct {
	admitted, settled       float64 // orders
	admissions, settlements float64 // statements
}

func readBatches(registry *prometheus.Registry) (b batches, err error) {
	families, err := registry.Gather()
	if err != nil {
		return b, err
	}
	for _, family := range families {
		if family.GetName() != "spillway_store_batch_size" {
			continue
		}
		for _, m := range family.GetMetric() {
			sum, count := m.GetHistogram().GetSampleSum(), float64(m.GetHistogram().GetSampleCount())
			for _, label := range m.GetLabel() {
				switch label.GetValue() {
				case "admit":
					b.admitted, b.admissions = sum, count
				case "settle":
					b.settled, b.settlements = sum, count
				}
			}
		}
	}
	return b, nil
}
