package quota

import (
	"fmt"
	"testing"
	"time"
)

// TestWorkersTakeTurnsWhateverTheirLimitsWhereThereIsLessThanOneForEach has limits that differ, as learnt ones do.
func TestWorkersTakeTurnsWhateverTheirLimitsWhereThereIsLessThanOneForEach(t *testing.T) {
	t.Parallel()
	var table Table
	limits := []int64{5, 8, 20, 50}
	const permits, rounds = 3, 400
	held, had := make([]int64, len(limits)), make([]int, len(limits))
	for round := range rounds {
		for i, limit := range limits {
			now := time.Duration(round)*time.Second + time.Duration(i)*time.Millisecond
			held[i] = table.Exchange(now, "r0", fmt.Sprint("w", i), Report{
				Key: "k", Seq: uint64(round + 1), Held: held[i], Want: limit, Most: limit, Cap: permits, Hold: 8 * time.Second,
			}).Grant
			if held[i] > 0 {
				had[i]++
			}
		}
		if sum := held[0] + held[1] + held[2] + held[3]; sum > permits {
			t.Fatalf("%v are held in round %d", held, round)
		}
	}
	for i, n := range had {
		if n < rounds/2 {
			t.Errorf("the worker with a limit of %d had a permit in %d of %d rounds, want about three quarters", limits[i], n, rounds)
		}
	}
}
