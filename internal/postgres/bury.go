package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"spillway/internal/desk"
	"spillway/order"
)

const burySQL = `
INSERT INTO dead_letters (route, number, topic, part, off, record_time, key, value, headers, raw, digest, reason, detail,
	attempts_total, life, status, created_at, resolved_by, note)
SELECT u.route, NULLIF(u.number, ''), u.topic, u.part, u.off, u.record_time, u.key, u.value, u.headers, u.raw, u.digest,
	u.reason, u.detail, 0, 0, 1, now(), '', ''
FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::bigint[], $6::timestamptz[], $7::bytea[], $8::bytea[],
	$9::bytea[], $10::bytea[], $11::bytea[], $12::text[], $13::text[])
	AS u(route, number, topic, part, off, record_time, key, value, headers, raw, digest, reason, detail)
ON CONFLICT DO NOTHING`

// Bury writes records that could not become orders to the dead letters, at most MaxBatch. A record that is there
// already, also one that was resolved, is not written again; the bytes of a queue item are, once the earlier letter is
// resolved.
func (s *Store) Bury(ctx context.Context, ds []order.DeadRecord) error {
	if len(ds) == 0 {
		return nil
	}
	if len(ds) > MaxBatch {
		return fmt.Errorf("bury %d records: want at most %d in one batch", len(ds), MaxBatch)
	}
	sorted := make([]*order.DeadRecord, len(ds))
	for i := range ds {
		sorted[i] = &ds[i]
	}
	slices.SortFunc(sorted, func(a, b *order.DeadRecord) int {
		return cmp.Or(cmp.Compare(a.Route, b.Route), cmp.Compare(a.Message.Topic, b.Message.Topic),
			cmp.Compare(a.Message.Partition, b.Message.Partition), cmp.Compare(a.Message.Offset, b.Message.Offset))
	})
	n := len(ds)
	rs := newRecords(n)
	routes, numbers := make([]string, n), make([]string, n)
	reasons, details := make([]string, n), make([]string, n)
	raws, digests := make(pgtype.FlatArray[[]byte], n), make(pgtype.FlatArray[[]byte], n)
	for i, d := range sorted {
		rs.add(&d.Message)
		routes[i], numbers[i] = d.Route, desk.Fit(d.Number)
		reasons[i], details[i] = string(d.Reason), desk.Fit(d.Detail)
		raws[i], digests[i] = d.Raw, digest(d)
	}
	return s.do(ctx, "write dead letters", func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, burySQL, routes, numbers, rs.topic, rs.part, rs.off, rs.time, rs.key, rs.value,
			rs.headers, raws, digests, reasons, details)
		return err
	})
}
