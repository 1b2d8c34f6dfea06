package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"spillway/internal/desk"
	"spillway/order"
)

// requeueOrdersSQL starts new lives of dead orders. The transition is order.Policy.Requeue.
// $1 letters, $2 operator, $3 note, then the transition: $4 state, $5 phase, $6 outcome, $7 reason, $8 wait.
const requeueOrdersSQL = `
WITH l AS MATERIALIZED (
	SELECT id, order_id FROM dead_letters WHERE id = ANY($1::bigint[]) AND status = 1 AND order_id IS NOT NULL
	ORDER BY id FOR UPDATE),
moved AS (
	UPDATE orders o SET version = o.version + 1, state = $4::smallint, phase = $5::smallint, owner = NULL, attempts = 0,
		attempts_total = 0, lookups = 0, life = o.life + 1, outcome = $6::smallint, reason = $7::text, detail = $3::text,
		due = CASE WHEN $4::smallint = 1 THEN now() + $8::bigint * interval '1 microsecond' END, updated_at = now()
	FROM l WHERE o.id = l.order_id AND o.state = 4
	RETURNING o.*, l.id AS letter)` + resolveTail

// discardOrdersSQL gives dead orders up. Its counters stay: they tell what was tried.
const discardOrdersSQL = `
WITH l AS MATERIALIZED (
	SELECT id, order_id FROM dead_letters WHERE id = ANY($1::bigint[]) AND status = 1 AND order_id IS NOT NULL
	ORDER BY id FOR UPDATE),
moved AS (
	UPDATE orders o SET version = o.version + 1, state = 5, phase = 0, owner = NULL, reason = $4::text, detail = $3::text,
		due = NULL, updated_at = now()
	FROM l WHERE o.id = l.order_id AND o.state = 4
	RETURNING o.*, l.id AS letter)` + resolveTail

// resolveTail writes history of what moved, marks the letters, and returns both ids.
const resolveTail = `,
history AS (
	INSERT INTO order_history (order_id, version, at, attempts_total, lookups, life, from_state, to_state, phase, outcome,
		kind, reason, detail, actor)
	SELECT id, version, now(), attempts_total, lookups, life, 4, state, phase, outcome, 'transition', reason, detail, $2
	FROM moved),
marked AS (
	UPDATE dead_letters d SET status = CASE m.state WHEN 5 THEN 3 ELSE 2 END, resolved_at = now(), resolved_by = $2, note = $3
	FROM moved m WHERE d.id = m.letter)
SELECT letter, id FROM moved`

// requeueRecordsSQL makes orders of records that could not become orders before, and now can. They were never sent, so
// there is nothing to look up: they are born REPLAYING and due.
const requeueRecordsSQL = `
WITH l AS MATERIALIZED (
	SELECT d.*, u.number AS now_number FROM unnest($1::bigint[], $4::text[]) AS u(id, number)
	JOIN dead_letters d ON d.id = u.id
	WHERE d.status = 1 AND d.order_id IS NULL AND d.raw IS NULL
	ORDER BY d.id FOR UPDATE OF d),
made AS (
	INSERT INTO orders (route, number, topic, part, off, record_time, key, value, headers, state, phase, version,
		admitted_at, attempts, attempts_total, lookups, due, life, outcome, reason, updated_at, detail)
	SELECT route, now_number, topic, part, off, record_time, key, value, headers, 1, 2, 1,
		now(), 0, 0, 0, now(), life + 1, 0, $5::text, now(), $3::text
	FROM l ORDER BY route, now_number, id
	ON CONFLICT (route, number) DO NOTHING
	RETURNING *),
moved AS (
	SELECT made.*, l.id AS letter FROM made JOIN l ON l.route = made.route AND l.now_number = made.number
		AND l.topic = made.topic AND l.part = made.part AND l.off = made.off AND l.value IS NOT DISTINCT FROM made.value)` + resolveTail

const discardRecordsSQL = `
UPDATE dead_letters SET status = 3, resolved_at = now(), resolved_by = $2, note = $3
WHERE id = ANY($1::bigint[]) AND status = 1 AND order_id IS NULL
RETURNING id, 0::bigint`

