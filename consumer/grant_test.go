package consumer

import (
	"math/rand/v2"
	"testing"
	"time"
)

// bring gives every grant back with as many records of a size as it lets in, from a log with no end.
func bring(g *Gate, now time.Time, grants []Grant, size int64) (records int) {
	for _, gr := range grants {
		n := max(int64(gr.Bytes)/size, 1)
		g.Delivered(now, gr, int(n), n*size, gr.Offset+n, gr.Offset+n+1_000_000)
		records += int(n)
	}
	return records
}

func TestGateListensToAllPartitionsWithinOneRecordsBytes(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 12, 600} {
		g, ids := testGate(n)
		grants, sum := g.Plan(epoch, ids, nil), int64(0)
		for _, gr := range grants {
			sum += int64(gr.Bytes)
		}
		if len(grants) != n || sum > mib || g.Level().ReservedBytes > 3*mib {
			t.Errorf("%d of %d partitions granted, %d bytes together, %d reserved", len(grants), n, sum, g.Level().ReservedBytes)
		}
	}
}

func TestGateNeverReservesAboveTheCeiling(t *testing.T) {
	t.Parallel()
	g := NewGate(Limits{Bytes: 2 * mib, PartitionBytes: mib, Records: 5000, Permits: 50}, Learned{})
	var ps []Position
	var ids []int32
	for p := range int32(5000) {
		ps, ids = append(ps, Position{Partition: p}), append(ids, p)
	}
	g.Assign(epoch, ps)
	asked := map[int32]bool{}
	for range 20 {
		grants := g.Plan(epoch, ids, nil)
		if l := g.Level(); l.ReservedBytes > 2*mib {
			t.Fatalf("%d bytes reserved under a ceiling of 2 MiB", l.ReservedBytes)
		}
		for _, gr := range grants {
			asked[gr.Partition] = true
			g.Released(epoch, gr)
		}
	}
	if len(asked) != 5000 {
		t.Fatalf("%d of 5,000 partitions listened to in 20 requests", len(asked))
	}
}

func TestGateSizesPrefetchByDrainRateAndRoundTrip(t *testing.T) {
	t.Parallel()
	target := func(perSecond int64, fetch, admit time.Duration) int64 {
		g, ids := testGate(1)
		bring(g, at(0), g.Plan(at(0), ids, nil), 400)
		g.Dropped(at(0), g.Level().Queued, g.Level().WaitingBytes)
		now := at(1)
		for range 100 {
			grants := g.Plan(now, ids, nil)
			g.Delivered(now.Add(fetch), grants[0], 1, 400, grants[0].Offset+1, 1_000_000)
			g.Dropped(now.Add(fetch), 1, 400)
			g.Admitted(admit)
			now = now.Add(2 * time.Second)
		}
		for range 200 {
			now = now.Add(10 * time.Millisecond)
			g.Unstarted(now, 1, perSecond/100)
			g.Started(now, 1, perSecond/100)
		}
		return g.Target(now)
	}
	near := func(got, want int64) bool { return got > want*3/4 && got < want*5/4 }
	// 20 MiB/s: 30 ms until more is there count as 50 ms, and a request brings 100 ms.
	if got := target(20*mib, 10*time.Millisecond, 20*time.Millisecond); !near(got, 3*mib) {
		t.Errorf("near broker: target %d", got)
	}
	// 300 ms until more is there, and a request brings 100 ms.
	if got := target(20*mib, 280*time.Millisecond, 20*time.Millisecond); !near(got, 8*mib) {
		t.Errorf("far broker: target %d", got)
	}
	// Slow: 2 s in one request, and a record for each permit.
	if got := target(10_000, 10*time.Millisecond, 20*time.Millisecond); !near(got, 20_000+50*400) {
		t.Errorf("slow downstream: target %d", got)
	}
}

