package quota

import (
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"time"
)

// Limiter is the rate limit that a share caps.
type Limiter interface {
	// SetShare sets the worker's part, per second.
	SetShare(perSecond float64, now time.Time)
	// Demand tells the submits let through since it was asked last, and whether more would have come but for the share.
	Demand() (taken int, short bool)
}

// Unit is what amounts of a rate are counted in: so many are one submit per second.
const Unit = 1_000_000

// floorPart is the part of the fleet's rate that a worker may use which has never been given a share.
const floorPart = 100

// Rate is a worker's share of the rate of a fleet. Without the table a share is kept for its lease, and halved for each
// further one, down to a hundredth of the whole; a worker that never had one starts there. Its State may be read
// concurrently; its amounts are in millionths per second.
type Rate struct {
	key     string
	cap     atomic.Int64
	limiter Limiter

	seq      uint64
	share    int64
	until    time.Time // of the share's lease; zero: there never was one
	reported time.Time
	state    atomic.Pointer[Answer]
}

// NewRate makes the part of a worker without a share. perSecond is the fleet's, more than 0 and at most a million.
func NewRate(key string, perSecond float64, limiter Limiter, now time.Time) (*Rate, error) {
	if math.IsNaN(perSecond) || perSecond <= 0 || perSecond*Unit > MaxCap {
		return nil, fmt.Errorf("fleet rate %v per second, accepted: more than 0, at most %d", perSecond, MaxCap/Unit)
	}
	r := &Rate{key: key + ":rate", limiter: limiter, reported: now}
	r.SetCap(perSecond)
	r.share = r.floor()
	r.apply(now)
	return r, nil
}

// SetCap changes the fleet's rate from the next report on. It may be called concurrently.
func (r *Rate) SetCap(perSecond float64) {
	r.cap.Store(int64(math.Ceil(min(max(perSecond*Unit, 1), MaxCap))))
}

// Cap is the fleet's rate per second as this worker was told.
func (r *Rate) Cap() float64 { return float64(r.cap.Load()) / Unit }

// Text is a rate as the settings have it.
func (r *Rate) Text(amount int64) string {
	return strconv.FormatFloat(float64(amount)/Unit, 'f', -1, 64) + "/s"
}

// State is the last answer; the zero Answer before the first.
func (r *Rate) State() Answer { return stateOf(&r.state) }

func (r *Rate) floor() int64 { return max(1, r.cap.Load()/floorPart) }

// inForce is the share as the worker uses it at now.
func (r *Rate) inForce(now time.Time) int64 {
	late := now.Sub(r.until)
	if r.until.IsZero() || late <= 0 {
		return r.share
	}
	halvings := min(1+int(late/Lease), 40)
	return max(r.share>>halvings, min(r.share, r.floor()))
}

func (r *Rate) apply(now time.Time) { r.limiter.SetShare(float64(r.inForce(now))/Unit, now) }

// Report implements Part.
func (r *Rate) Report(now time.Time, gone bool) Report {
	whole := r.cap.Load()
	held := r.inForce(now)
	if gone {
		r.share, held = 0, 0
		r.limiter.SetShare(0, now)
	}
	taken, short := r.limiter.Demand()
	want := whole
	if !short {
		perSecond := float64(taken) / max(now.Sub(r.reported).Seconds(), 0.001)
		want = min(whole, int64(perSecond*Unit*1.25)+r.floor()) // some room for a second that is busier than the last
	}
	r.reported = now
	r.seq++
	return Report{Key: r.key, Seq: r.seq, Held: held, Want: want, Most: whole, Cap: whole, Hold: Lease + Step, Gone: gone}
}

// Answered implements Part.
func (r *Rate) Answered(sent, now time.Time, a Answer) {
	if a.Stale {
		return
	}
	r.state.Store(&a)
	r.share, r.until = a.Grant, sent.Add(Lease)
	r.apply(now)
}

// Missed implements Part.
func (r *Rate) Missed(now time.Time) { r.apply(now) }
