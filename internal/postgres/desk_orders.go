package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"spillway/internal/desk"
	"spillway/order"
)

// where collects the conditions of a query that a person narrows down. Conditions that are not asked for are left out,
// so that the plan fits those that are.
type where struct {
	conditions []string
	args       []any
}

// add adds a condition; its %s becomes the argument's place.
func (w *where) add(condition string, arg any) {
	w.args = append(w.args, arg)
	w.conditions = append(w.conditions, fmt.Sprintf(condition, "$"+strconv.Itoa(len(w.args))))
}

// prefix narrows down a column in the C collation to texts that start with p, in a form that an index serves.
func (w *where) prefix(column, p string) {
	w.add(column+` LIKE %s`, strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(desk.Fit(p))+"%")
}

// olderThan narrows down a time.
func (w *where) olderThan(column string, d time.Duration) {
	w.add(column+` <= now() - %s::bigint * interval '1 microsecond'`, micros(d))
}

func (w *where) String() string {
	if len(w.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.conditions, " AND ")
}

// planned puts before the arguments that the plan is to be made for them, and not kept.
func planned(args []any) []any { return append([]any{pgx.QueryExecModeCacheDescribe}, args...) }

// listColumns is orderColumns without the record's bytes.
const listColumns = `o.id, o.route, o.number, NULL::bytea, o.topic, NULL::bytea, o.part, NULL::bytea, o.off, o.record_time,
	o.state, o.phase, o.version, o.attempts, o.attempts_total, o.lookups, o.life, o.outcome, o.reason, o.detail,
	o.admitted_at, o.last_attempt, o.due, o.updated_at, now()`

// ListOrders lists orders, the newest first, without the bytes of their records: see ShowOrder for those. A filter
// that few rows pass may read many: name the route and a prefix or a state then, or the statement timeout ends it.
func (s *Store) ListOrders(ctx context.Context, f desk.OrderFilter) ([]order.Order, error) {
	var w where
	if f.Route != "" {
		w.add("o.route = %s", f.Route)
	}
	switch {
	case f.State == order.Processing, f.State == 0 && f.Phase != order.NoPhase:
		w.conditions = append(w.conditions, "o.state = 1") // in plain, for the partial index
	case f.State != 0:
		w.add("o.state = %s", int16(f.State))
	}
	if f.Phase != order.NoPhase {
		w.add("o.phase = %s", int16(f.Phase))
	}
	if f.Prefix != "" {
		w.prefix("o.number", f.Prefix)
	}
	if f.OlderThan > 0 {
		w.olderThan("o.admitted_at", f.OlderThan)
	}
	if f.Before > 0 {
		w.add("o.id < %s", f.Before)
	}
	query := "SELECT " + listColumns + " FROM orders o" + w.String() + " ORDER BY o.id DESC LIMIT " + strconv.Itoa(desk.Page(f.Limit))
	var out []order.Order
	err := s.do(ctx, "list orders", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, query, planned(w.args)...)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (order.Order, error) {
			o, _, err := scanOrder(row)
			return o, err
		})
		return err
	})
	return out, err
}

const showSQL = `SELECT ` + orderColumns + `, coalesce(o.owner, ''),
	coalesce((SELECT d.id FROM dead_letters d WHERE d.order_id = o.id AND d.status = 1), 0)
FROM orders o WHERE o.route = $1 AND o.number = $2`

const historySQL = `
SELECT kind, version, at, from_state, to_state, phase, outcome, reason, detail, attempts_total, lookups, life, actor
FROM (SELECT * FROM order_history WHERE order_id = $1 ORDER BY seq DESC LIMIT $2) h ORDER BY seq`

// ShowOrder reads one order with its record, history and dead letter. It returns [desk.ErrNotFound] where there is none.
func (s *Store) ShowOrder(ctx context.Context, route, number string) (desk.OrderView, error) {
	var v desk.OrderView
	err := s.do(ctx, "show order", func(ctx context.Context) error {
		v = desk.OrderView{}
		var err error
		v.Order, _, err = scanOrder(s.pool.QueryRow(ctx, showSQL, route, number), &v.Owner, &v.Letter)
		if noRows(err) {
			return fmt.Errorf("order %q of route %q: %w", number, route, desk.ErrNotFound)
		}
		if err != nil {
			return err
		}
		rows, err := s.pool.Query(ctx, historySQL, v.Order.ID, desk.MaxHistory)
		if err != nil {
			return err
		}
		v.History, err = pgx.CollectRows(rows, scanEvent)
		return err
	})
	return v, err
}

func scanEvent(row pgx.CollectableRow) (e desk.Event, err error) {
	err = row.Scan((*string)(&e.Kind), &e.Version, &e.At, (*int16)(&e.From), (*int16)(&e.To), (*int16)(&e.Phase),
		(*int16)(&e.Outcome), (*string)(&e.Reason), &e.Detail, &e.AttemptsTotal, &e.Lookups, &e.Life, &e.Actor)
	return e, err
}

// countsSQL looks at a bounded part of orders_due. The phases are not in the index: each entry costs a look at its row.
const countsSQL = `
SELECT count(*) FILTER (WHERE phase = 1), count(*) FILTER (WHERE phase = 2), count(*) FILTER (WHERE phase = 3),
	coalesce(extract(epoch FROM now() - min(admitted_at)) * 1000000, 0)::bigint,
	(SELECT count(*) FROM dead_letters d WHERE d.route = $1 AND d.status = 1)
FROM (SELECT phase, admitted_at FROM orders WHERE route = $1 AND state = 1 ORDER BY due, id LIMIT $2) o`

