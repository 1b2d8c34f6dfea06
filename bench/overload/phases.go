package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"spillway/bench/report"
	"spillway/bench/rig"
)

// settle is how long a load goes on before it is measured.
const settle = 10 * time.Second

// phase is what was seen of the worker during one load.
type phase struct {
	rate        float64       // submits a second, at the stub
	most        int64         // calls in flight at once, there
	held        time.Duration // a submit, there, on the mean
	memory      []float64
	p99         time.Duration
	generations float64 // of the group, at the end
}

func (p phase) peak() float64 { return slices.Max(p.memory) }

func (p phase) String() string {
	return fmt.Sprintf("%8.1f calls/s, each %v at the stub, at most %d in flight, p99 of the call %v, memory %.1f MB (median) %.1f MB (peak)",
		p.rate, p.held.Round(time.Microsecond), p.most, p.p99.Round(10*time.Microsecond), report.Median(p.memory), p.peak())
}

// load goes through the calm, the overload and the failing calls with one worker.
func (b *bench) load(ctx context.Context, setup map[string]string) (results []report.Result, err error) {
	setup["partitions"], setup["value_bytes"] = fmt.Sprint(partitions), fmt.Sprint(valueBytes)
	setup["permits"], setup["latency"] = fmt.Sprint(permits), latency.String()
	setup["windows"] = fmt.Sprintf("calm %v, overload %v, each of the four with and without failing calls %v", b.calm, b.window, b.faults)
	if err := b.stub.set(ctx, mood{Latency: latency}); err != nil {
		return nil, err
	}
	first, err := capacity(ctx, b.stub, permits, 3*time.Second, 7*time.Second)
	if err != nil {
		return nil, fmt.Errorf("measure the capacity: %w", err)
	}
	fmt.Printf("capacity   %8.1f calls/s for a bare client\n", first)
	d, err := b.Database(ctx, "overload")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.End(ctx)) }()
	topic := b.Tag + "_overload"
	if err := b.Topic(ctx, topic, partitions, 0, nil); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Drop(context.WithoutCancel(ctx), topic)) }()
	source, err := newSource(b.Kafka, topic)
	if err != nil {
		return nil, err
	}
	defer source.client.Close()
	w, err := b.work(ctx, topic, d, timeout, fmt.Sprintf("    permits: {limit: %d}", permits))
	if err != nil {
		return nil, err
	}
	defer w.kill()

	calm, over, err := b.flood(ctx, w, source, first)
	if err != nil {
		return nil, err
	}
	clean, faulty, err := b.fail(ctx, w, d)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(w.stop(), b.verify(ctx, d)); err != nil {
		return nil, err
	}
	if err := b.stub.set(ctx, mood{Latency: latency}); err != nil {
		return nil, err
	}
	last, err := capacity(ctx, b.stub, permits, 3*time.Second, 7*time.Second)
	if err != nil {
		return nil, fmt.Errorf("measure the capacity: %w", err)
	}
	fmt.Printf("capacity   %8.1f calls/s for a bare client, afterwards\n", last)
	setup["capacity_before"], setup["capacity_after"] = fmt.Sprintf("%.1f/s", first), fmt.Sprintf("%.1f/s", last)
	return figures(calm, over, (first+last)/2, clean, faulty), nil
}

// flood is the calm, at half the capacity, and then the overload.
func (b *bench) flood(ctx context.Context, w *worker, s *source, capacity float64) (calm, over phase, err error) {
	if calm, err = b.offered(ctx, w, s, capacity/2, b.calm); err != nil {
		return calm, over, fmt.Errorf("calm: %w", err)
	}
	fmt.Printf("calm       %v\n", calm)
	if err := s.burst(ctx, b.backlog); err != nil {
		return calm, over, fmt.Errorf("produce the backlog: %w", err)
	}
	if over, err = b.offered(ctx, w, s, overload*capacity, b.window); err != nil {
		return calm, over, fmt.Errorf("overload: %w", err)
	}
	over.generations -= calm.generations
	fmt.Printf("overload   %v\n", over)
	return calm, over, nil
}

// offered watches the worker under an offered load.
func (b *bench) offered(ctx context.Context, w *worker, s *source, rate float64, window time.Duration) (p phase, err error) {
	offering, stop := context.WithCancel(ctx)
	var offerer sync.WaitGroup
	var failure error
	offerer.Go(func() { failure = s.offer(offering, rate) })
	if err = rig.Sleep(ctx, settle); err == nil {
		p, err = b.watch(ctx, w, window)
	}
	stop()
	offerer.Wait()
	return p, errors.Join(err, failure)
}

