package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"spillway/order"
)

const admitSQL = `
INSERT INTO orders (route, number, topic, part, off, record_time, key, value, headers,
	state, phase, version, admitted_at, owner, last_attempt, attempts, attempts_total, lookups, life, updated_at,
	outcome, reason, detail, due)
SELECT $1, u.number, u.topic, u.part, u.off, u.record_time, u.key, u.value, u.headers,
	1, 1, 1, now(), $2, now(), 1, 1, 0, 0, now(),
	0, '', '', now() + $3::bigint * interval '1 microsecond'
FROM unnest($4::text[], $5::text[], $6::int[], $7::bigint[], $8::timestamptz[], $9::bytea[], $10::bytea[], $11::bytea[])
	AS u(number, topic, part, off, record_time, key, value, headers)
ON CONFLICT (route, number) DO NOTHING
RETURNING id, number`

// knownSQL looks at the rows that were there already. The value is compared here, so that it does not travel back. OFFSET
// keeps the rows of the route from being read first, see sessionDefaults.
const knownSQL = `
SELECT u.ord, o.id, o.state, o.phase, o.version, o.attempts_total, o.life, o.outcome,
	o.value IS NOT DISTINCT FROM u.value, o.topic = u.topic AND o.part = u.part AND o.off = u.off
FROM unnest($2::int[], $3::text[], $4::bytea[], $5::text[], $6::int[], $7::bigint[]) AS u(ord, number, value, topic, part, off)
CROSS JOIN LATERAL (SELECT * FROM orders WHERE route = $1 AND number = u.number OFFSET 0) AS o`

// takeBackSQL begins the first attempt of orders that were withdrawn and stand as they were read: see order.Withdrawn. It
// finds rows by id alone, see sessionDefaults.
const takeBackSQL = `
UPDATE orders o SET version = o.version + 1, phase = 1, owner = $1, attempts = 1, attempts_total = 1, lookups = 0,
	last_attempt = now(), due = now() + $2::bigint * interval '1 microsecond', updated_at = now(),
	outcome = 0, reason = '', detail = ''
FROM unnest($3::bigint[], $4::bigint[]) AS u(id, version)
WHERE o.id = ANY(ARRAY[u.id]) AND o.version = u.version AND o.state + 0 = 1 AND o.phase = 2
RETURNING o.id, o.version, o.admitted_at, now()`

// errVanished says that rows were in the way of an insert and gone when they were looked at, again and again.
var errVanished = errors.New("rows of the same business numbers come and go")