func TestGateShrinksPrefetchWithTheDrainRateAndGrowsItBack(t *testing.T) {
	t.Parallel()
	g, ids := testGate(4)
	now, free := epoch, 0.0
	level := func(perSecond float64, seconds int) (most int64) {
		for range seconds * 100 {
			now = now.Add(10 * time.Millisecond)
			bring(g, now, g.Plan(now, ids, nil), 400)
			for free += perSecond / 100; free >= 1 && g.Level().Queued > 0; free-- {
				g.Started(now, 1, 400)
				g.Closed(now, 400)
			}
			most = max(most, g.Level().WaitingBytes)
		}
		return most
	}
	level(30_000, 10)
	fast := level(30_000, 5)
	level(300, 20)
	slow := level(300, 10)
	level(30_000, 10)
	again := level(30_000, 5)
	t.Logf("waiting at 30,000/s %d bytes, at 300/s %d, at 30,000/s again %d", fast, slow, again)
	if slow*4 > fast || again < fast/2 || again > fast*2 {
		t.Errorf("waiting at 30,000/s %d bytes, at 300/s %d, at 30,000/s again %d", fast, slow, again)
	}
}

func TestGateGrantsMoreThanOneRecordNeedsWhereTheDrainRateAsksForIt(t *testing.T) {
	t.Parallel()
	g, ids := testGate(2)
	g.SetLimits(epoch, Limits{Bytes: 64 * mib, PartitionBytes: mib, Records: 1_000_000, Permits: 50})
	bring(g, epoch, g.Plan(epoch, ids, nil), 1000)
	now := epoch
	for range 300 { // 60 MB/s
		now = now.Add(10 * time.Millisecond)
		g.Unstarted(now, 600, 600_000)
		g.Started(now, 600, 600_000)
	}
	g.Started(now, g.Level().Queued, g.Level().WaitingBytes)
	grants := g.Plan(now, ids, nil)
	if len(grants) != 2 || grants[0].Bytes <= mib || grants[0].Bytes != grants[1].Bytes {
		t.Fatalf("grants %v: want two, even, of more than 1 MiB", grants)
	}
	if l := g.Level(); l.ReservedBytes > 2*mostRequest+mib {
		t.Fatalf("%d bytes reserved by one request", l.ReservedBytes)
	}
}

// The gate once asked a partition that was read to its end three rounds later than the others, and one that stood before an open
// transaction as often as if it had records.
func TestGateListensToQuietPartitionsInEveryRequest(t *testing.T) {
	t.Parallel()
	g, ids := testGate(4)
	for _, gr := range g.Plan(epoch, ids, nil) {
		end := int64(1_000_000)
		switch gr.Partition {
		case 2:
			end = 10 // read to its end
		case 3:
			g.Delivered(epoch, gr, 0, 0, 0, 500) // there are records, and none can be read
			continue
		}
		g.Delivered(epoch, gr, 10, 1000, 10, end)
	}
	asked := map[int32]int{}
	for i := range 24 {
		now := at(float64(i))
		g.Started(now, g.Level().Queued, g.Level().WaitingBytes)
		grants := g.Plan(now, ids, nil)
		for _, gr := range grants {
			if asked[gr.Partition]++; gr.Partition < 2 {
				bring(g, now, []Grant{gr}, 100)
				continue
			}
			g.Released(now, gr)
		}
	}
	if asked[2] != 24 || asked[3] != 24 || asked[0] != asked[1] || asked[0] < 12 {
		t.Fatalf("asked %v: the quiet ones each time, the others as often as each other", asked)
	}
}

