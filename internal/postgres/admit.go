package postgres

import (
	"context"
	"errors"
	"fmt"
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
SELECT u.ord, o.id, o.state, o.phase, o.version, o.value IS NOT DISTINCT FROM u.value
FROM unnest($2::int[], $3::text[], $4::bytea[]) AS u(ord, number, value)
CROSS JOIN LATERAL (SELECT * FROM orders WHERE route = $1 AND number = u.number OFFSET 0) AS o`

// errVanished says that rows were in the way of an insert and gone when they were looked at, again and again.
var errVanished = errors.New("rows of the same business numbers come and go")

// Admit makes orders of records, leased to owner for the length of lease, with their first attempt counted. The answer
// has the order and length of as, at most MaxBatch.
//
// A business number that is there already is a Duplicate where the value is the same, null and empty being different
// values, and a Clash otherwise: its record is in the dead letters when Admit returns. Of two records with the same
// number in one batch the first wins.
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
		if open, err = s.compare(ctx, route, as, open, out); err != nil {
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
		AdmittedAt: now, LastAttempt: now, Due: due, UpdatedAt: now,
	}
}

// compare tells duplicates from clashes, buries the records of the clashes, and returns the indexes of those whose rows
// it did not find.
func (s *Store) compare(ctx context.Context, route string, as []order.Admission, open []int, out []order.Admitted) ([]int, error) {
	if len(open) == 0 {
		return nil, nil
	}
	ords := make([]int32, len(open))
	numbers := make([]string, len(open))
	values := make(pgtype.FlatArray[[]byte], len(open))
	for k, i := range open {
		ords[k], numbers[k], values[k] = int32(k), as[i].Number, as[i].Message.Value
	}
	found := make([]bool, len(open))
	err := s.do(ctx, "compare orders", func(ctx context.Context) error {
		var ord int32
		var same bool
		var o order.Order
		targets := []any{&ord, &o.ID, (*int16)(&o.State), (*int16)(&o.Phase), &o.Version, &same}
		return s.each(ctx, knownSQL, []any{route, ords, numbers, values}, targets, func() error {
			i := open[ord]
			found[ord] = true
			out[i] = order.Admitted{Kind: order.Duplicate, Order: o}
			out[i].Order.Route, out[i].Order.Number = route, as[i].Number
			if !same {
				out[i].Kind = order.Clash
			}
			return nil
		})
	})
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

func clash(route string, a *order.Admission, id int64) order.DeadRecord {
	return order.DeadRecord{
		Route: route, Number: a.Number, Message: a.Message, Reason: order.PayloadConflict,
		Detail: fmt.Sprintf("order %d has another value under this business number", id),
	}
}
