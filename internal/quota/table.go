package quota

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Table is one shared table in memory: what the script in Redis does, written for reading, for the simulation and to
// compare the script with. It is not safe for concurrent use.
type Table struct {
	run      string
	last     time.Duration // the server's clock at the last report
	clock    time.Duration // the table's own
	sure     time.Duration // by the table's clock: from here on it knows all holders
	passed   time.Duration // of the last division
	cap      int64
	allotted int64
	rows     map[string]row
}

// row is one worker's.
type row struct {
	seq                            uint64
	until                          time.Duration // by the table's clock: it holds amount till then at the longest
	cap, want, most, amount, share int64
}

// Exchange takes a worker's report at a moment of the server's clock, during a run of the server.
func (t *Table) Exchange(now time.Duration, run, worker string, r Report) Answer {
	if t.rows == nil || t.run != run {
		*t = Table{run: run, last: now, sure: r.Hold, passed: -Pass, rows: make(map[string]row)}
	}
	t.clock += min(max(now-t.last, 0), Step)
	t.last = now
	w, known := t.rows[worker]
	if known && r.Seq <= w.seq {
		return Answer{Stale: true}
	}
	if t.clock < t.sure {
		t.sure = max(t.sure, r.Hold)
	}
	t.allotted += r.Held - w.amount
	if r.Gone && r.Held == 0 {
		delete(t.rows, worker)
		return t.answer(0)
	}
	w = row{seq: r.Seq, until: t.clock + r.Hold, cap: r.Cap, want: r.Want, most: r.Most, amount: r.Held, share: w.share}
	t.rows[worker] = w
	since := t.clock - t.passed
	if since >= Pass || !known && since >= Pass/5 || r.Cap < t.cap {
		t.divide()
		w = t.rows[worker]
	}
	grant := w.amount
	switch {
	case r.Gone:
		grant = 0
	case t.clock < t.sure:
	case w.amount > w.share:
		grant = w.share
	case w.amount < w.share:
		more := min(w.share-w.amount, max(0, t.cap-t.allotted))
		w.amount += more
		t.allotted += more
		t.rows[worker] = w
		grant = w.amount
	}
	return t.answer(grant)
}

func (t *Table) answer(grant int64) Answer {
	return Answer{Grant: grant, Cap: t.cap, Allotted: t.allotted, Workers: len(t.rows), Unsure: t.clock < t.sure}
}

// divide forgets who has been silent for too long, and says what everybody's part is: first what each wants, as evenly as
// the cap allows, then what is spare, on top of it and as evenly.
func (t *Table) divide() {
	t.passed, t.allotted, t.cap = t.clock, 0, MaxCap
	names := slices.Sorted(maps.Keys(t.rows))
	names = slices.DeleteFunc(names, func(name string) bool {
		w := t.rows[name]
		if w.until < t.clock {
			delete(t.rows, name)
			return true
		}
		t.allotted += w.amount
		t.cap = min(t.cap, w.cap)
		return false
	})
	turn, alike := 0, int64(MaxCap)
	if t.cap < int64(len(names)) {
		// The last in line get one. Those who need more than one take turns there, however much more it is: whoever can use
		// the least of it would else never have any.
		turn, alike = int(t.clock/Turn), 2
	}
	parts := make([]part, len(names))
	for i, name := range names {
		w := t.rows[name]
		parts[i] = part{name: name, place: (i + turn) % len(names), need: min(w.want, w.most), spare: max(0, w.most-w.want)}
	}
	left := fill(parts, t.cap, alike)
	for i := range parts {
		parts[i].need = parts[i].spare
	}
	fill(parts, left, MaxCap)
	for _, p := range parts {
		w := t.rows[p.name]
		w.share = p.share
		t.rows[p.name] = w
	}
}

// part is what one worker is to get.
type part struct {
	name        string
	place       int // among those who need as much
	need, spare int64
	share       int64
}

// fill gives out up to n to those who need some, as evenly as their needs allow, and returns what is left. Those who need
// least come first, so that what they leave goes to the others; needs of alike and more count as one.
func fill(parts []part, n, alike int64) int64 {
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(min(a.need, alike), min(b.need, alike)), cmp.Compare(a.place, b.place))
	})
	for i := range parts {
		give := min(parts[i].need, n/int64(len(parts)-i))
		parts[i].share += give
		n -= give
	}
	return n
}
