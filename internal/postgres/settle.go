package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"spillway/internal/desk"
	"spillway/order"
)

// settleSQL is the one guarded UPDATE. An attempt that ended unknown may have begun until now: the grace period counts
// from here, not from the lease, which an order may hold long before it has a permit. $1 is the owner; the others are columns, see settlements.
// Its conditions are written so that rows can be found by id alone, see sessionDefaults.
const settleSQL = `
UPDATE orders o SET version = o.version + 1, state = u.state, phase = u.phase,
	owner = CASE WHEN u.phase = 1 THEN $1 END,
	attempts = u.attempts, attempts_total = u.attempts_total, lookups = u.lookups,
	outcome = u.outcome, reason = u.reason, detail = u.detail,
	last_attempt = CASE WHEN o.phase = 1 AND u.phase = 3 THEN now() ELSE o.last_attempt END,
	due = CASE WHEN u.state = 1 THEN now() + u.wait * interval '1 microsecond' END,
	updated_at = now()
FROM unnest($2::bigint[], $3::bigint[], $4::smallint[], $5::smallint[], $6::int[], $7::int[], $8::int[], $9::smallint[],
	$10::text[], $11::text[], $12::bigint[], $13::bool[])
	AS u(id, version, state, phase, attempts, attempts_total, lookups, outcome, reason, detail, wait, told)
WHERE o.id = ANY(ARRAY[u.id]) AND o.version = u.version AND o.state + 0 = 1
RETURNING o.id, o.version`

// settleTellSQL is settleSQL with the history and the dead letters of what it moved. The letters read the row again,
// for the record: the statement still sees it as it was, and those columns never change.
const settleTellSQL = `WITH moved AS (` + settleSQL + `, o.state, o.phase, o.attempts_total, o.lookups, o.life, o.outcome,
	o.reason, o.detail, u.told),
history AS (
	INSERT INTO order_history (order_id, version, at, attempts_total, lookups, life, from_state, to_state, phase, outcome,
		kind, reason, detail, actor)
	SELECT id, version, now(), attempts_total, lookups, life, 1, state, phase, outcome, 'transition', reason, detail, $1
	FROM moved WHERE told),
letters AS (
	INSERT INTO dead_letters (order_id, route, number, topic, part, off, record_time, key, value, headers, digest, reason,
		detail, attempts_total, life, status, created_at, resolved_by, note)
	SELECT m.id, o.route, o.number, o.topic, o.part, o.off, o.record_time, o.key, o.value, o.headers, '', m.reason,
		m.detail, m.attempts_total, m.life, 1, now(), '', ''
	FROM moved m JOIN orders o ON o.id = ANY(ARRAY[m.id]) WHERE m.state = 4)
SELECT id, version FROM moved`

const standSQL = `SELECT o.id, o.version, o.state, o.life FROM orders o WHERE o.id = ANY($1::bigint[])`

const lateSQL = `
INSERT INTO order_history (order_id, version, at, attempts_total, lookups, life, from_state, to_state, phase, outcome,
	kind, reason, detail, actor)
SELECT u.id, u.version, now(), u.attempts_total, u.lookups, u.life, u.from_state, u.to_state, 0, u.outcome,
	u.kind, u.reason, u.detail, $1
FROM unnest($2::bigint[], $3::bigint[], $4::int[], $5::int[], $6::int[], $7::smallint[], $8::smallint[], $9::smallint[],
	$10::text[], $11::text[], $12::text[])
	AS u(id, version, attempts_total, lookups, life, from_state, to_state, outcome, kind, reason, detail)`

