package consumer

import "testing"

// A queue that stays full, one out for one in, moved all it held with each.
func TestAFifoThatStaysFullMovesItsItemsSeldom(t *testing.T) {
	t.Parallel()
	var q fifo[int]
	next := 0
	for ; next < 1000 || len(q.items) < cap(q.items); next++ {
		q.push(next)
	}
	n, moves := q.len(), 0
	for range 20 * n {
		if got, want := q.pop(), next-n; got != want {
			t.Fatalf("out came %d, want %d", got, want)
		}
		at := q.head
		q.push(next)
		next++
		if q.head < at {
			moves++
		}
	}
	if q.len() != n || moves > 20 || cap(q.items) > 4*n {
		t.Errorf("%d of %d left in room for %d, all moved %d times", q.len(), n, cap(q.items), moves)
	}
}
