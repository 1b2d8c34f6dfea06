package consumer

import (
	"context"

	"spillway/order"
)

// Group is one worker's membership in the consumer group of one topic.
type Group interface {
	// Run joins the group and calls serve once for each generation that gives this worker partitions, one at a time,
	// until ctx ends or serve returns an error. serve's context ends when the generation does (its cause says why);
	// serve then drains, commits and returns, and only then does the member rejoin or leave. Heartbeats go on while serve
	// drains. Run returns nil after a clean leave.
	Run(ctx context.Context, serve func(ctx context.Context, s Session) error) error
}

// Session is what one generation of the group gave this worker. It is safe for concurrent use.
type Session interface {
	// Generation is the group's generation number.
	Generation() int32
	// Assigned lists the partitions of this worker and where each is to be read from.
	Assigned() []Position
	// Fetch reads the assigned partitions into feed until ctx ends, one request at a time per broker, then returns
	// nil when nothing is under way any more. An error means that the generation is of no use any longer.
	Fetch(ctx context.Context, feed Feed) error
	// Commit makes offsets (partition → next offset to read) the group's. It works after serve's context has ended,
	// as long as the broker still holds the generation open. ErrFenced (wrapped) means it never will again.
	Commit(ctx context.Context, offsets map[int32]int64) error
}

// Position is a partition and the next offset to read.
type Position struct {
	Partition int32
	Offset    int64
}

// Grant lets one partition bring in up to Bytes of record batches with the next fetch, from Offset on.
type Grant struct {
	Partition int32
	Offset    int64
	Bytes     int32
}

// Batch is what one fetch brought of one partition.
type Batch struct {
	Partition int32
	Grant     int32           // the bytes that had been granted: they are given back
	Messages  []order.Message // in offset order; control and aborted records are left out
	Next      int64           // the offset to fetch from next: past compaction holes and left-out records
	HighWater int64           // the log's end, -1 where the broker did not say
}

// Gap is data the log no longer had: offsets From up to To (exclusive) are gone.
type Gap struct {
	Partition int32
	From, To  int64
	Why       string
}

// Feed is what a fetch asks and tells. Implementations are safe for concurrent use and never block, but for Wait.
type Feed interface {
	// Plan appends to grants which of the candidates (the assigned partitions one broker leads) the next request may
	// ask for, at most one grant each, and reserves their bytes. A partition that is paused, or that has a request
	// under way, is left out. Every grant comes back in exactly one Deliver or Release.
	Plan(candidates []int32, grants []Grant) []Grant
	// Wait returns when Plan may answer differently from before, or when ctx ends.
	Wait(ctx context.Context)
	// Deliver hands over what came. The feed owns the messages from then on.
	Deliver(b Batch)
	// Release gives back a grant that brought nothing.
	Release(g Grant)
	// Lost reports data that is gone, and moves the partition's position to gap.To.
	Lost(g Gap)
}
