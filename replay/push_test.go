package replay_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"spillway/order"
	"spillway/replay"
)

func TestPushGoesInBatchesOfBoundedSize(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.engine()
		spilled := w.store.add("pay", 250)
		if err := e.Push(t.Context(), spilled); err != nil {
			t.Fatal(err)
		}
		if want := []int{100, 100, 50}; !slices.Equal(w.queue.pushes, want) {
			t.Errorf("pushed %v, want %v", w.queue.pushes, want)
		}

		w.queue.pushes = nil
		large := w.store.add("pay", 5)
		for i := range large {
			large[i].Order.Message.Value = bytes.Repeat([]byte("x"), 20_000)
		}
		large[3].Order.Message.Value = bytes.Repeat([]byte("x"), 1<<20)
		if err := e.Push(t.Context(), large); err != nil {
			t.Fatal(err)
		}
		if want := []int{2, 1, 1, 1}; !slices.Equal(w.queue.pushes, want) {
			t.Errorf("pushed %v large ones, want %v", w.queue.pushes, want)
		}
		w.wantMetric("spillway_replay_pushed_total", 255)
		if err := e.Push(t.Context(), nil); err != nil {
			t.Errorf("push of nothing: %v", err)
		}
	})
}

func TestPushIntoAFullQueueSaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.queue = newMemQueue(10)
		e := w.engine()
		spilled := w.store.add("pay", 12)
		if err := e.Push(t.Context(), spilled[:10]); err != nil {
			t.Fatal(err)
		}
		if err := e.Push(t.Context(), spilled[10:]); !errors.Is(err, order.ErrQueueFull) {
			t.Errorf("push: %v, want %v", err, order.ErrQueueFull)
		}
		if err := e.Healthy(); err != nil {
			t.Errorf("a full queue is taken for ill: %v", err)
		}
		w.run(e)
		time.Sleep(5 * time.Second)
		if err := e.Push(t.Context(), spilled[10:]); err != nil {
			t.Errorf("push after the queue drained: %v", err)
		}
		time.Sleep(5 * time.Second)
		w.wantRows(12, order.Succeeded, order.NoPhase)
		w.wantMetric("spillway_replay_full_total", 2)
	})
}

func TestPushTellsOfOrdersThatCannotBeQueuedAndTakesTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.engine()
		spilled := w.store.add("pay", 3)
		spilled[1].Order.Message.Value = bytes.Repeat([]byte("x"), replay.MaxItem)
		err := e.Push(t.Context(), spilled)
		if err == nil || !strings.Contains(err.Error(), `"T-2"`) {
			t.Errorf("push: %v", err)
		}
		if has, err := e.Has(t.Context(), []int64{1, 2, 3}); err != nil || !has[0] || has[1] || !has[2] {
			t.Errorf("has: %v, %v", has, err)
		}
	})
}

func TestBytesInFlightAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cfg.Bytes = 40_000
		w.service.delay = 200 * time.Millisecond
		e := w.engine()
		spilled := w.store.add("pay", 100)
		for i := range spilled {
			spilled[i].Order.Message.Value = bytes.Repeat([]byte("x"), 7_000) // 9.7 kB as queued
		}
		if err := e.Push(t.Context(), spilled); err != nil {
			t.Fatal(err)
		}
		w.run(e)
		time.Sleep(30 * time.Second)
		w.wantRows(100, order.Succeeded, order.NoPhase)
		if got := w.service.peak(); got > 5 { // the fifth is claimed with 1 kB left
			t.Errorf("%d of 9.7 kB were in flight within 40 kB", got)
		}
	})
}
