package consumer

// fifo is a queue that keeps its memory: twice what it held at the most. Whoever fills it bounds it.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

func (q *fifo[T]) push(v T) {
	if 2*q.head >= len(q.items) && len(q.items) == cap(q.items) { // else it grows: each item is moved once, on average
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

func (q *fifo[T]) all() []T { return q.items[q.head:] }

func (q *fifo[T]) peek() *T { return &q.items[q.head] }

func (q *fifo[T]) pop() T {
	var zero T
	v := q.items[q.head]
	q.items[q.head] = zero
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return v
}
