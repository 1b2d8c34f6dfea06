package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"spillway/internal/desk"
)

// Letters reads and resolves dead letters.
type Letters interface {
	// ListDeadLetters lists dead letters, the newest first, without their bytes.
	ListDeadLetters(ctx context.Context, f desk.LetterFilter) ([]desk.Letter, error)
	// ShowDeadLetter reads one dead letter whole. It returns desk.ErrNotFound where there is none.
	ShowDeadLetter(ctx context.Context, id int64) (desk.Letter, error)
	// Requeue starts a new life for dead letters, at most desk.MaxPage of them, each by itself.
	Requeue(ctx context.Context, by desk.Sign, rs []desk.Requeue) ([]desk.Resolved, error)
	// Discard gives dead letters up, at most desk.MaxPage of them, each by itself.
	Discard(ctx context.Context, by desk.Sign, ids []int64) ([]desk.Resolved, error)
}

// Letter is a dead letter as JSON shows it, without its bytes.
type Letter struct {
	ID            int64     `json:"id"`
	OrderID       int64     `json:"order_id,omitempty"` // zero for a record that is no order
	Route         string    `json:"route"`
	Number        string    `json:"number,omitempty"`
	Reason        string    `json:"reason"`
	Detail        string    `json:"detail,omitempty"`
	AttemptsTotal int       `json:"attempts_total"`
	Life          int       `json:"life"`
	Topic         string    `json:"topic,omitempty"`
	Partition     int32     `json:"partition"`
	Offset        int64     `json:"offset"`
	Unreadable    bool      `json:"unreadable"` // an item of the replay queue that can't be read, in place of a record
	CreatedAt     time.Time `json:"created_at,omitzero"`
	Status        string    `json:"status"`
	ResolvedAt    time.Time `json:"resolved_at,omitzero"`
	ResolvedBy    string    `json:"resolved_by,omitempty"`
	Note          string    `json:"note,omitempty"`
}

func newLetter(l *desk.Letter) Letter {
	return Letter{
		ID: l.ID, OrderID: l.OrderID, Route: l.Route, Number: l.Number, Reason: string(l.Reason), Detail: l.Detail,
		AttemptsTotal: l.AttemptsTotal, Life: l.Life, Topic: l.Message.Topic, Partition: l.Message.Partition,
		Offset: l.Message.Offset, Unreadable: l.Unreadable, CreatedAt: utc(l.CreatedAt), Status: l.Status.String(),
		ResolvedAt: utc(l.ResolvedAt), ResolvedBy: l.ResolvedBy, Note: l.Note,
	}
}

// LetterList is one page of dead letters.
type LetterList struct {
	Letters []Letter `json:"dead_letters"`
	// NextBefore is the Before of the next page; zero on the last one.
	NextBefore int64 `json:"next_before,omitempty"`
}

// ListLetters reads one page of dead letters, the newest first.
func ListLetters(ctx context.Context, from Letters, f desk.LetterFilter) (LetterList, error) {
	rows, err := from.ListDeadLetters(ctx, f)
	if err != nil {
		return LetterList{}, err
	}
	l := LetterList{Letters: make([]Letter, len(rows))}
	for i := range rows {
		l.Letters[i] = newLetter(&rows[i])
	}
	if len(rows) == desk.Page(f.Limit) {
		l.NextBefore = rows[len(rows)-1].ID
	}
	return l, nil
}

// detailWidth bounds the details in a listing, in characters.
const detailWidth = 72

// WriteTable writes the page for people, with ages as of now.
func (l LetterList) WriteTable(w io.Writer, now time.Time) error {
	t := newTable(w, "ID", "ROUTE", "NUMBER", "STATUS", "REASON", "ATTEMPTS", "LIFE", "AGE", "DETAIL")
	for i := range l.Letters {
		d := &l.Letters[i]
		t.row(strconv.FormatInt(d.ID, 10), cell(d.Route, 0), cell(d.Number, 0), d.Status, cell(d.Reason, 0),
			strconv.Itoa(d.AttemptsTotal), strconv.Itoa(d.Life), Age(now.Sub(d.CreatedAt)), cell(d.Detail, detailWidth))
	}
	if err := t.flush(); err != nil {
		return err
	}
	return writeMore(w, len(l.Letters), "dead letter", l.NextBefore)
}

// LetterView is a dead letter with its bytes: of a record, or of a queue item that can't be read.
type LetterView struct {
	Letter Letter  `json:"dead_letter"`
	Record *Record `json:"record,omitempty"`
	Raw    []byte  `json:"raw,omitempty"`

	whole desk.Letter
}

// ShowLetter reads one dead letter whole. Its error wraps desk.ErrNotFound where there is none.
func ShowLetter(ctx context.Context, from Letters, id int64) (*LetterView, error) {
	l, err := from.ShowDeadLetter(ctx, id)
	if errors.Is(err, desk.ErrNotFound) {
		return nil, fmt.Errorf("dead letter %d: %w; spillway admin dead-letters list shows what there is", id, desk.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	v := &LetterView{Letter: newLetter(&l), whole: l}
	if l.Unreadable {
		v.Raw = l.Raw
	} else {
		v.Record = newRecord(&l.Message)
	}
	return v, nil
}

// Bytes is the record's value, or the queue item, exactly; nil where the value is Kafka's null.
func (v *LetterView) Bytes() []byte {
	if v.whole.Unreadable {
		return v.whole.Raw
	}
	return v.whole.Message.Value
}

// Write writes the dead letter for people, with ages as of now.
func (v *LetterView) Write(w io.Writer, now time.Time) error {
	l, s := &v.Letter, &sheet{w: w}
	s.line("dead letter %d of route %s: %s", l.ID, cell(l.Route, 0), l.Status)
	s.field("number", cell(l.Number, 0))
	if l.OrderID != 0 {
		s.field("order", strconv.FormatInt(l.OrderID, 10))
	}
	s.field("reason", Printable(l.Reason))
	s.field("detail", Printable(l.Detail))
	s.field("attempts", fmt.Sprintf("%d in all; life %d", l.AttemptsTotal, l.Life))
	s.field("written", when(l.CreatedAt, now))
	if !l.ResolvedAt.IsZero() {
		s.field("resolved", when(l.ResolvedAt, now)+" by "+Printable(l.ResolvedBy))
		s.field("note", Printable(l.Note))
	}
	exact := fmt.Sprintf("spillway admin dead-letters show %d --raw > FILE", l.ID)
	if l.Unreadable {
		s.value("queue item", v.whole.Raw, exact)
	} else {
		s.record(&v.whole.Message, now, exact)
	}
	return s.err
}
