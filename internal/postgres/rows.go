package postgres

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"spillway/order"
)

// orderColumns is a whole row of orders, named o, and the database's clock, as scanOrder reads them.
const orderColumns = `o.id, o.route, o.number, o.key, o.topic, o.value, o.part, o.headers, o.off, o.record_time,
	o.state, o.phase, o.version, o.attempts, o.attempts_total, o.lookups, o.life, o.outcome, o.reason, o.detail,
	o.admitted_at, o.last_attempt, o.due, o.updated_at, now()`

// scanOrder reads the columns of orderColumns, then more. It returns the order with the database's times, and its now.
func scanOrder(row pgx.Row, more ...any) (o order.Order, now time.Time, err error) {
	var recorded, lastAttempt, due pgtype.Timestamptz
	var headers []byte
	m := &o.Message
	targets := append([]any{
		&o.ID, &o.Route, &o.Number, &m.Key, &m.Topic, &m.Value, &m.Partition, &headers, &m.Offset, &recorded,
		(*int16)(&o.State), (*int16)(&o.Phase), &o.Version, &o.Attempts, &o.AttemptsTotal, &o.Lookups, &o.Life,
		(*int16)(&o.Outcome), (*string)(&o.Reason), &o.Detail,
		&o.AdmittedAt, &lastAttempt, &due, &o.UpdatedAt, &now,
	}, more...)
	if err := row.Scan(targets...); err != nil {
		return o, now, err
	}
	if m.Headers, err = decodeHeaders(headers); err != nil {
		return o, now, fmt.Errorf("order %d: %w", o.ID, err)
	}
	m.Time, o.LastAttempt, o.Due = recorded.Time, lastAttempt.Time, due.Time
	return o, now, nil
}

// moveClock moves an order's times onto the caller's clock, where here is what there is on the database's. They get its
// monotonic reading too, so that a step of the caller's clock changes no wait. Zero stays zero; the record's own time is not
// ours.
func moveClock(o *order.Order, here, there time.Time) {
	for _, t := range []*time.Time{&o.AdmittedAt, &o.LastAttempt, &o.Due, &o.UpdatedAt} {
		if !t.IsZero() {
			*t = here.Add(t.Sub(there))
		}
	}
}

// stamp is a time as a column takes it. What is zero, or outside the years that everybody can read, is NULL.
func stamp(t time.Time) pgtype.Timestamptz {
	if y := t.UTC().Year(); t.IsZero() || y < 1 || y > 9999 {
		return pgtype.Timestamptz{}
	}
	return pgtype.Timestamptz{Time: t, Valid: true}
}

// micros is a wait as an SQL bigint, never negative.
func micros(d time.Duration) int64 { return max(0, d.Microseconds()) }

// digest tells records apart that stand at the same place of topics of the same name: SHA-256 over all there is of the
// record, or over the raw bytes.
func digest(d *order.DeadRecord) []byte {
	h := sha256.New()
	var buf []byte
	add := func(b []byte) {
		n := uint64(0) // null
		if b != nil {
			n = uint64(len(b)) + 1
		}
		buf = binary.AppendUvarint(buf[:0], n)
		h.Write(buf)
		h.Write(b)
	}
	if d.Raw != nil {
		add(d.Raw)
		return h.Sum(nil)
	}
	m := &d.Message
	buf = binary.BigEndian.AppendUint64(nil, uint64(m.Time.UnixMilli()))
	h.Write(buf)
	add(m.Key)
	add(m.Value)
	add(encodeHeaders(m.Headers))
	return h.Sum(nil)
}

// records is the columns of many Kafka records, for unnest.
type records struct {
	topic   []string
	part    []int32
	off     []int64
	time    pgtype.FlatArray[pgtype.Timestamptz]
	key     pgtype.FlatArray[[]byte]
	value   pgtype.FlatArray[[]byte]
	headers pgtype.FlatArray[[]byte]
}

func newRecords(n int) records {
	return records{
		topic: make([]string, 0, n), part: make([]int32, 0, n), off: make([]int64, 0, n),
		time: make([]pgtype.Timestamptz, 0, n), key: make([][]byte, 0, n), value: make([][]byte, 0, n),
		headers: make([][]byte, 0, n),
	}
}

func (r *records) add(m *order.Message) {
	r.topic = append(r.topic, m.Topic)
	r.part = append(r.part, m.Partition)
	r.off = append(r.off, m.Offset)
	r.time = append(r.time, stamp(m.Time))
	r.key = append(r.key, m.Key)
	r.value = append(r.value, m.Value)
	r.headers = append(r.headers, encodeHeaders(m.Headers))
}