// Requeue starts a new life for dead letters, at most [desk.MaxPage] of them: the order of a letter becomes PROCESSING
// and UNKNOWN, so that it is looked up before it is sent again. A letter without an order needs the business number
// that its record shows now, and becomes an order that waits in the replay queue. Each letter is done or not by itself,
// and the answer has the order and length of rs; asked twice for a letter, in one call or two, it is refused once.
func (s *Store) Requeue(ctx context.Context, by desk.Sign, rs []desk.Requeue) ([]desk.Resolved, error) {
	ids := make([]int64, len(rs))
	for i := range rs {
		ids[i] = rs[i].ID
	}
	if err := checkResolve(by, len(ids)); err != nil {
		return nil, err
	}
	note := desk.Fit(by.Note)
	var made []int64
	var numbers []string
	for _, r := range rs {
		if order.CheckNumber(r.Number) == nil && !slices.Contains(made, r.ID) {
			made, numbers = append(made, r.ID), append(numbers, r.Number)
		}
	}
	now := time.Now()
	t := order.Policy{}.Requeue(now)
	done := map[int64]int64{} // letter → order
	err := s.resolve(ctx, "requeue dead letters", done, requeueOrdersSQL, ids, by.Operator, note,
		int16(t.State), int16(t.Phase), int16(t.Outcome), string(t.Reason), dueIn(t.Due, now))
	if err == nil && len(made) > 0 {
		err = s.resolve(ctx, "requeue dead letters", done, requeueRecordsSQL, made, by.Operator, note, numbers, string(order.Requeued))
	}
	if err != nil {
		return nil, err
	}
	asked := make(map[int64]string, len(rs))
	for _, r := range rs {
		asked[r.ID] = r.Number
	}
	return s.report(ctx, ids, done, asked)
}

// Discard gives dead letters up, at most [desk.MaxPage] of them, for good: their orders become DISCARDED. Each letter
// is done or not by itself, and the answer has the order and length of ids.
func (s *Store) Discard(ctx context.Context, by desk.Sign, ids []int64) ([]desk.Resolved, error) {
	if err := checkResolve(by, len(ids)); err != nil {
		return nil, err
	}
	note := desk.Fit(by.Note)
	done := map[int64]int64{}
	err := s.resolve(ctx, "discard dead letters", done, discardOrdersSQL, ids, by.Operator, note, string(order.DiscardedByOperator))
	if err == nil {
		err = s.resolve(ctx, "discard dead letters", done, discardRecordsSQL, ids, by.Operator, note)
	}
	if err != nil {
		return nil, err
	}
	return s.report(ctx, ids, done, nil)
}

func checkResolve(by desk.Sign, n int) error {
	if n > desk.MaxPage {
		return fmt.Errorf("resolve %d dead letters: want at most %d in one call", n, desk.MaxPage)
	}
	return by.Check()
}

// resolve runs a statement that returns the letters it resolved, with their orders, into done.
func (s *Store) resolve(ctx context.Context, what string, done map[int64]int64, statement string, args ...any) error {
	return s.do(ctx, what, func(ctx context.Context) error {
		var letter, id int64
		return s.each(ctx, statement, planned(args), []any{&letter, &id}, func() error {
			done[letter] = id
			return nil
		})
	})
}

// report answers for each letter: done, or why not. asked has the numbers that a requeue named; nil for a discard.
func (s *Store) report(ctx context.Context, ids []int64, done map[int64]int64, asked map[int64]string) ([]desk.Resolved, error) {
	out := make([]desk.Resolved, len(ids))
	told := map[int64]bool{}
	for i, id := range ids {
		out[i].ID = id
		orderID, ok := done[id]
		if ok && !told[id] {
			told[id] = true
			out[i].OrderID = orderID
			continue
		}
		l, err := s.ShowDeadLetter(ctx, id)
		switch {
		case errors.Is(err, desk.ErrNotFound):
			out[i].Err = err
			continue
		case err != nil:
			return nil, err
		}
		out[i].OrderID = l.OrderID
		if out[i].Err = l.Obstacle(asked[id], asked != nil); out[i].Err == nil {
			out[i].Err = s.numberTaken(ctx, l, asked[id])
		}
	}
	return out, nil
}

// numberTaken says that another order has the number already, which is what is left once a letter shows no obstacle.
func (s *Store) numberTaken(ctx context.Context, l desk.Letter, number string) error {
	v, err := s.ShowOrder(ctx, l.Route, number)
	if err != nil {
		return fmt.Errorf("dead letter %d was not resolved, and nothing shows why: try again: %w", l.ID, desk.ErrRefused)
	}
	return l.Taken(v.Order)
}
