package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"spillway/bench/rig"
)

// capacity is how many calls a second the stub answers to a client that has nothing else to do: as many connections as
// permits, each sending its next request as soon as the last one was answered. It has the machine for itself and the
// stub, which the worker has not.
func capacity(ctx context.Context, d *downstream, permits int, warm, window time.Duration) (rate float64, err error) {
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: permits, MaxConnsPerHost: permits}}
	defer client.CloseIdleConnections()
	var callers sync.WaitGroup
	defer callers.Wait()
	defer stop(nil)
	for c := range permits {
		callers.Go(func() {
			for working.Err() == nil {
				if err := call(context.WithoutCancel(ctx), client, d.url, rig.Value(c, valueBytes)); err != nil {
					stop(err)
				}
			}
		})
	}
	if err := rig.Sleep(working, warm); err != nil {
		return 0, err
	}
	rate, err = d.rate(working, window)
	return rate, err
}

func call(ctx context.Context, client *http.Client, url string, body []byte) (err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/orders", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the stub answered %s", resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// rate is how many submits a second come to the stub from now on.
func (d *downstream) rate(ctx context.Context, window time.Duration) (float64, error) {
	before, err := d.read(ctx)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := rig.Sleep(ctx, window); err != nil {
		return 0, err
	}
	after, err := d.read(ctx)
	return float64(after.Submits-before.Submits) / time.Since(began).Seconds(), err
}

// source is whoever sends orders to the topic.
type source struct {
	client *kgo.Client
	next   int // number of the next order
}

func newSource(kafka, topic string) (*source, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(20*time.Millisecond), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(100_000), kgo.DefaultProduceTopic(topic))
	return &source{client: client}, err
}

// send hands n orders to the broker. What could not be sent is told to failed.
func (s *source) send(ctx context.Context, n int, failed func(error)) {
	for range n {
		i := s.next
		s.next++
		s.client.Produce(ctx, newRecord(i), func(_ *kgo.Record, err error) {
			if err != nil {
				failed(err)
			}
		})
	}
}

// newRecord makes the ith order.
func newRecord(i int) *kgo.Record {
	return &kgo.Record{Partition: int32(i % partitions), Key: []byte(rig.Number(i)), Value: rig.Value(i, valueBytes)}
}

// offer sends orders at a rate until ctx ends, which is no error.
func (s *source) offer(ctx context.Context, rate float64) error {
	const every = 20 * time.Millisecond
	working, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	began, sent := time.Now(), 0
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			due := int(time.Since(began).Seconds() * rate)
			s.send(working, due-sent, stop)
			sent = due
		case <-working.Done():
			return context.Cause(working)
		case <-ctx.Done():
			if err := s.client.Flush(working); err != nil {
				return err
			}
			return context.Cause(working)
		}
	}
}

// burst sends n orders as fast as the broker takes them.
func (s *source) burst(ctx context.Context, n int) error {
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s.send(working, n, stop)
	return errors.Join(s.client.Flush(working), context.Cause(working))
}
