package quota

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
)

// Part is one worker's side of one shared thing. The Sharer's goroutine alone calls its methods.
type Part interface {
	// Report states what is held at now.
	Report(now time.Time, gone bool) Report
	// Answered takes the answer to the last report, which was made at sent.
	Answered(sent, now time.Time, a Answer)
	// Missed says that there was none.
	Missed(now time.Time)
	// Text is an amount of it as people write it.
	Text(amount int64) string
}

// Pool is the permits that an allotment caps.
type Pool interface {
	// Lease lets at most n permits be in use, until the moment given; after that none is handed out.
	Lease(n int, until time.Time)
	// Use tells what the pool needs. held is the most permits that may be in use until the next Lease: those leased, while
	// they are, or those taken, where that is more. peak is the most that were taken at once since Use was asked last, limit
	// what the pool would hand out without a lease, and short whether the lease kept somebody waiting.
	Use(now time.Time) (held, peak, limit int, short bool)
}

// Lease is how long an allotment may be used after the moment before it was asked for. It outlasts a few exchanges that
// fail.
const Lease = 5 * time.Second

// Permits is a worker's part of the permits of a fleet. Its State may be read concurrently.
type Permits struct {
	key     string
	cap     atomic.Int64
	longest time.Duration
	pool    Pool
	seq     uint64
	state   atomic.Pointer[Answer]
}

// NewPermits makes the part of a worker that has nothing yet: the pool hands out nothing. limit is the fleet's, 1 to
// MaxCap; longest is how long a call may take, from the pool's yes to the moment it is surely over.
func NewPermits(key string, limit int, longest time.Duration, pool Pool) (*Permits, error) {
	if limit < 1 || limit > MaxCap {
		return nil, fmt.Errorf("fleet permits %d, accepted: 1 to %d", limit, MaxCap)
	}
	p := &Permits{key: key + ":permits", longest: longest, pool: pool}
	p.cap.Store(int64(limit))
	pool.Lease(0, time.Time{})
	return p, nil
}

// SetCap changes the fleet's limit from the next report on. It may be called concurrently.
func (p *Permits) SetCap(limit int) { p.cap.Store(int64(min(max(limit, 1), MaxCap))) }

// Cap is the fleet's limit as this worker was told.
func (p *Permits) Cap() int { return int(p.cap.Load()) }

// Text is a number of permits.
func (p *Permits) Text(amount int64) string { return strconv.FormatInt(amount, 10) }

// State is the last answer; the zero Answer before the first.
func (p *Permits) State() Answer { return stateOf(&p.state) }

// Report implements Part.
func (p *Permits) Report(now time.Time, gone bool) Report {
	if gone {
		p.pool.Lease(0, time.Time{})
	}
	held, peak, limit, short := p.pool.Use(now)
	p.seq++
	want := limit
	if !short {
		want = min(limit, peak+max(1, peak/4)) // some room for a second that is busier than the last
	}
	return Report{
		Key: p.key, Seq: p.seq, Held: int64(held), Want: int64(want), Most: int64(limit), Cap: p.cap.Load(),
		Hold: Lease + p.longest + Step, Gone: gone,
	}
}

// Answered implements Part.
func (p *Permits) Answered(sent, _ time.Time, a Answer) {
	if a.Stale {
		return
	}
	p.state.Store(&a)
	p.pool.Lease(int(a.Grant), sent.Add(Lease))
}

// Missed implements Part. The lease runs out by itself.
func (*Permits) Missed(time.Time) {}

func stateOf(p *atomic.Pointer[Answer]) Answer {
	if a := p.Load(); a != nil {
		return *a
	}
	return Answer{}
}
