package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"spillway/bench/rig"
)

const (
	partitions = 12
	valueBytes = 200
	batch      = 500 // rows in one statement, of everybody who sends batches
)

// open finds the servers and fills the topic.
func (r *bench) open(ctx context.Context, setup map[string]string) (err error) {
	if r.Servers, err = rig.Open(ctx, setup); err != nil {
		return err
	}
	setup["value_bytes"], setup["partitions"] = fmt.Sprint(valueBytes), fmt.Sprint(partitions)
	setup["window"] = r.window.String()
	r.topic = r.Tag
	return r.Topic(ctx, r.topic, partitions, r.orders, func(i int) *kgo.Record {
		return &kgo.Record{Partition: int32(i % partitions), Key: []byte(number(i)), Value: value(i)}
	})
}

func number(i int) string { return rig.Number(i) }

func value(i int) []byte { return rig.Value(i, valueBytes) }

// pace measures a count that grows meanwhile: what came in the window that follows the warm-up.
func (r *bench) pace(ctx context.Context, count func() (float64, error)) (float64, error) {
	if err := sleep(ctx, r.warm); err != nil {
		return 0, err
	}
	before, err := count()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := sleep(ctx, r.window); err != nil {
		return 0, err
	}
	after, err := count()
	if err != nil {
		return 0, err
	}
	took := time.Since(began)
	if after == before {
		return 0, errors.New("nothing moved in the whole window")
	}
	return (after - before) / took.Seconds(), nil
}

func sleep(ctx context.Context, d time.Duration) error { return rig.Sleep(ctx, d) }
