package demo

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"spillway/internal/wallet"
	"spillway/order"
)

// auditTimeout bounds one question to a server.
const auditTimeout = 15 * time.Second

// offsets is where the group stands in the topic.
type offsets struct {
	written   int64 // sum of the ends of all partitions
	committed int64 // sum of what the group committed; a partition without a commit counts 0
}

// readOffsets asks Kafka. The topic is the demo's own, so every partition began at 0.
func (s *stand) readOffsets(ctx context.Context) (offsets, error) {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	var o offsets
	ends, err := s.admin.ListEndOffsets(ctx, s.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return o, fmt.Errorf("read the ends of %s: %w", s.topic, err)
	}
	for _, end := range ends[s.topic] {
		o.written += end.Offset
	}
	commits, err := s.admin.FetchOffsets(ctx, s.group)
	if err == nil {
		err = commits.Error()
	}
	if err != nil {
		return o, fmt.Errorf("read what group %s committed: %w", s.group, err)
	}
	for _, c := range commits[s.topic] {
		o.committed += max(c.At, 0)
	}
	return o, nil
}

// unsettled is how many orders are PROCESSING.
func (s *stand) unsettled(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	var n int64
	err := s.db.QueryRowContext(ctx, `SELECT count(*) FROM orders WHERE route = $1 AND state = $2`, route, int16(order.Processing)).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count what is not settled: %w", err)
	}
	return n, nil
}

// letter is a dead letter of a record that is no order.
type letter struct {
	key, value       []byte
	hasKey, hasValue bool
}

// place is where a record stands in the topic.
type place struct {
	partition int32
	offset    int64
}

// record is what Postgres holds at the end.
type record struct {
	states  map[string]order.State // of each order
	letters map[place]letter       // of records that are no order
	extra   int                    // letters that no record of the topic explains
}

func (s *stand) readRecord(ctx context.Context) (record, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*auditTimeout)
	defer cancel()
	r := record{states: map[string]order.State{}, letters: map[place]letter{}}
	if err := s.readOrders(ctx, r.states); err != nil {
		return r, fmt.Errorf("read the orders: %w", err)
	}
	if err := s.readLetters(ctx, &r); err != nil {
		return r, fmt.Errorf("read the dead letters: %w", err)
	}
	return r, nil
}

func (s *stand) readOrders(ctx context.Context, into map[string]order.State) error {
	rows, err := s.db.QueryContext(ctx, `SELECT number, state FROM orders WHERE route = $1`, route)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err below says what matters
	for rows.Next() {
		var number string
		var state int16
		if err := rows.Scan(&number, &state); err != nil {
			return err
		}
		into[number] = order.State(state)
	}
	return rows.Err()
}

func (s *stand) readLetters(ctx context.Context, r *record) error {
	rows, err := s.db.QueryContext(ctx, `SELECT topic, part, off, key IS NOT NULL, key, value IS NOT NULL, value
		FROM dead_letters WHERE route = $1 AND order_id IS NULL`, route)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err below says what matters
	for rows.Next() {
		var topic string
		var p place
		var l letter
		if err := rows.Scan(&topic, &p.partition, &p.offset, &l.hasKey, &l.key, &l.hasValue, &l.value); err != nil {
			return err
		}
		if _, twice := r.letters[p]; twice || topic != s.topic {
			r.extra++
			continue
		}
		r.letters[p] = l
	}
	return rows.Err()
}

// exact reports whether a letter holds a record's bytes, null kept apart from empty.
func (l letter) exact(b badRecord) bool {
	return l.hasKey == (b.key != nil) && l.hasValue == (b.value != nil) && bytes.Equal(l.key, b.key) && bytes.Equal(l.value, b.value)
}

// evidence is everything that the verdict rests on, each from whoever knows it first-hand.
type evidence struct {
	orders    map[string]struct{} // acknowledged by Kafka to the producer
	bad       []badRecord         // likewise
	failed    int                 // writes that were not acknowledged
	writeErr  error
	offsets   offsets // Kafka
	record    record  // Postgres
	effects   map[string]int
	altered   int64 // orders that came to the wallet with different bodies
	maxFlight int   // the wallet
}

// gather asks everybody. The worker and the producer must have ended.
func gather(ctx context.Context, s *stand, p *producer, w *wallet.Wallet, m *meter) (evidence, error) {
	e := evidence{orders: p.orders, bad: p.bad, failed: p.failed, writeErr: p.err, maxFlight: m.highest()}
	var err error
	if e.offsets, err = s.readOffsets(ctx); err != nil {
		return e, err
	}
	if e.record, err = s.readRecord(ctx); err != nil {
		return e, err
	}
	e.altered = w.Counts().Altered
	e.effects = map[string]int{}
	for _, number := range w.Numbers() {
		if entry, ok := w.Entry(number); ok {
			e.effects[number] = entry.Effects
		}
	}
	return e, nil
}