// Counts reads what the gauges of a route show, at the cost of its PROCESSING orders, of which it looks at
// [desk.CountLimit].
func (s *Store) Counts(ctx context.Context, route string) (desk.Counts, error) {
	var c desk.Counts
	err := s.do(ctx, "count orders", func(ctx context.Context) error {
		var flying, replaying, unknown, oldest int64
		row := s.pool.QueryRow(ctx, countsSQL, pgx.QueryExecModeCacheDescribe, route, desk.CountLimit)
		if err := row.Scan(&flying, &replaying, &unknown, &oldest, &c.DeadWaiting); err != nil {
			return err
		}
		c.Processing = make(map[order.Phase]int64)
		c.Processing[order.InFlight], c.Processing[order.Replaying], c.Processing[order.Unknown] = flying, replaying, unknown
		c.Capped = flying+replaying+unknown >= desk.CountLimit
		c.Oldest = time.Duration(oldest) * time.Microsecond
		return nil
	})
	return c, err
}

// tallySQL counts both tables in one statement, and so at one moment.
const tallySQL = `
SELECT 0, state, phase, count(*) FROM orders WHERE route = $1 GROUP BY state, phase
UNION ALL
SELECT CASE WHEN order_id IS NULL THEN 1 ELSE 2 END, status, 0, count(*) FROM dead_letters WHERE route = $1 GROUP BY 1, 2`

// Tally counts all of a route's rows, exactly and as of one moment. It reads the tables whole: for tests, drills and
// the conservation check, not for gauges.
func (s *Store) Tally(ctx context.Context, route string) (desk.Tally, error) {
	var t desk.Tally
	err := s.do(ctx, "tally orders", func(ctx context.Context) error {
		t = desk.NewTally()
		var table int32
		var a, b int16
		var n int64
		return s.each(ctx, tallySQL, []any{pgx.QueryExecModeCacheDescribe, route}, []any{&table, &a, &b, &n}, func() error {
			switch table {
			case 0:
				t.Orders[desk.Place{State: order.State(a), Phase: order.Phase(b)}] = n
			case 1:
				t.Letters[desk.LetterStatus(a)] = n
			case 2:
				t.OrderLetters[desk.LetterStatus(a)] = n
			}
			return nil
		})
	})
	return t, err
}

const letterColumns = `d.id, coalesce(d.order_id, 0), d.route, coalesce(d.number, ''), d.topic, d.part, d.off, d.record_time,
	d.raw IS NOT NULL, d.reason, d.detail, d.attempts_total, d.life, d.created_at, d.status, d.resolved_at, d.resolved_by,
	d.note`

func scanLetter(row pgx.Row, more ...any) (l desk.Letter, err error) {
	var recorded, resolved pgtype.Timestamptz
	m := &l.Message
	err = row.Scan(append([]any{
		&l.ID, &l.OrderID, &l.Route, &l.Number, &m.Topic, &m.Partition, &m.Offset, &recorded,
		&l.Unreadable, (*string)(&l.Reason), &l.Detail, &l.AttemptsTotal, &l.Life, &l.CreatedAt, (*int16)(&l.Status),
		&resolved, &l.ResolvedBy, &l.Note,
	}, more...)...)
	m.Time, l.ResolvedAt = recorded.Time, resolved.Time
	return l, err
}

// ListDeadLetters lists dead letters, the newest first, without their bytes: see ShowDeadLetter for those.
func (s *Store) ListDeadLetters(ctx context.Context, f desk.LetterFilter) ([]desk.Letter, error) {
	var w where
	if f.Route != "" {
		w.add("d.route = %s", f.Route)
	}
	switch {
	case f.Status == desk.Waiting:
		w.conditions = append(w.conditions, "d.status = 1") // in plain, for the partial index
	case f.Status != 0:
		w.add("d.status = %s", int16(f.Status))
	}
	if f.Reason != order.NoReason {
		w.add("d.reason = %s", string(f.Reason))
	}
	if f.Prefix != "" {
		w.prefix("d.number", f.Prefix)
	}
	if f.OlderThan > 0 {
		w.olderThan("d.created_at", f.OlderThan)
	}
	if f.Before > 0 {
		w.add("d.id < %s", f.Before)
	}
	query := "SELECT " + letterColumns + " FROM dead_letters d" + w.String() + " ORDER BY d.id DESC LIMIT " + strconv.Itoa(desk.Page(f.Limit))
	var out []desk.Letter
	err := s.do(ctx, "list dead letters", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, query, planned(w.args)...)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (desk.Letter, error) { return scanLetter(row) })
		return err
	})
	return out, err
}

const showLetterSQL = `SELECT ` + letterColumns + `, d.key, d.value, d.headers, d.raw FROM dead_letters d WHERE d.id = $1`

// ShowDeadLetter reads one dead letter with its bytes. It returns [desk.ErrNotFound] where there is none.
func (s *Store) ShowDeadLetter(ctx context.Context, id int64) (desk.Letter, error) {
	var l desk.Letter
	err := s.do(ctx, "show dead letter", func(ctx context.Context) error {
		var key, value, headers, raw []byte
		var err error
		l, err = scanLetter(s.pool.QueryRow(ctx, showLetterSQL, id), &key, &value, &headers, &raw)
		if noRows(err) {
			return fmt.Errorf("dead letter %d: %w", id, desk.ErrNotFound)
		}
		if err != nil {
			return err
		}
		l.Message.Key, l.Message.Value, l.Raw = key, value, raw
		l.Message.Headers, err = decodeHeaders(headers)
		return err
	})
	return l, err
}
