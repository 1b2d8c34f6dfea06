package replay

import (
	"context"
	"time"

	"spillway/order"
)

// Queue is one route's replay queue, shared by all workers. Its methods may be called concurrently; each is atomic: it
// happens entirely or, with an error, entirely not, unless the error hides an answer that was lost on its way.
type Queue interface {
	Backlog
	Claims
}

// Backlog is the side of the queue that fills it and looks at it.
type Backlog interface {
	// Push adds the entries whose ID is not queued already; repeating it is harmless. It takes all of them or, with
	// order.ErrQueueFull, none. At most MaxPush entries.
	Push(ctx context.Context, entries []Entry) error
	// Has says for each ID whether it is queued: ready, delayed or claimed. An ID that is not may be pushed. It may
	// say no of one that is, after the queue lost a part of itself; a second copy does no harm.
	Has(ctx context.Context, ids []int64) ([]bool, error)
	// Depths counts the queue.
	Depths(ctx context.Context) (Depths, error)
	// Probe returns an error where a Push would meet one: it writes, because a server that answers reads may refuse
	// all writes.
	Probe(ctx context.Context) error
}

// Claims is the side of the queue that takes from it.
type Claims interface {
	// Claim takes up to n entries (at most MaxClaim) whose bytes sum up to at most room, but one whatever its size, for
	// the worker. Before that it makes delayed entries ready that are due and brings back the entries of claims whose
	// lease has run out. A claim without items needs no Finish.
	Claim(ctx context.Context, worker string, n, room int, lease time.Duration) (Claim, error)
	// Renew gives the claim another lease from now on. False: the claim is lost, its entries are somebody else's.
	Renew(ctx context.Context, c Claim, lease time.Duration) (bool, error)
	// Finish ends the claim. Of a claim that is lost it says false; then only those of f.Again are added that are not
	// queued by now, and the rest of f is void.
	Finish(ctx context.Context, c Claim, f Finished) (bool, error)
	// Mend brings back entries and forgets ids that a damaged queue lost track of, and says how many entries came
	// back. It is slow and looks at a bounded part at each call.
	Mend(ctx context.Context) (int, error)
}

// Bounds of one call to a Queue.
const (
	MaxPush  = 100
	MaxClaim = 100
)

// Entry is what goes into a queue.
type Entry struct {
	ID        int64
	NotBefore time.Time // by this worker's clock; zero or past: ready at once
	Data      []byte    // an encoded Item
}

// Claim is a batch of entries in the hands of one worker until its lease ends.
type Claim struct {
	Key   string   // the queue's name for it
	Items [][]byte // bytes as they stood in the queue; anybody may have written them
}

// Finished is what becomes of the entries of a claim. Those it does not name leave the queue.
type Finished struct {
	Done  []int64 // ids that are queued no longer
	Again []Entry // queued anew, in place of the claimed entry with their id
	Keep  []int   // indexes into Claim.Items: back to the end of the queue as they are
}

// Depths counts a queue.
type Depths struct {
	Ready    int
	Delayed  int
	InFlight int           // claimed
	Oldest   time.Duration // how long the oldest order has been queued; 0 for an empty queue
}

// Total is what the bound of the queue counts.
func (d Depths) Total() int { return d.Ready + d.Delayed + d.InFlight }

// Store is the record of orders, in Postgres.
type Store interface {
	// Begin starts the next attempt of those of the orders that still are PROCESSING and REPLAYING, leased to owner,
	// with the attempt counted, and returns them complete. Others are missing from the answer.
	Begin(ctx context.Context, owner string, lease time.Duration, ids []int64) ([]order.Order, error)
	// Renew gives leased rows another lease. False: the lease is lost. Same order and length as ls.
	Renew(ctx context.Context, owner string, lease time.Duration, ls []order.Lease) ([]bool, error)
	// Settle applies transitions. Same order and length as ss.
	Settle(ctx context.Context, owner string, ss []order.Settlement) ([]order.Settled, error)
	// Bury writes dead letters for what is no order. Repeating it is harmless.
	Bury(ctx context.Context, ds []order.DeadRecord) error
}

// Pacer is the route's rate limits. A submit first takes its right here, then a permit.
type Pacer interface {
	// Pace takes the right to make one submit at now and returns 0. Where a limit has none left it takes nothing and says
	// when asking again makes sense: more than 0, at most a second. It never blocks. In the replay lane the tenant's
	// limit is not looked at: whose order it is shows only after the claim.
	Pace(now time.Time, lane order.Lane, tenant string) time.Duration
	// PaceTenant takes the right from the tenant's limit alone, in the same way.
	PaceTenant(now time.Time, tenant string) time.Duration
	// Unpace gives back a right that Pace gave and that was not used.
	Unpace(lane order.Lane, tenant string)
}

// Permits is the route's permit pool.
type Permits interface {
	// TryAcquire takes a permit of the lane if one is free now.
	TryAcquire(lane order.Lane) bool
	// Acquire stands in line for a permit of the lane until ctx ends.
	Acquire(ctx context.Context, lane order.Lane) error
	// Release gives back a permit.
	Release(lane order.Lane)
	// Keep reports whether the holder of a permit may make another call with it; if not, it was given back to whoever
	// has the better claim.
	Keep(lane order.Lane) bool
}

// Attempter makes attempts under a route's rate limits, permits and breaker.
type Attempter interface {
	Pacer
	Permits
	// Submit makes one attempt with a permit the caller holds, and goes on holding. It returns soon after ctx ends.
	Submit(ctx context.Context, lane order.Lane, o *order.Order) order.Answer
	// Room is how many attempts the breaker would let begin now, and whether it is recovering: then none means none for
	// the moment.
	Room() (n int, recovering bool)
}
