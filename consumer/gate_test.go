package consumer

import (
	"math/rand/v2"
	"testing"
	"time"
)

const mib = 1 << 20

func testGate(partitions int) (g *Gate, ids []int32) {
	g = NewGate(Limits{Bytes: 64 * mib, PartitionBytes: mib, Records: 5000, Permits: 50})
	var ps []Position
	for p := range int32(partitions) {
		ps = append(ps, Position{Partition: p})
		ids = append(ids, p)
	}
	g.Assign(epoch, ps)
	return g, ids
}

func TestGateListensToEveryPartitionWhenNothingWaits(t *testing.T) {
	t.Parallel()
	g, ids := testGate(12)
	if got := len(g.Plan(epoch, ids, nil)); got != 12 {
		t.Fatalf("%d partitions granted, want all 12", got)
	}
	if got := len(g.Plan(epoch, ids, nil)); got != 0 {
		t.Fatalf("%d partitions granted twice", got)
	}
}

func TestGateNeverGrantsAboveTheCeiling(t *testing.T) {
	t.Parallel()
	g, ids := testGate(600)
	if got := len(g.Plan(epoch, ids, nil)); got != 32 {
		t.Fatalf("%d grants of 1 MiB under a ceiling of 64 MiB: each may bring twice as much", got)
	}
}

func TestGatePausesAllPartitionsWhenPermitsRunOut(t *testing.T) {
	t.Parallel()
	g, ids := testGate(3)
	for _, gr := range g.Plan(epoch, ids, nil) {
		g.Delivered(epoch, gr, 100, 20_000, 100, 1000)
	}
	g.Permit(epoch, true)
	if g.Paused() != 3 || g.Pauses() != 3 || g.Constraint() != ConstraintPermits {
		t.Fatalf("paused %d, pauses %d, constraint %s", g.Paused(), g.Pauses(), g.Constraint())
	}
	if got := g.Plan(epoch, ids, nil); len(got) != 0 {
		t.Fatalf("a paused partition was granted: %v", got)
	}
	g.Permit(epoch, false)
	if g.Paused() == 0 {
		t.Fatal("resumed above the low-water mark")
	}
	g.Started(epoch, 275, 55_000)
	if g.Paused() != 0 {
		t.Fatal("still paused at the low-water mark with permits to be had")
	}
}

func TestGateFollowsAPermitLimitThatMoves(t *testing.T) {
	t.Parallel()
	g, ids := testGate(1)
	g.Delivered(epoch, g.Plan(epoch, ids, nil)[0], 100, 20_000, 100, 1000)
	g.Permit(epoch, true)
	g.SetPermits(10)
	g.Permit(epoch, false)
	g.Started(epoch, 75, 15_000)
	if g.Paused() != 1 {
		t.Fatal("25 wait, half the permits of before: the mark of 10 permits is 5")
	}
	g.Started(epoch, 20, 4_000)
	if g.Paused() != 0 {
		t.Fatal("still paused at the low-water mark of 10 permits")
	}
}

func TestGateResumesWhenNothingWaitsThoughPermitsAreLate(t *testing.T) {
	t.Parallel()
	g, ids := testGate(1)
	for _, gr := range g.Plan(epoch, ids, nil) {
		g.Delivered(epoch, gr, 1, 100, 1, 2)
	}
	g.Permit(epoch, true)
	g.Started(epoch, 1, 100)
	if g.Paused() != 0 {
		t.Fatal("paused with nothing in line: no permit would ever be asked for again")
	}
}

// Permits had run out when the log's known end was reached: the gate once left such partitions out for ever, because nothing
// but a fetch can show that records came after.
func TestGateListensToACaughtUpPartitionThoughPermitsWereLate(t *testing.T) {
	t.Parallel()
	g, ids := testGate(3)
	for _, gr := range g.Plan(epoch, ids, nil) {
		g.Delivered(epoch, gr, 10, 1000, 10, 10)
	}
	g.Permit(epoch, true)
	g.Started(epoch, 30, 3000)
	asked := map[int32]bool{}
	for range 3 {
		for _, gr := range g.Plan(epoch, ids, nil) {
			asked[gr.Partition] = true
			g.Released(epoch, gr)
		}
	}
	if len(asked) != 3 {
		t.Fatalf("listened to %v in three turns, want all three partitions", asked)
	}
}

func TestGateDoesNotForgetAPartitionWhileOthersHaveABacklog(t *testing.T) {
	t.Parallel()
	g, ids := testGate(3)
	for _, gr := range g.Plan(epoch, ids, nil) {
		end := int64(1_000_000)
		if gr.Partition == 2 {
			end = 10 // read to its known end
		}
		g.Delivered(epoch, gr, 10, 1000, 10, end)
	}
	g.Permit(epoch, true)
	g.Started(epoch, 30, 3000)
	asked := map[int32]int{}
	for range 24 {
		for _, gr := range g.Plan(epoch, ids, nil) {
			asked[gr.Partition]++
			g.Released(epoch, gr)
		}
	}
	if asked[2] == 0 || asked[0] < asked[2] || asked[1] < asked[2] {
		t.Fatalf("asked %v: the caught-up one now and then, those with a backlog more often", asked)
	}
}

