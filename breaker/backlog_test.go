package breaker

import (
	"math/rand/v2"
	"testing"
	"time"
)

// backlog is a caller that has width calls in flight whenever it may, each of them good and as long as latency.
type backlog struct {
	b       *Breaker
	width   int
	latency time.Duration
	flying  []flying
	done    int // calls that have ended
}

type flying struct {
	permit Permit
	ends   time.Time
}

// step lets calls end at now and begins what may begin.
func (c *backlog) step(now time.Time) {
	kept := c.flying[:0]
	for _, f := range c.flying {
		if f.ends.After(now) {
			kept = append(kept, f)
			continue
		}
		c.b.DoneAt(now, f.permit, Success)
		c.done++
	}
	c.flying = kept
	for len(c.flying) < c.width {
		p, ok := c.b.AllowBacklogAt(now, c.width)
		if !ok {
			return
		}
		c.flying = append(c.flying, flying{p, now.Add(c.latency)})
	}
}

// halfOpenAt opens a breaker and returns it with the end of its wait.
func halfOpenAt(t testing.TB, cfg Config) (*Breaker, time.Time) {
	t.Helper()
	cfg.ConsecutiveFailures, cfg.OpenWait, cfg.OpenJitter = 3, 2*time.Second, -1
	b, err := NewAt(epoch, Key{"wallet", "pay"}, cfg, rand.New(rand.NewPCG(1, 2)), nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		p, _ := b.AllowAt(epoch)
		b.DoneAt(epoch, p, Failure)
	}
	return b, epoch.Add(2 * time.Second)
}

func TestABacklogGetsTheRampsShareOfWhatItCouldHaveInFlight(t *testing.T) {
	t.Parallel()
	const width, latency = 50, 10 * time.Millisecond
	b, now := halfOpenAt(t, Config{RampStep: 300 * time.Millisecond})
	c := &backlog{b: b, width: width, latency: latency}
	var begun time.Time
	most := map[int]int{}
	for ; b.SnapshotAt(now).State != Closed; now = now.Add(time.Millisecond) {
		c.step(now)
		s := b.SnapshotAt(now)
		if s.Share > 0 && begun.IsZero() {
			begun = now
		}
		if !begun.IsZero() && s.State == HalfOpen {
			step := int(now.Sub(begun) / (300 * time.Millisecond))
			most[step] = max(most[step], len(c.flying))
		} else if len(c.flying) > 1 {
			t.Fatalf("%d first probes at once", len(c.flying))
		}
		if now.Sub(epoch) > time.Minute {
			t.Fatalf("it does not close: %+v", s)
		}
	}
	for step, want := range []int{1, 1, 2, 4, 8, 16, 32} { // 1 %, 2 %, … 64 % of 50, rounded
		if most[step] != want {
			t.Errorf("step %d had %d in flight, want %d", step, most[step], want)
		}
	}
	if took := now.Sub(begun); took < 2100*time.Millisecond || took > 2110*time.Millisecond {
		t.Errorf("the ramp took %v, want seven steps", took)
	}
	// By Little's law: the shares add up to 127 % for a step's length of the full rate, and the first ones are rounded.
	if full := int(width * 300 * time.Millisecond / latency); c.done < full*115/100 || c.done > full*135/100 {
		t.Errorf("%d calls in the ramp, want about 1.27 times %d", c.done, full)
	}
}

func TestAsksOfABacklogEarnNothing(t *testing.T) {
	t.Parallel()
	b, now := halfOpenAt(t, Config{FirstProbes: 1})
	p, _ := b.AllowBacklogAt(now, 10)
	b.DoneAt(now, p, Success)
	held, ok := b.AllowBacklogAt(now, 10) // the step's own probe: a tenth of ten is none
	if !ok {
		t.Fatal("the step's first probe was refused")
	}
	for range 100_000 {
		if _, ok := b.AllowBacklogAt(now, 10); ok {
			t.Fatal("asking often enough lets a backlog through")
		}
	}
	b.DoneAt(now, held, Success)
	if n, halfOpen := b.RoomAt(now, 10); n != 0 || !halfOpen {
		t.Errorf("room %d, half-open %v, want none for the moment", n, halfOpen)
	}
}

func TestArrivalsGetTheirShareBesideABacklog(t *testing.T) {
	t.Parallel()
	b, now := halfOpenAt(t, Config{RampStep: 300 * time.Millisecond})
	c := &backlog{b: b, width: 50, latency: 10 * time.Millisecond}
	asked, let := 0, 0
	for ; b.SnapshotAt(now).State != Closed; now = now.Add(time.Millisecond) {
		if share := b.SnapshotAt(now).Share; share >= 0.32 && share < 1 {
			asked++
			if p, ok := b.AllowAt(now); ok {
				let++
				b.DoneAt(now, p, Success)
			}
		}
		c.step(now)
	}
	// 300 ms of 32 % and 300 ms of 64 %.
	if want := 0.48 * float64(asked); float64(let) < want*0.9 || float64(let) > want*1.1 {
		t.Errorf("%d of %d arrivals were let through, want about %.0f", let, asked, want)
	}
}

// FuzzRoomIsWhatABacklogGets asks for room, and takes it.
func FuzzRoomIsWhatABacklogGets(f *testing.F) {
	f.Add([]byte{3, 40, 7, 200, 1, 90, 90, 90, 33, 5}, uint8(50))
	f.Fuzz(func(t *testing.T, script []byte, width uint8) {
		b, now := halfOpenAt(t, Config{RampStep: 100 * time.Millisecond, ProbesInFlight: 3})
		w := int(width)%60 + 1
		var held []Permit
		for _, op := range script {
			now = now.Add(time.Duration(op>>3) * 10 * time.Millisecond)
			switch op & 7 {
			case 0, 1, 2, 3:
				if len(held) > 0 {
					b.DoneAt(now, held[0], []Result{Success, Success, Ignored, Failure}[op&3])
					held = held[1:]
				}
			case 4:
				if p, ok := b.AllowAt(now); ok {
					held = append(held, p)
				}
			default:
				n, halfOpen := b.RoomAt(now, w)
				if n < 0 || n > w || halfOpen != (b.SnapshotAt(now).State == HalfOpen) {
					t.Fatalf("room %d of %d, half-open %v in %v", n, w, halfOpen, b.SnapshotAt(now).State)
				}
				if !halfOpen && n > 0 {
					n = 1 // closed: as many as one likes
				}
				for range n {
					p, ok := b.AllowBacklogAt(now, w)
					if !ok {
						t.Fatalf("refused with room for %d", n)
					}
					held = append(held, p)
				}
				if _, ok := b.AllowBacklogAt(now, w); halfOpen && n < w && ok {
					t.Fatalf("admitted one beyond the room of %d", n)
				}
			}
		}
	})
}

//nolint:paralleltest // others' allocations would count
func TestABacklogAsksWithoutAllocating(t *testing.T) {
	b, now := halfOpenAt(t, Config{FirstProbes: 1})
	p, _ := b.AllowBacklogAt(now, 10)
	b.DoneAt(now, p, Success)
	if n := testing.AllocsPerRun(1000, func() {
		b.RoomAt(now, 10)
		p, _ := b.AllowBacklogAt(now, 10)
		b.DoneAt(now, p, Ignored)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