// Three partitions under a backlog of one of them: a broker sends the first batch of the first partition that has one
// whole, and of the others what fits their grants. Once the two with less to read were asked for less than a batch each time,
// behind the backlog, and got nothing.
func TestGateReadsEveryPartitionBesideABacklogWhateverItsBatches(t *testing.T) {
	t.Parallel()
	for _, batch := range []int64{300, 10_000, 100_000, 900_000} {
		const record = 100 // bytes
		g, ids := testGate(3)
		next, read := map[int32]int64{}, map[int32]int64{}
		end := func(p int32, now time.Time) int64 { // of the log, in records
			if p == 0 {
				return 10_000_000
			}
			return int64(now.Sub(epoch).Seconds() * 100)
		}
		for i := range 12_000 { // ten minutes
			now := epoch.Add(time.Duration(i) * 50 * time.Millisecond)
			if drained := min(25, g.Level().Queued); drained > 0 { // 500 records a second
				g.Started(now, drained, int64(drained*record))
				g.Closed(now, int64(drained*record))
			}
			first := true
			for _, gr := range g.Plan(now, ids, nil) {
				have := (end(gr.Partition, now) - next[gr.Partition]) * record
				bring := min(have, int64(gr.Bytes)/batch*batch)
				if have > 0 && first {
					bring, first = min(have, max(bring, batch)), false
				}
				n := bring / record
				next[gr.Partition] += n
				read[gr.Partition] += n
				g.Delivered(now, gr, int(n), n*record, next[gr.Partition], end(gr.Partition, now))
			}
		}
		for _, p := range ids[1:] {
			if want := int64(100 * 570); read[p] < want { // at most half a minute behind
				t.Errorf("batches of %d: %v records read, want at least %d of each", batch, read, want)
			}
		}
	}
}

func TestGateDoesNotCountOnABrokerThatHangs(t *testing.T) {
	t.Parallel()
	g, ids := testGate(2)
	bring(g, epoch, g.Plan(epoch, ids, nil), 400)
	g.Started(epoch, g.Level().Queued, g.Level().WaitingBytes)
	if len(g.Plan(at(1), ids[:1], nil)) != 1 {
		t.Fatal("the first broker's partition was not asked")
	}
	if got := g.Plan(at(1.001), ids[1:], nil); len(got) != 0 && g.Level().WaitingBytes > 0 {
		t.Fatalf("granted %v although what is under way fills the line", got)
	}
	if len(g.Plan(at(2), ids[1:], nil)) != 1 {
		t.Fatal("the second broker's partition waits for a request that takes a second")
	}
}

func TestGateKeepsWhatItLearntForTheNextAssignment(t *testing.T) {
	t.Parallel()
	g, ids := testGate(1)
	now := epoch
	for range 100 {
		now = now.Add(10 * time.Millisecond)
		bring(g, now, g.Plan(now, ids, nil), 400)
		g.Started(now, g.Level().Queued, g.Level().WaitingBytes)
	}
	next := NewGate(Limits{Bytes: 64 * mib, PartitionBytes: mib, Records: 5000, Permits: 50}, g.Learned)
	if a, b := g.Target(now), next.Target(now); a != b || b < mib {
		t.Fatalf("target %d before and %d after", a, b)
	}
}

// The loop whose request is over plans again before those that it wakes: under a ceiling for two requests the third broker was never asked.
func TestGateListensToEveryBrokerUnderATightCeiling(t *testing.T) {
	t.Parallel()
	g, ids := testGate(5)
	g.SetLimits(epoch, Limits{Bytes: 4 * mib, PartitionBytes: mib, Records: 5000, Permits: 50})
	asked := make([]int, len(ids))
	plan := func(now time.Time, k int) []Grant {
		grants := g.Plan(now, ids[k:k+1], nil)
		asked[k] += len(grants)
		return grants
	}
	out := map[int][]Grant{}
	for i := range 200 {
		now := at(float64(i) / 2)
		k := i % len(ids)
		for _, gr := range out[k] {
			g.Released(now, gr)
		}
		delete(out, k)
		for j := range ids { // k comes first
			if at := (k + j) % len(ids); out[at] == nil {
				if grants := plan(now, at); grants != nil {
					out[at] = grants
				}
			}
		}
	}
	for k, n := range asked {
		if n < 10 {
			t.Fatalf("requests by broker %v: broker %d was left out", asked, k)
		}
	}
}

// brokers is partitions of several brokers under one gate, asked in an order that is drawn.
type brokers struct {
	g     *Gate
	of    [][]int32
	out   [][]Grant // under way, by broker
	asked map[int32]int
}

