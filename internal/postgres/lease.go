package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"spillway/order"
)

// renewSQL finds rows by id alone, see sessionDefaults.
const renewSQL = `
UPDATE orders o SET due = now() + $2::bigint * interval '1 microsecond'
FROM unnest($3::bigint[], $4::bigint[]) AS u(id, version)
WHERE o.id = ANY(ARRAY[u.id]) AND o.version = u.version AND o.state + 0 = 1 AND o.owner = $1
RETURNING o.id, o.version`

// Renew makes the leases of owner end one lease from now. The answer has the order and length of ls, at most MaxBatch;
// false says that the lease is lost: the row moved on, or somebody else claimed it. A lease that ran out and was not
// claimed is still the owner's. The version stays.
func (s *Store) Renew(ctx context.Context, owner string, lease time.Duration, ls []order.Lease) ([]bool, error) {
	if len(ls) == 0 {
		return nil, nil
	}
	if len(ls) > MaxBatch {
		return nil, fmt.Errorf("renew %d leases: want at most %d in one batch", len(ls), MaxBatch)
	}
	sorted := slices.Clone(ls)
	slices.SortFunc(sorted, compareLease)
	sorted = slices.Compact(sorted)
	ids, versions := make([]int64, len(sorted)), make([]int64, len(sorted))
	for i, l := range sorted {
		ids[i], versions[i] = l.ID, l.Version
	}
	held := make(map[order.Lease]bool, len(sorted))
	err := s.do(ctx, "renew leases", func(ctx context.Context) error {
		clear(held)
		var l order.Lease
		return s.each(ctx, renewSQL, []any{owner, micros(lease), ids, versions}, []any{&l.ID, &l.Version}, func() error {
			held[l] = true
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	out := make([]bool, len(ls))
	for i, l := range ls {
		out[i] = held[l]
	}
	return out, nil
}

// beginSQL finds rows by id alone, see sessionDefaults.
const beginSQL = `
UPDATE orders o SET version = o.version + 1, phase = 1, owner = $1, attempts = o.attempts + 1,
	attempts_total = o.attempts_total + 1, lookups = 0, last_attempt = now(),
	due = now() + $2::bigint * interval '1 microsecond', updated_at = now()
FROM unnest($3::bigint[]) AS u(id)
WHERE o.id = ANY(ARRAY[u.id]) AND o.state + 0 = 1 AND o.phase = 2
RETURNING ` + orderColumns

// Begin starts the next attempt of those orders that are still PROCESSING and REPLAYING: they become IN_FLIGHT, leased
// to owner, with the attempt counted. They come back complete, as they now stand, in the order of ids, at most
// MaxBatch; the others are missing from the answer.
func (s *Store) Begin(ctx context.Context, owner string, lease time.Duration, ids []int64) ([]order.Order, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	if len(ids) > MaxBatch {
		return nil, fmt.Errorf("begin %d orders: want at most %d in one batch", len(ids), MaxBatch)
	}
	sorted := slices.Clone(ids)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	begun, err := s.lease(ctx, "begin attempts", lease, beginSQL, owner, micros(lease), sorted)
	if err != nil {
		return nil, err
	}
	place := make(map[int64]int, len(ids))
	for i, id := range slices.Backward(ids) {
		place[id] = i
	}
	slices.SortFunc(begun, func(a, b order.Order) int { return place[a.ID] - place[b.ID] })
	return begun, nil
}

// claimSQL takes what is due. An attempt whose end nobody wrote down may have begun until its lease was over: the grace
// period counts from here. Moving due forward takes the row out of the range that the next claim reads.
const claimSQL = `
WITH locked AS MATERIALIZED (
	SELECT id, due, phase, owner, coalesce(octet_length(value), 0) + coalesce(octet_length(key), 0) + coalesce(octet_length(headers), 0) AS size FROM orders
	WHERE route = $1 AND state = 1 AND due <= now()
	ORDER BY due, id LIMIT $4 FOR UPDATE SKIP LOCKED),
c AS MATERIALIZED (
	SELECT id, due, phase, owner FROM (
		SELECT *, coalesce(sum(size) OVER (ORDER BY due, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
		FROM locked) AS l
	WHERE before < $5),
o AS (
	UPDATE orders o SET version = o.version + 1, owner = $2, due = now() + $3::bigint * interval '1 microsecond',
		updated_at = now(),
		last_attempt = CASE o.phase WHEN 1 THEN now() ELSE o.last_attempt END,
		phase = CASE o.phase WHEN 1 THEN 3 ELSE o.phase END,
		lookups = CASE o.phase WHEN 1 THEN 1 WHEN 3 THEN o.lookups + 1 ELSE o.lookups END,
		outcome = CASE o.phase WHEN 1 THEN 6 ELSE o.outcome END,
		reason = CASE o.phase WHEN 1 THEN 'WORKER_DIED' ELSE o.reason END,
		detail = CASE o.phase WHEN 1 THEN left('the lease of ' || coalesce(o.owner, 'nobody') || ' ran out', 512) ELSE o.detail END
	FROM c WHERE o.id = c.id
	RETURNING o.*, c.due AS was_due, c.phase AS was_phase),
history AS (
	INSERT INTO order_history (order_id, version, at, attempts_total, lookups, life, from_state, to_state, phase, outcome,
		kind, reason, detail, actor)
	SELECT id, version, now(), attempts_total, lookups, life, 1, state, phase, outcome, 'transition', reason, detail, $2
	FROM o WHERE was_phase = 1)
SELECT ` + orderColumns + ` FROM o ORDER BY o.was_due, o.id`

// claimBytes bounds the values of one claim: it takes no further order once it has so many bytes.
const claimBytes = 8 << 20

// ClaimDue takes at most n orders of the route, and at most MaxBatch and about 8 MiB, that are PROCESSING and due, those due longest
// first, and leases them to owner. An IN_FLIGHT one becomes UNKNOWN with reason WORKER_DIED, its first lookup counted;
// of an UNKNOWN one another lookup is counted; a REPLAYING one stays as it is. They come back complete. Callers at
// the same time never get the same order.
func (s *Store) ClaimDue(ctx context.Context, route, owner string, lease time.Duration, n int) ([]order.Order, error) {
	if n <= 0 {
		return nil, nil
	}
	// Planned anew each time, with n known: a plan kept for any n may sort all that is due.
	return s.lease(ctx, "claim due orders", lease, claimSQL, pgx.QueryExecModeCacheDescribe, route, owner, micros(lease), min(n, MaxBatch), int64(claimBytes))
}

// lease runs a statement that leases orders and returns orderColumns. The times come back on the caller's clock: a lease
// ends no later than its row says, and an attempt began no earlier, so that the grace period is never cut short.
func (s *Store) lease(ctx context.Context, what string, lease time.Duration, statement string, args ...any) ([]order.Order, error) {
	var out []order.Order
	err := s.do(ctx, what, func(ctx context.Context) error {
		out = nil
		before := time.Now()
		rows, err := s.pool.Query(ctx, statement, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		var here, there time.Time // the same moment, on the caller's clock and on the database's
		for rows.Next() {
			o, now, err := scanOrder(rows)
			if err != nil {
				return err
			}
			if len(out) == 0 {
				here, there = time.Now(), now
			}
			moveClock(&o, here, there)
			o.Due = before.Add(lease)
			out = append(out, o)
		}
		return rows.Err()
	})
	return out, err
}
