package consumer

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// What is told of as set aside is what rests, partition by partition, whatever comes, goes and ends in between.
func TestLineTellsOfWhatRests(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		l := NewLine[int](Ordering(rnd.IntN(3)), 3)
		records, bytes := map[int32]int{}, map[int32]int64{}
		l.SetAside(func(p int32, n int, b int64) { records[p] += n; bytes[p] += b })
		now := epoch
		var under []*Entry[int]
		for i := range 400 {
			now = now.Add(time.Duration(rnd.IntN(20)) * time.Millisecond)
			switch rnd.IntN(4) {
			case 0, 1:
				l.Push(&Entry[int]{
					Partition: int32(rnd.IntN(3)), Offset: int64(i), Key: fmt.Append(nil, rnd.IntN(4)),
					Tenant: fmt.Sprint(rnd.IntN(5)), Size: int64(rnd.IntN(100)),
				})
			case 2:
				if e, _ := l.Peek(now); e != nil && rnd.IntN(2) == 0 {
					l.Rest(now.Add(time.Duration(rnd.IntN(100)) * time.Millisecond))
				} else if e != nil {
					under = append(under, l.Take())
				}
			case 3:
				if len(under) == 0 {
					continue
				}
				e := under[len(under)-1]
				under = under[:len(under)-1]
				if rnd.IntN(2) == 0 {
					l.Return(e, time.Time{})
				} else {
					l.Done(e)
				}
			}
			rests, restBytes := map[int32]int{}, map[int32]int64{}
			for _, f := range l.flows {
				if f.id.class.rests {
					rests[f.id.partition] += f.ready.len()
					for _, e := range f.ready.items {
						restBytes[f.id.partition] += e.Size
					}
				}
			}
			sum := 0
			for p := range int32(3) {
				if records[p] != rests[p] || bytes[p] != restBytes[p] {
					t.Fatalf("seed %d, step %d, partition %d: told of %d records, %d bytes; %d and %d rest", seed, i, p, records[p], bytes[p], rests[p], restBytes[p])
				}
				sum += rests[p]
			}
			if l.Ahead() != l.Ready()-sum {
				t.Fatalf("seed %d, step %d: %d ahead of %d, and %d rest", seed, i, l.Ahead(), l.Ready(), sum)
			}
		}
		l.Clear()
		for p := range int32(3) {
			if records[p] != 0 || bytes[p] != 0 {
				t.Fatalf("seed %d: %d records and %d bytes of partition %d are left when the line is cleared", seed, records[p], bytes[p], p)
			}
		}
	}
}