// FuzzGateStarvesNobody: with less room than there are partitions with records, each is asked within as many requests as there are partitions,
// whatever the order in which the brokers' loops come and the candidates stand.
func FuzzGateStarvesNobody(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		n := 2 + rnd.IntN(40)
		g, ids := testGate(n)
		b := brokers{g: g, of: make([][]int32, 1+rnd.IntN(5)), asked: map[int32]int{}}
		b.out = make([][]Grant, len(b.of))
		for _, id := range ids {
			k := rnd.IntN(len(b.of))
			b.of[k] = append(b.of[k], id)
		}
		now := epoch
		for k := range b.of {
			bring(g, now, g.Plan(now, b.of[k], nil), 200)
		}
		requests := 0
		for range 200 * n {
			now = now.Add(time.Duration(rnd.IntN(10)) * time.Millisecond)
			if q := g.Level().Queued; q > 0 {
				done := min(1+rnd.IntN(200), q)
				g.Started(now, done, int64(done)*200)
				g.Closed(now, int64(done)*200)
			}
			open := g.Open(now)
			for _, k := range rnd.Perm(len(b.of)) { // all are woken, and come in any order
				if grants := b.out[k]; grants != nil {
					bring(g, now, grants, 200)
					b.out[k] = nil
				} else if !open {
					continue
				}
				rnd.Shuffle(len(b.of[k]), func(i, j int) { b.of[k][i], b.of[k][j] = b.of[k][j], b.of[k][i] })
				grants := g.Plan(now, b.of[k], nil)
				if len(grants) == 0 {
					continue
				}
				b.out[k] = grants
				requests++
				for _, gr := range grants {
					b.asked[gr.Partition] = requests
				}
				for _, id := range ids {
					if late := requests - b.asked[id]; late > 2*n {
						t.Fatalf("partition %d of %d on %d brokers was not asked in %d requests", id, n, len(b.of), late)
					}
				}
			}
		}
		if requests < 5*n {
			t.Fatalf("%d requests for %d partitions: the line ran dry", requests, n)
		}
	})
}

// FuzzGateKeepsItsBounds drives a gate with anything and checks the ceiling, and that what it counts comes back to nothing.
func FuzzGateKeepsItsBounds(f *testing.F) {
	f.Add(uint64(3), 500)
	f.Fuzz(func(t *testing.T, seed uint64, steps int) {
		d := newDriver(t, seed)
		for range min(max(steps, 0), 3000) {
			d.step()
		}
		d.end()
	})
}

// driver does anything to a gate, as its callers may.
type driver struct {
	*testing.T
	rnd              *rand.Rand
	g                *Gate
	ids              []int32
	now              time.Time
	limits           Limits
	out              []Grant
	waiting, started []int64
}

func newDriver(t *testing.T, seed uint64) *driver {
	t.Helper()
	d := &driver{T: t, rnd: rand.New(rand.NewPCG(seed, 1)), now: epoch}
	d.g, d.ids = testGate(1 + d.rnd.IntN(20))
	d.limits = d.g.limits
	return d
}

func (d *driver) step() {
	d.now = d.now.Add(time.Duration(d.rnd.IntN(50)) * time.Millisecond)
	switch d.rnd.IntN(8) {
	case 0:
		d.plan()
	case 1, 2:
		d.answer()
	case 3:
		if len(d.waiting) > 0 {
			d.g.Started(d.now, 1, d.waiting[0])
			d.started, d.waiting = append(d.started, d.waiting[0]), d.waiting[1:]
		}
	case 4:
		if len(d.started) > 0 {
			d.g.Closed(d.now, d.started[0])
			d.started = d.started[1:]
		}
	case 5:
		d.g.Permit(d.now, d.rnd.IntN(2) == 0)
		d.g.Rate(d.now, d.rnd.IntN(4) == 0)
		d.g.Admitted(time.Duration(d.rnd.IntN(300)) * time.Millisecond)
	case 6:
		d.g.Hold(d.now, HoldReasons()[d.rnd.IntN(len(HoldReasons()))], d.rnd.IntN(3) == 0)
	case 7:
		if d.rnd.IntN(20) == 0 {
			d.limits.Bytes = int64(2+d.rnd.IntN(64)) * mib
			d.g.SetLimits(d.now, d.limits)
		}
		d.g.SetPermits(d.rnd.IntN(100))
		d.g.Full(d.ids[d.rnd.IntN(len(d.ids))], d.rnd.IntN(2) == 0)
	}
}

