// Package batch gathers what many callers want done one by one into few calls that do many at once.
//
// It is a group commit: a flush starts as soon as a flusher is free and takes what has come meanwhile. So the batches
// are small while there is little to do, and grow with the time that a flush takes. No timer makes anybody wait.
package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Config bounds a batcher. The zero value of a field is its default.
type Config struct {
	Flushers int // flushes at the same time: default 2
	MaxItems int // of one flush: default 500
	MaxBytes int // of one flush, by the size function, unless one item alone is larger: default 4 MiB
	Queue    int // items that wait for a flush; callers beyond it wait to get in: default 4 × MaxItems
}

const (
	defaultFlushers = 2
	defaultItems    = 500
	defaultBytes    = 4 << 20
	queueFactor     = 4
)

func (c Config) withDefaults() Config {
	if c.Flushers <= 0 {
		c.Flushers = defaultFlushers
	}
	if c.MaxItems <= 0 {
		c.MaxItems = defaultItems
	}
	if c.MaxBytes <= 0 {
		c.MaxBytes = defaultBytes
	}
	if c.Queue <= 0 {
		c.Queue = queueFactor * c.MaxItems
	}
	return c
}

// ErrStopped says that the batcher's Run ended before the item was flushed: nothing was done about it.
var ErrStopped = errors.New("the batcher has stopped")

// Batcher gathers items of type In, and hands each caller its own Out.
type Batcher[In, Out any] struct {
	config Config
	size   func(*In) int
	flush  func(context.Context, []In) ([]Out, error)

	queue   chan *item[In, Out]
	stopped chan struct{} // closed when Run ends
}

// item is one caller's wish. Whoever moves state away from waiting has it: a flusher, or the caller that gives up.
type item[In, Out any] struct {
	in    In
	size  int
	state atomic.Int32
	done  chan answer[Out] // holds one, so that a flusher never waits for a caller
}

const (
	waiting int32 = iota
	taken
	given // up
)

type answer[Out any] struct {
	out Out
	err error
}

// New returns a batcher that does nothing until Run. size is how many bytes an item counts for; nil for none. flush
// does a batch and answers in the order and length of it; it is called by Flushers goroutines at the same time, with
// the context of Run.
func New[In, Out any](c Config, size func(*In) int, flush func(context.Context, []In) ([]Out, error)) *Batcher[In, Out] {
	c = c.withDefaults()
	return &Batcher[In, Out]{
		config: c, size: size, flush: flush,
		queue: make(chan *item[In, Out], c.Queue), stopped: make(chan struct{}),
	}
}

// Run flushes until ctx ends, and returns nil when the flushes under way have ended too. It is called once. Items that
// were not taken by then are answered with ErrStopped: let the callers end first.
func (b *Batcher[In, Out]) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for range b.config.Flushers {
		all.Go(func() { b.work(ctx) })
	}
	all.Wait()
	close(b.stopped)
	return nil
}

// Do hands in an item and waits for its answer. When ctx ends first, Do returns its error: at once if the item was not
// taken, and then nothing is done about it; if it is being flushed, whether it was done is unknown. Callers beyond the
// queue's bound wait, until ctx ends.
func (b *Batcher[In, Out]) Do(ctx context.Context, in In) (Out, error) {
	it := &item[In, Out]{in: in, done: make(chan answer[Out], 1)}
	if b.size != nil {
		it.size = b.size(&it.in)
	}
	var none Out
	select {
	case <-b.stopped: // looked at first: a queue with room would take the item, and nobody would come for it
		return none, ErrStopped
	default:
	}
	select {
	case b.queue <- it:
	case <-b.stopped:
		return none, ErrStopped
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	select {
	case a := <-it.done:
		return a.out, a.err
	case <-b.stopped:
		if it.state.CompareAndSwap(waiting, given) {
			return none, ErrStopped
		}
		a := <-it.done // every flush has ended
		return a.out, a.err
	case <-ctx.Done():
		if !it.state.CompareAndSwap(waiting, given) {
			select {
			case a := <-it.done: // the answer came at the same moment
				return a.out, a.err
			default:
			}
		}
		return none, context.Cause(ctx)
	}
}

// work is one flusher. The item that was too large for the last batch begins the next one.
func (b *Batcher[In, Out]) work(ctx context.Context) {
	var over *item[In, Out]
	items := make([]*item[In, Out], 0, b.config.MaxItems)
	for {
		first := over
		if first == nil {
			if ctx.Err() != nil {
				return
			}
			select {
			case first = <-b.queue:
				if !first.state.CompareAndSwap(waiting, taken) {
					continue
				}
			case <-ctx.Done():
				return
			}
		}
		items, over = b.gather(append(items[:0], first))
		b.do(ctx, items)
		clear(items)
	}
}

// gather takes what waits, as far as it fits. What does not is returned: it is taken, and must be flushed next.
func (b *Batcher[In, Out]) gather(items []*item[In, Out]) (batch []*item[In, Out], over *item[In, Out]) {
	bytes := items[0].size
	for len(items) < b.config.MaxItems {
		select {
		case it := <-b.queue:
			if !it.state.CompareAndSwap(waiting, taken) {
				continue
			}
			if bytes += it.size; bytes > b.config.MaxBytes {
				return items, it
			}
			items = append(items, it)
		default:
			return items, nil
		}
	}
	return items, nil
}

// do flushes a batch and answers each caller.
func (b *Batcher[In, Out]) do(ctx context.Context, items []*item[In, Out]) {
	ins := make([]In, len(items))
	for i, it := range items {
		ins[i] = it.in
	}
	outs, err := b.flush(ctx, ins)
	if err == nil && len(outs) != len(ins) {
		err = fmt.Errorf("flush of %d items gave %d answers", len(ins), len(outs))
	}
	for i, it := range items {
		a := answer[Out]{err: err}
		if err == nil {
			a.out = outs[i]
		}
		it.done <- a
	}
}
