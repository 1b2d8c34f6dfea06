package consumer

import (
	"testing"
	"time"
)

const mib = 1 << 20

func testGate(partitions int) (g *Gate, ids []int32) {
	g = NewGate(Limits{Bytes: 64 * mib, PartitionBytes: mib, Records: 5000, Permits: 50}, Learned{})
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
	g.Started(epoch, 75, 15_000)
	g.Permit(at(60), true) // what had started then is no drain rate any more
	if g.Paused() != 1 {
		t.Fatal("25 wait: the mark of 50 permits is 50, that of 10 permits 10")
	}
	g.Started(at(60), 16, 3_200)
	if g.Paused() != 0 {
		t.Fatal("still paused at the low mark of 10 permits")
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

func TestGatePausesForTheRateAsForPermits(t *testing.T) {
	t.Parallel()
	g, ids := testGate(2)
	bring(g, epoch, g.Plan(epoch, ids, nil), 200)
	g.Rate(epoch, true)
	if g.Paused() != 2 || !g.Holding(HoldRate) || g.Constraint() != ConstraintRate {
		t.Fatalf("paused %d, constraint %s: want both partitions, for the rate", g.Paused(), g.Constraint())
	}
	if got := g.Plan(epoch, ids, nil); len(got) != 0 {
		t.Fatalf("granted %v", got)
	}
	l := g.Level()
	g.Started(at(1), l.Queued-10, l.WaitingBytes-2000)
	if g.Paused() != 0 {
		t.Fatal("still paused with ten records in line")
	}
}

func TestGatePausesAWhileApart(t *testing.T) {
	t.Parallel()
	g, ids := testGate(1)
	g.SetPermits(1)
	for i := range 600 { // a call takes a tenth of a second: each wait for the one permit is late
		now := at(float64(i) / 10)
		bring(g, now, g.Plan(now, ids, nil), 200)
		g.Permit(now, true)
		g.Started(now, 1, 200)
		g.Closed(now, 200)
	}
	if n := g.Pauses(); n < 5 || n > 16 {
		t.Fatalf("%d pauses in a minute", n)
	}
}