// Settle applies transitions, each where its row is still PROCESSING at the version it was read with, with their
// history, and a dead letter for each that ends DEAD. The answer has the order and length of ss, at most MaxBatch. It
// is committed when Settle returns.
//
// A settlement that did not apply is a Conflict where the row is final and says otherwise: then it is in the order's
// history. Else it is Stale, also where the row is gone. After an error it is open what was applied; the same
// settlements may be sent again, and those that had been applied are Stale then.
func (s *Store) Settle(ctx context.Context, owner string, ss []order.Settlement) ([]order.Settled, error) {
	if len(ss) == 0 {
		return nil, nil
	}
	if len(ss) > MaxBatch {
		return nil, fmt.Errorf("settle %d orders: want at most %d in one batch", len(ss), MaxBatch)
	}
	sorted := make([]int, len(ss))
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortStableFunc(sorted, func(a, b int) int { return compareLease(leaseOf(&ss[a]), leaseOf(&ss[b])) })
	u, firsts := newSettlements(ss, sorted)
	statement := settleSQL
	if u.tells {
		statement = settleTellSQL
	}
	out := make([]order.Settled, len(ss))
	err := s.do(ctx, "settle orders", func(ctx context.Context) error {
		for i := range out {
			out[i] = order.Stale
		}
		var l order.Lease
		return s.each(ctx, statement, u.args(owner), []any{&l.ID, &l.Version}, func() error {
			l.Version-- // as it was
			at, ok := slices.BinarySearchFunc(firsts, l, func(i int, l order.Lease) int { return compareLease(leaseOf(&ss[i]), l) })
			if !ok {
				return fmt.Errorf("order %d moved and was not sent", l.ID)
			}
			out[firsts[at]] = order.Applied
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	var late []int
	for i := range ss {
		if out[i] != order.Applied && ss[i].State.Final() {
			late = append(late, i)
		}
	}
	if len(late) == 0 {
		return out, nil
	}
	return out, s.tellLate(ctx, owner, ss, late, out)
}

func leaseOf(s *order.Settlement) order.Lease { return order.Lease{ID: s.ID, Version: s.Version} }

func compareLease(a, b order.Lease) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Version, b.Version))
}

// settlements is the columns of settleSQL.
type settlements struct {
	id, version, wait                []int64
	state, phase, outcome            []int16
	attempts, attemptsTotal, lookups []int32
	reason, detail                   []string
	told                             []bool
	tells                            bool // whether any of them has history or a letter
}

// newSettlements fills the columns from ss in the order of sorted, and returns which of them it took: the same
// settlement twice in one batch is taken once.
func newSettlements(ss []order.Settlement, sorted []int) (u settlements, firsts []int) {
	n := len(ss)
	u = settlements{
		id: make([]int64, 0, n), version: make([]int64, 0, n), wait: make([]int64, 0, n),
		state: make([]int16, 0, n), phase: make([]int16, 0, n), outcome: make([]int16, 0, n),
		attempts: make([]int32, 0, n), attemptsTotal: make([]int32, 0, n), lookups: make([]int32, 0, n),
		reason: make([]string, 0, n), detail: make([]string, 0, n), told: make([]bool, 0, n),
	}
	firsts = make([]int, 0, n)
	now := time.Now()
	for _, i := range sorted {
		t := &ss[i]
		if k := len(firsts); k > 0 && leaseOf(&ss[firsts[k-1]]) == leaseOf(t) {
			continue
		}
		firsts = append(firsts, i)
		told := !t.Straight || t.State == order.Dead
		u.tells = u.tells || told
		u.id, u.version = append(u.id, t.ID), append(u.version, t.Version)
		u.wait = append(u.wait, dueIn(t.Due, now))
		u.state, u.phase = append(u.state, int16(t.State)), append(u.phase, int16(t.Phase))
		u.outcome = append(u.outcome, int16(t.Outcome))
		u.attempts = append(u.attempts, int32(t.Attempts))                //nolint:gosec // bounded by the policy
		u.attemptsTotal = append(u.attemptsTotal, int32(t.AttemptsTotal)) //nolint:gosec // bounded by the policy
		u.lookups = append(u.lookups, int32(t.Lookups))                   //nolint:gosec // bounded by the policy
		u.reason = append(u.reason, string(t.Reason))
		u.detail = append(u.detail, desk.Fit(t.Detail))
		u.told = append(u.told, told)
	}
	return u, firsts
}

// dueIn is how far off a due time is, in microseconds, negative where it has passed. None is now.
func dueIn(due, now time.Time) int64 {
	if due.IsZero() {
		return 0
	}
	return due.Sub(now).Microseconds()
}

func (u *settlements) args(owner string) []any {
	return []any{
		owner, u.id, u.version, u.state, u.phase, u.attempts, u.attemptsTotal, u.lookups, u.outcome, u.reason, u.detail,
		u.wait, u.told,
	}
}

// stand is where a row stands that a settlement missed.
type stand struct {
	version int64
	state   order.State
	life    int32
}

// tellLate looks at the rows that final answers missed, and writes down those answers that say something new.
func (s *Store) tellLate(ctx context.Context, owner string, ss []order.Settlement, late []int, out []order.Settled) error {
	ids := make([]int64, len(late))
	for k, i := range late {
		ids[k] = ss[i].ID
	}
	stands := make(map[int64]stand, len(late))
	err := s.do(ctx, "read orders that were settled otherwise", func(ctx context.Context) error {
		var id int64
		var at stand
		return s.each(ctx, standSQL, []any{ids}, []any{&id, &at.version, (*int16)(&at.state), &at.life}, func() error {
			stands[id] = at
			return nil
		})
	})
	if err != nil {
		return err
	}
	var u settlements
	var life []int32
	var from []int16
	var kind []string
	for _, i := range late {
		t := &ss[i]
		at, ok := stands[t.ID]
		if !ok {
			continue
		}
		k := desk.LateAnswer(at.state, t.State)
		if k == "" {
			continue
		}
		if k == desk.Conflict {
			out[i] = order.Conflict
		}
		u.id, u.version = append(u.id, t.ID), append(u.version, at.version)
		u.attemptsTotal = append(u.attemptsTotal, int32(t.AttemptsTotal)) //nolint:gosec // bounded by the policy
		u.lookups = append(u.lookups, int32(t.Lookups))                   //nolint:gosec // bounded by the policy
		u.state, u.outcome = append(u.state, int16(t.State)), append(u.outcome, int16(t.Outcome))
		u.reason, u.detail = append(u.reason, string(t.Reason)), append(u.detail, desk.Fit(t.Detail))
		life, from, kind = append(life, at.life), append(from, int16(at.state)), append(kind, string(k))
	}
	if len(u.id) == 0 {
		return nil
	}
	return s.do(ctx, "write late answers", func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, lateSQL, owner, u.id, u.version, u.attemptsTotal, u.lookups, life, from, u.state,
			u.outcome, kind, u.reason, u.detail)
		return err
	})
}
