package consumer

import "sort"

// Ledger tracks which records of one partition are still open, and so how far its offset may be committed: up to
// the first open one, or to the fetch position where none is. It is pure and not safe for concurrent use. Its size is
// bounded by the lane, which leaves out a partition with too many records behind an open one.
type Ledger struct {
	open []entry // in offset order; the head is open, or the slice is empty
	next int64   // the fetch position: past holes and left-out records
}

type entry struct {
	offset int64
	closed bool
}

// NewLedger starts a ledger at the position a partition is read from.
func NewLedger(next int64) *Ledger { return &Ledger{next: next} }

// Open enters a record. Offsets must grow; one at or below what was seen before is refused with false, so that a
// record fetched twice is worked on once.
func (l *Ledger) Open(offset int64) bool {
	if offset < l.next {
		return false
	}
	l.open = append(l.open, entry{offset: offset})
	l.next = offset + 1
	return true
}

// Advance moves the fetch position over offsets that hold no record for us.
func (l *Ledger) Advance(next int64) {
	l.next = max(l.next, next)
}

// Close marks a record as settled: final, or durably in Postgres with somebody due to act on it. It reports whether
// the record was open.
func (l *Ledger) Close(offset int64) bool {
	i := sort.Search(len(l.open), func(i int) bool { return l.open[i].offset >= offset })
	if i == len(l.open) || l.open[i].offset != offset || l.open[i].closed {
		return false
	}
	l.open[i].closed = true
	head := 0
	for head < len(l.open) && l.open[head].closed {
		head++
	}
	if head == len(l.open) {
		l.open = l.open[:0]
	} else {
		l.open = l.open[head:]
	}
	return true
}

// Committable is the offset that may be committed: every record before it is settled.
func (l *Ledger) Committable() int64 {
	if len(l.open) == 0 {
		return l.next
	}
	return l.open[0].offset
}

// Len is how many records stand between the committable offset and the fetch position, settled ones included.
func (l *Ledger) Len() int { return len(l.open) }