// Admit makes orders of records, leased to owner for the length of lease, with their first attempt counted. The answer
// has the order and length of as, at most MaxBatch.
//
// A business number that is there already is a Duplicate where the value is the same, null and empty being different
// values, and a Clash otherwise: its record is in the dead letters when Admit returns. Of two records with the same
// number in one batch the first wins. An order that was withdrawn is taken back by its own record, and only by that: it is
// New again, with the version it then has.
//
// After an error it is open which rows were made. Those that were are leased and come to the scanner when the lease
// ends; asked again, Admit calls them Duplicate.
func (s *Store) Admit(ctx context.Context, route, owner string, lease time.Duration, as []order.Admission) ([]order.Admitted, error) {
	if len(as) > MaxBatch {
		return nil, fmt.Errorf("admit %d records: want at most %d in one batch", len(as), MaxBatch)
	}
	for i := range as {
		if err := order.CheckNumber(as[i].Number); err != nil {
			return nil, fmt.Errorf("admit record %d of the batch: %w", i, err)
		}
	}
	out := make([]order.Admitted, len(as))
	open := make([]int, len(as)) // what is still to be decided, sorted by number and then as given
	for i := range open {
		open[i] = i
	}
	slices.SortStableFunc(open, func(a, b int) int { return strings.Compare(as[a].Number, as[b].Number) })
	for round := 0; len(open) > 0; round++ {
		// A second round is for rows that were deleted between the two statements of the first.
		if round == tries {
			return nil, fmt.Errorf("admit: %w", errVanished)
		}
		var err error
		if open, err = s.insert(ctx, route, owner, lease, as, open, out); err != nil {
			return nil, err
		}
		if open, err = s.compare(ctx, route, owner, lease, as, open, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// insert makes rows of the first record of each number and returns the indexes of all others.
func (s *Store) insert(ctx context.Context, route, owner string, lease time.Duration, as []order.Admission, open []int, out []order.Admitted) ([]int, error) {
	firsts := make([]int, 0, len(open))
	numbers := make([]string, 0, len(open))
	rs := newRecords(len(open))
	for _, i := range open {
		if n := len(numbers); n > 0 && numbers[n-1] == as[i].Number {
			continue
		}
		firsts = append(firsts, i)
		numbers = append(numbers, as[i].Number)
		rs.add(&as[i].Message)
	}
	var ids []int64
	var before time.Time
	err := s.do(ctx, "admit orders", func(ctx context.Context) error {
		before = time.Now()
		ids = make([]int64, len(firsts))
		var id int64
		var number string
		args := []any{
			route, owner, micros(lease), numbers, rs.topic, rs.part, rs.off, rs.time, rs.key, rs.value, rs.headers,
		}
		return s.each(ctx, admitSQL, args, []any{&id, &number}, func() error {
			at, ok := slices.BinarySearch(numbers, number)
			if !ok {
				return fmt.Errorf("order %d came back under a number that was not sent", id)
			}
			ids[at] = id
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	now := time.Now()
	rest := open[:0]
	at := 0
	for _, i := range open {
		if at < len(firsts) && firsts[at] == i {
			at++
			if id := ids[at-1]; id != 0 {
				out[i] = order.Admitted{Kind: order.New, Order: newborn(id, route, &as[i], before.Add(lease), now)}
				continue
			}
		}
		rest = append(rest, i)
	}
	return rest, nil
}

// newborn is the order that admitSQL makes. Its lease ends no later than the row says; its attempt began no earlier.
func newborn(id int64, route string, a *order.Admission, due, now time.Time) order.Order {
	return order.Order{
		ID: id, Route: route, Number: a.Number, Message: a.Message,
		State: order.Processing, Phase: order.InFlight, Version: 1,
		Attempts: 1, AttemptsTotal: 1,
		Fresh: true, AdmittedAt: now, LastAttempt: now, Due: due, UpdatedAt: now,
	}
}

// compare tells duplicates from clashes, takes back what was withdrawn, buries the records of the clashes, and returns the
// indexes of those whose rows it did not find.
func (s *Store) compare(ctx context.Context, route, owner string, lease time.Duration, as []order.Admission, open []int, out []order.Admitted) ([]int, error) {
	if len(open) == 0 {
		return nil, nil
	}
	ords := make([]int32, len(open))
	numbers := make([]string, len(open))
	values := make(pgtype.FlatArray[[]byte], len(open))
	topics, parts, offs := make([]string, len(open)), make([]int32, len(open)), make([]int64, len(open))
	for k, i := range open {
		m := &as[i].Message
		ords[k], numbers[k], values[k] = int32(k), as[i].Number, m.Value
		topics[k], parts[k], offs[k] = m.Topic, m.Partition, m.Offset
	}
	found := make([]bool, len(open))
	withdrawn := map[int64]int{} // indexes of as by order
	err := s.do(ctx, "compare orders", func(ctx context.Context) error {
		clear(withdrawn)
		var ord int32
		var same, here bool
		var o order.Order
		targets := []any{
			&ord, &o.ID, (*int16)(&o.State), (*int16)(&o.Phase), &o.Version, &o.AttemptsTotal, &o.Life, (*int16)(&o.Outcome),
			&same, &here,
		}
		args := []any{route, ords, numbers, values, topics, parts, offs}
		return s.each(ctx, knownSQL, args, targets, func() error {
			i := open[ord]
			found[ord] = true
			out[i] = order.Admitted{Kind: order.Duplicate, Order: order.Order{
				ID: o.ID, Route: route, Number: as[i].Number, State: o.State, Phase: o.Phase, Version: o.Version,
			}}
			switch {
			case !same:
				out[i].Kind = order.Clash
			case here && order.Withdrawn(&o):
				if first, ok := withdrawn[o.ID]; !ok || i < first {
					withdrawn[o.ID] = i
				}
			}
			return nil
		})
	})
	if err == nil && len(withdrawn) > 0 {
		err = s.takeBack(ctx, owner, lease, as, withdrawn, out)
	}
	if err != nil {
		return nil, err
	}
	var clashes []order.DeadRecord
	rest := open[:0]
	for k, i := range open {
		switch {
		case !found[k]:
			rest = append(rest, i)
		case out[i].Kind == order.Clash:
			clashes = append(clashes, clash(route, &as[i], out[i].Order.ID))
		}
	}
	return rest, s.Bury(ctx, clashes)
}

// takeBack begins the first attempt of withdrawn orders, whose records are at these indexes of as. One that has moved on
// stays a Duplicate.
func (s *Store) takeBack(ctx context.Context, owner string, lease time.Duration, as []order.Admission, withdrawn map[int64]int, out []order.Admitted) error {
	ids := slices.Sorted(maps.Keys(withdrawn))
	versions := make([]int64, len(ids))
	for k, id := range ids {
		versions[k] = out[withdrawn[id]].Order.Version
	}
	back := make(map[int]order.Order, len(ids))
	err := s.do(ctx, "take orders back", func(ctx context.Context) error {
		clear(back)
		before := time.Now()
		var id, version int64
		var admitted, there time.Time
		targets := []any{&id, &version, &admitted, &there}
		return s.each(ctx, takeBackSQL, []any{owner, micros(lease), ids, versions}, targets, func() error {
			i, now := withdrawn[id], time.Now()
			o := newborn(id, out[i].Order.Route, &as[i], before.Add(lease), now)
			o.Version, o.AdmittedAt = version, now.Add(admitted.Sub(there))
			back[i] = o
			return nil
		})
	})
	if err != nil {
		return err
	}
	for i, o := range back {
		out[i] = order.Admitted{Kind: order.New, Order: o}
	}
	return nil
}

func clash(route string, a *order.Admission, id int64) order.DeadRecord {
	return order.DeadRecord{
		Route: route, Number: a.Number, Message: a.Message, Reason: order.PayloadConflict,
		Detail: fmt.Sprintf("order %d has another value under this business number", id),
	}
}