func TestGateShrinksPrefetchWithTheDrainRate(t *testing.T) {
	t.Parallel()
	g, _ := testGate(1)
	now := epoch
	for range 200 {
		now = now.Add(10 * time.Millisecond)
		g.Started(now, 1, mib) // 100 MiB/s
	}
	fast := g.Target(now)
	for range 20 {
		now = now.Add(500 * time.Millisecond)
		g.Started(now, 1, mib) // 2 MiB/s
	}
	slow := g.Target(now)
	if fast < 30*mib || slow > 3*mib {
		t.Fatalf("target %d MiB fast, %d MiB slow", fast/mib, slow/mib)
	}
	if idle := g.Target(now.Add(time.Minute)); idle != mib {
		t.Fatalf("target %d at rest, want one grant", idle)
	}
}

func TestPauseStateDiesWithTheAssignment(t *testing.T) {
	t.Parallel()
	g, ids := testGate(2)
	for _, gr := range g.Plan(epoch, ids, nil) {
		g.Delivered(epoch, gr, 10, 1000, 10, 100)
	}
	g.Permit(epoch, true)
	g.Assign(epoch, []Position{{Partition: 7, Offset: 3}})
	got := g.Plan(epoch, []int32{7}, nil)
	if len(got) != 1 || got[0].Offset != 3 {
		t.Fatalf("grants %v, want partition 7 from 3", got)
	}
}

var epoch = time.Unix(1_700_000_000, 0)

// FuzzGateKeepsItsBounds drives a gate with anything and checks the ceiling, and that what it counts comes back to nothing.
func FuzzGateKeepsItsBounds(f *testing.F) {
	f.Add(uint64(3), 500)
	f.Fuzz(func(t *testing.T, seed uint64, steps int) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		g, ids := testGate(1 + rnd.IntN(20))
		now := epoch
		var out []Grant
		var waiting, started []int64
		for range min(max(steps, 0), 3000) {
			now = now.Add(time.Duration(rnd.IntN(50)) * time.Millisecond)
			switch rnd.IntN(6) {
			case 0:
				before := g.Level()
				grants := g.Plan(now, ids, nil)
				if g.Held() && len(grants) > 0 {
					t.Fatal("granted while held")
				}
				if l := g.Level(); len(grants) > 0 && l.HeldBytes+l.ReservedBytes > 64*mib {
					t.Fatalf("above the ceiling: %+v after %+v", l, before)
				}
				out = append(out, grants...)
			case 1:
				if len(out) == 0 {
					continue
				}
				gr := out[0]
				out = out[1:]
				if size := rnd.Int64N(2 * mib); size > mib/2 { // at times more than was granted
					g.Delivered(epoch, gr, 1, size, gr.Offset+1, -1)
					waiting = append(waiting, size)
				} else {
					g.Released(epoch, gr)
				}
			case 2:
				if len(waiting) > 0 {
					g.Started(now, 1, waiting[0])
					started, waiting = append(started, waiting[0]), waiting[1:]
				}
			case 3:
				if len(started) > 0 {
					g.Closed(epoch, started[0])
					started = started[1:]
				}
			case 4:
				g.Permit(epoch, rnd.IntN(2) == 0)
			case 5:
				g.Hold(epoch, HoldReasons()[rnd.IntN(len(HoldReasons()))], rnd.IntN(3) == 0)
			}
		}
		for _, gr := range out {
			g.Released(epoch, gr)
		}
		for _, size := range waiting {
			g.Started(now, 1, size)
			g.Closed(epoch, size)
		}
		for _, size := range started {
			g.Closed(epoch, size)
		}
		if l := g.Level(); l != (Level{}) {
			t.Fatalf("left over: %+v", l)
		}
	})
}

// The fetch loop rotates the candidates, and two brokers plan in turns: with a rotation of its own in step with theirs the
// gate once never asked every second partition.
func TestGateAsksEveryPartitionWhateverTheOrderOfTheCandidates(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 4, 7, 12} {
		for _, brokers := range []int{1, 2} {
			g, ids := testGate(n * brokers)
			for _, gr := range g.Plan(epoch, ids, nil) {
				g.Delivered(epoch, gr, 10, 1000, 10, 1_000_000)
			}
			g.Permit(epoch, false)
			g.Started(epoch, 10*n*brokers-5, int64(1000*n*brokers-500)) // some wait: there is room for one
			asked := map[int32]int{}
			for turn := range 40 * n * brokers {
				mine := ids[turn%brokers*n:][:n]
				rotated := append(append([]int32{}, mine[turn/brokers%n:]...), mine[:turn/brokers%n]...)
				for _, gr := range g.Plan(epoch, rotated, nil) {
					asked[gr.Partition]++
					g.Released(epoch, gr)
				}
			}
			for _, id := range ids {
				if asked[id] < 10 {
					t.Errorf("%d partitions on %d brokers: %v", n, brokers, asked)
					break
				}
			}
		}
	}
}

func TestGateListensToAllAgainOnceNothingHasStartedForAWhile(t *testing.T) {
	t.Parallel()
	g, ids := testGate(12)
	for _, gr := range g.Plan(epoch, ids, nil) {
		g.Delivered(epoch, gr, 1, 100, 1, 1)
	}
	g.Permit(epoch, true) // the last permit of a burst was late, and nobody asks for one any more
	g.Started(epoch, 12, 1200)
	if got := len(g.Plan(epoch.Add(time.Second), ids, nil)); got != 12 {
		t.Fatalf("%d partitions listened to at rest, want 12", got)
	}
}
