package consumer

import (
	"math/rand/v2"
	"testing"
)

func TestLedgerCommitsTheSettledPrefixOnly(t *testing.T) {
	t.Parallel()
	l := NewLedger(5)
	for o := int64(5); o < 10; o++ {
		if !l.Open(o) {
			t.Fatalf("offset %d was refused", o)
		}
	}
	for _, step := range []struct{ closes, committable int64 }{{6, 5}, {9, 5}, {5, 7}, {7, 8}, {8, 10}} {
		if !l.Close(step.closes) {
			t.Fatalf("offset %d was not open", step.closes)
		}
		if got := l.Committable(); got != step.committable {
			t.Fatalf("after closing %d: committable %d, want %d", step.closes, got, step.committable)
		}
	}
}

func TestLedgerPassesCompactionHoles(t *testing.T) {
	t.Parallel()
	l := NewLedger(0)
	l.Open(0)
	l.Open(300_000)
	l.Advance(300_010)
	l.Close(0)
	if got := l.Committable(); got != 300_000 {
		t.Fatalf("committable %d, want the record behind the hole at 300000", got)
	}
	l.Close(300_000)
	if got := l.Committable(); got != 300_010 {
		t.Fatalf("committable %d, want 300010: the hole at the end is passed", got)
	}
}

func TestLedgerRefusesARecordSeenBefore(t *testing.T) {
	t.Parallel()
	l := NewLedger(3)
	l.Open(3)
	if l.Open(3) || l.Open(2) {
		t.Fatal("a record was opened twice")
	}
	if l.Close(4) || !l.Close(3) || l.Close(3) {
		t.Fatal("only an open record closes, and once")
	}
}

// naive is the ledger as one would write it without a thought for speed.
type naive struct {
	open map[int64]bool
	next int64
}

func (n naive) committable() int64 {
	at := n.next
	for o, open := range n.open {
		if open {
			at = min(at, o)
		}
	}
	return at
}

func FuzzLedgerAgreesWithANaiveOne(f *testing.F) {
	f.Add(uint64(1), 100)
	f.Add(uint64(7), 3000)
	f.Fuzz(func(t *testing.T, seed uint64, steps int) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		l, n := NewLedger(10), naive{open: map[int64]bool{}, next: 10}
		for range min(max(steps, 0), 5000) {
			o := n.next + rnd.Int64N(6) - 3
			switch rnd.IntN(4) {
			case 0:
				if got, want := l.Open(o), o >= n.next; got != want {
					t.Fatalf("Open(%d) = %v, want %v", o, got, want)
				}
				if o >= n.next {
					n.open[o], n.next = true, o+1
				}
			case 1:
				l.Advance(o)
				n.next = max(n.next, o)
			default:
				o = n.next - rnd.Int64N(20) - 1
				if got := l.Close(o); got != n.open[o] {
					t.Fatalf("Close(%d) = %v, want %v", o, got, n.open[o])
				}
				n.open[o] = false
			}
			if got, want := l.Committable(), n.committable(); got != want {
				t.Fatalf("committable %d, want %d", got, want)
			}
		}
	})
}