// watch looks at the worker and the stub for a while.
func (b *bench) watch(ctx context.Context, w *worker, window time.Duration) (p phase, err error) {
	if err := b.stub.set(ctx, mood{Latency: latency}); err != nil { // counts anew
		return p, err
	}
	before, err := scrape(ctx, w.metrics)
	if err != nil {
		return p, err
	}
	seen, err := b.stub.read(ctx)
	if err != nil {
		return p, err
	}
	began := time.Now()
	for time.Since(began) < window {
		bytes, err := w.memory()
		if err := errors.Join(err, w.alive(), rig.Sleep(ctx, 100*time.Millisecond)); err != nil {
			return p, err
		}
		p.memory = append(p.memory, float64(bytes)/1e6)
	}
	now, err := b.stub.read(ctx)
	if err != nil {
		return p, err
	}
	calls := now.Submits - seen.Submits
	p.rate, p.most = float64(calls)/time.Since(began).Seconds(), now.Most
	p.held = (now.Held - seen.Held) / time.Duration(max(calls, 1))
	after, err := scrape(ctx, w.metrics)
	if err != nil {
		return p, err
	}
	p.generations = after.generations
	p.p99, err = percentile(before, after, 0.99)
	return p, err
}

// fail compares final rows a second with and without failing calls, twice, the one and the other in turn. The backlog
// lasts.
func (b *bench) fail(ctx context.Context, w *worker, d *rig.Database) (clean, faulty []float64, err error) {
	for range 2 {
		for _, failing := range []int{0, 10} {
			if err := b.stub.set(ctx, mood{Latency: latency, Failing: failing}); err != nil {
				return nil, nil, err
			}
			// What failed is looked up after five seconds, and sent again after that where it was not found.
			if err := errors.Join(w.alive(), rig.Sleep(ctx, 2*settle)); err != nil {
				return nil, nil, err
			}
			from := time.Now()
			if err := rig.Sleep(ctx, b.faults); err != nil {
				return nil, nil, err
			}
			to := time.Now()
			rows, err := d.Count(ctx, "SELECT count(*) FROM orders WHERE state = 2 AND updated_at >= $1 AND updated_at < $2", from, to)
			if err != nil {
				return nil, nil, err
			}
			rate := float64(rows) / to.Sub(from).Seconds()
			fmt.Printf("%2d of 1000 calls fail: %8.1f orders/s\n", failing, rate)
			if failing == 0 {
				clean = append(clean, rate)
			} else {
				faulty = append(faulty, rate)
			}
		}
	}
	return clean, faulty, nil
}

// verify says whether the downstream knows every final order, and none of them twice.
func (b *bench) verify(ctx context.Context, d *rig.Database) error {
	applied, err := b.stub.counts(ctx, "applied")
	if err != nil {
		return err
	}
	for i, n := range applied {
		if n > 1 {
			return fmt.Errorf("order %s was applied %d times", rig.Number(i), n)
		}
	}
	numbers, err := d.Texts(ctx, "SELECT number FROM orders WHERE state = 2")
	if err != nil {
		return err
	}
	for _, number := range numbers {
		if i, ok := index(number); !ok || i >= len(applied) || applied[i] == 0 {
			return fmt.Errorf("order %s is SUCCEEDED and was never applied", number)
		}
	}
	dead, err := d.Count(ctx, "SELECT count(*) FROM orders WHERE state NOT IN (1, 2)")
	if err == nil && dead > 0 {
		err = fmt.Errorf("%d orders are neither under way nor SUCCEEDED", dead)
	}
	return err
}

// figures are the results of the loads.
func figures(calm, over phase, capacity float64, clean, faulty []float64) []report.Result {
	one := func(v float64) []float64 { return []float64{v} }
	share := make([]float64, len(faulty))
	for i := range faulty {
		share[i] = faulty[i] / clean[i]
	}
	return []report.Result{
		report.Figure("goodput", "calls/s",
			"calls answered with success, at the stub, offered five times the capacity and with a million orders waiting; capacity is what a bare client with as many connections as permits gets out of the stub, before and after, on the mean",
			one(over.rate), map[string][]float64{"capacity": one(over.rate / capacity)}),
		report.Figure("max_in_flight", "calls", "most calls in the stub at once under overload, lookups included",
			one(float64(over.most)), map[string][]float64{"permits": one(float64(over.most) / permits)}),
		report.Figure("rss", "MB", "most resident memory of the worker under overload, by the most of the calm phase at half the capacity, same process",
			one(over.peak()), map[string][]float64{"calm": one(over.peak() / calm.peak())}),
		report.Figure("rebalances", "generations", "generations of the group that began after the calm phase", one(over.generations), nil),
		report.Figure("one_percent_failures", "orders/s",
			"final rows while one call in a hundred is answered 500, every other one of them applied; by the same without, the two in turn",
			faulty, map[string][]float64{"clean": share}),
		report.Figure("call_p99", "ms", "99th percentile of the call under overload, as the worker's histogram has it, in steps of a tenth",
			one(float64(over.p99)/1e6), map[string][]float64{"calm": one(float64(over.p99) / float64(calm.p99))}),
	}
}