func (d *driver) plan() {
	open := d.g.Open(d.now)
	grants := d.g.Plan(d.now, d.ids, nil)
	behind := 0
	for _, p := range d.g.parts {
		if p.behind() && !p.full && p.ask == nil {
			behind++
		}
	}
	if d.g.Held() && len(grants) > 0 {
		d.Fatal("granted while held")
	}
	if !open && len(grants) > 0 && behind > 0 {
		d.Fatalf("granted %v to who would not have been woken", grants)
	}
	if l := d.g.Level(); len(grants) > 0 && l.HeldBytes+l.ReservedBytes > d.limits.Bytes {
		d.Fatalf("above the ceiling of %d: %+v", d.limits.Bytes, l)
	}
	d.out = append(d.out, grants...)
}

// answer gives the oldest grant back, with at most what it may bring.
func (d *driver) answer() {
	if len(d.out) == 0 {
		return
	}
	gr := d.out[0]
	d.out = d.out[1:]
	switch d.rnd.IntN(4) {
	case 0:
		d.g.Released(d.now, gr)
	case 1:
		d.g.Moved(gr.Partition, d.rnd.Int64N(1000))
		d.g.Released(d.now, gr)
	default:
		before := d.g.Level()
		size := 1 + d.rnd.Int64N(2*int64(gr.Bytes))
		d.g.Delivered(d.now, gr, 1, size, gr.Offset+1, gr.Offset+d.rnd.Int64N(3))
		d.waiting = append(d.waiting, size)
		if l := d.g.Level(); l.HeldBytes+l.ReservedBytes > max(d.limits.Bytes, before.HeldBytes+before.ReservedBytes) {
			d.Fatalf("above the ceiling of %d with what a grant may bring: %+v", d.limits.Bytes, l)
		}
	}
}

func (d *driver) end() {
	for _, gr := range d.out {
		d.g.Released(d.now, gr)
	}
	for _, size := range d.waiting {
		d.g.Started(d.now, 1, size)
		d.g.Closed(d.now, size)
	}
	for _, size := range d.started {
		d.g.Closed(d.now, size)
	}
	if l := d.g.Level(); l != (Level{}) {
		d.Fatalf("left over: %+v", l)
	}
	if len(d.g.asks) != 0 {
		d.Fatalf("%d requests under way that are over", len(d.g.asks))
	}
}

// A partition that was read to its end is listened to although another one's backlog takes all that the ceiling leaves.
func TestGateListensToAQuietPartitionBesideABacklogUnderATightCeiling(t *testing.T) {
	t.Parallel()
	g, ids := testGate(2)
	g.SetLimits(epoch, Limits{Bytes: 4 * mib, PartitionBytes: mib, Records: 5000, Permits: 50})
	const busy = 5 * mib / 2 // in flight
	held, next, quiet := int64(0), int64(0), 0
	for i := range 200 {
		now := at(float64(i) / 20)
		for _, gr := range g.Plan(now, ids, nil) {
			if gr.Partition != ids[0] {
				quiet++
				g.Delivered(now, gr, 0, 0, 0, 0)
				continue
			}
			next += 10
			g.Delivered(now, gr, 10, int64(gr.Bytes), next, 1e9)
			g.Started(now, 10, int64(gr.Bytes))
			held += int64(gr.Bytes)
		}
		if held > busy {
			g.Closed(now, held-busy)
			held = busy
		}
	}
	if quiet < 10 {
		t.Errorf("listened %d times in 10 s", quiet)
	}
}
