package kafka

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"spillway/consumer"
)

// fetcher reads the partitions of a session into a feed: one fetchLoop per broker that leads some of them.
type fetcher struct {
	session *session
	feed    consumer.Feed
	moved   chan struct{} // a fresh view has come

	mu         sync.Mutex // guards what follows
	partitions map[int32]*partition
	loops      map[int32]context.CancelFunc // by broker: ends the wait that its loop is in
}

// partition is what the fetcher knows of one, guarded by the fetcher's mutex. highWater and setBack are also read
// without it, by whoever hands over what a request brought of the partition: the feed lets there be one at a time.
type partition struct {
	id      int32
	leader  int32     // anyNode while unknown
	until   time.Time // it is not asked for before
	wait    backoff
	grumble grumbler
	failing bool

	more      bool    // it may have more than what it got last
	hungry    bool    // it got nothing although there is more: it goes first
	ratio     float64 // memory of messages by bytes on the wire, at least 1
	highWater int64
	strays    int  // how often in a row the position was not in the log
	setBack   bool // its position was set back from beyond the log's end
}

// Fetch implements [consumer.Session]. It may be called again after it has returned. The cluster's failures are waited
// out: it returns nil, and only once ctx has ended.
func (s *session) Fetch(ctx context.Context, feed consumer.Feed) error {
	f := &fetcher{
		session: s, feed: feed,
		moved:      make(chan struct{}, 1),
		partitions: make(map[int32]*partition, len(s.assigned)),
		loops:      map[int32]context.CancelFunc{},
	}
	for _, position := range s.assigned {
		f.partitions[position.Partition] = &partition{
			id: position.Partition, leader: anyNode, more: true, ratio: 1, highWater: -1, wait: backoff{least: leastWait, most: mostWait},
			grumble: grumbler{every: grumbleEvery},
		}
	}
	s.mu.Lock()
	s.follow = f.follow
	v := s.view
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.follow = nil
		s.mu.Unlock()
		s.group.metrics.failing.Set(0)
	}()
	f.follow(v)

	var loops sync.WaitGroup
	defer loops.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.moved:
		}
		for _, node := range f.unserved() {
			loops.Go(func() { f.serve(ctx, node) })
		}
	}
}

// follow takes in a fresh view: who leads what.
func (f *fetcher) follow(v view) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, p := range f.partitions {
		leader, ok := v.leaders[id]
		if !ok {
			leader = anyNode
		}
		if leader != p.leader {
			p.leader, p.until = leader, time.Time{}
		}
	}
	for _, wake := range f.loops {
		wake()
	}
	select {
	case f.moved <- struct{}{}:
	default:
	}
}

// unserved returns the brokers that lead something and have no loop, and counts them as having one.
func (f *fetcher) unserved() []int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	var nodes []int32
	for _, p := range f.partitions {
		if p.leader == anyNode {
			continue
		}
		if _, ok := f.loops[p.leader]; !ok {
			f.loops[p.leader] = func() {}
			nodes = append(nodes, p.leader)
		}
	}
	return nodes
}

// choice is what a loop may ask its broker for now.
type choice struct {
	candidates []int32       // hungry ones first, the rest rotated
	quiet      int           // partitions that are left out while a response is being handed over
	withheld   int           // partitions that are not asked for after a failure
	due        time.Duration // until the first of those may be, if there are any
}

// choose lists the partitions that a broker leads, and registers how to end the wait that may follow. While a response is
// being handed over it lists only those that may have more: a broker would hold a request for the others, and those that
// are being handed over would wait for it. It reports false, and forgets the loop, if the broker leads none.
func (f *fetcher) choose(node int32, turn int, handing bool, wake context.CancelFunc) (choice, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	var c choice
	var hungry []int32
	for id, p := range f.partitions {
		switch wait := p.until.Sub(now); {
		case p.leader != node:
		case wait > 0:
			if c.withheld == 0 || wait < c.due {
				c.due = wait
			}
			c.withheld++
		case handing && !p.more:
			c.quiet++
		case p.hungry:
			hungry = append(hungry, id)
		default:
			c.candidates = append(c.candidates, id)
		}
	}
	if len(c.candidates)+len(hungry)+c.quiet+c.withheld == 0 {
		delete(f.loops, node)
		return choice{}, false
	}
	f.loops[node] = wake
	slices.Sort(hungry)
	slices.Sort(c.candidates)
	if n := len(c.candidates); n > 0 {
		at := turn % n
		c.candidates = slices.Concat(hungry, c.candidates[at:], c.candidates[:at])
	} else {
		c.candidates = hungry
	}
	return c, true
}

// serve is the loop of one broker.
func (f *fetcher) serve(ctx context.Context, node int32) {
	l := newFetchLoop(f, node)
	defer l.decoder.unpack.close()
	defer l.settle(ctx)
	var grants []consumer.Grant
	for turn := 0; ctx.Err() == nil; turn++ {
		idle, wake := context.WithCancel(ctx)
		c, ok := f.choose(node, turn, l.handing != nil, wake)
		if !ok {
			wake()
			return
		}
		grants = grants[:0]
		if len(c.candidates) > 0 {
			grants = f.feed.Plan(c.candidates, grants)
		}
		switch {
		case len(grants) > 0:
			f.order(grants)
			l.round(ctx, grants, len(grants) < len(c.candidates)+c.quiet)
		case l.handing != nil:
			l.settle(ctx)
		default:
			f.idle(idle, c)
		}
		wake()
	}
}

// order puts the grants of hungry partitions first: a broker gives a batch that is larger than was asked for to nobody
// but the first in the request.
func (f *fetcher) order(grants []consumer.Grant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rank := func(g consumer.Grant) int {
		if p := f.partitions[g.Partition]; p != nil && p.hungry {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(grants, func(a, b consumer.Grant) int { return rank(a) - rank(b) })
}

// idle waits until there may be something to ask for. The feed is asked again after the usual length of a fetch at the
// latest: what it would have woken us for may have come between its plan and the wait.
func (f *fetcher) idle(ctx context.Context, c choice) {
	wait := f.session.group.config.MaxWait
	if c.withheld > 0 {
		wait = min(wait, c.due)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if len(c.candidates) == 0 {
		<-ctx.Done()
		return
	}
	f.feed.Wait(ctx)
}

// partition returns what is known of a partition, nil if it is not assigned.
func (f *fetcher) partition(id int32) *partition {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.partitions[id]
}

// failingAfter is how many failures in a row make a partition count as failing.
const failingAfter = 3

// seriousAfter is how many make it an error in the log, after ten seconds or so: the cluster may be electing a leader.
const seriousAfter = 8

// failed notes that a partition could not be read and withholds it for a while.
func (f *fetcher) failed(ctx context.Context, p *partition, kind string, most time.Duration, err error) {
	f.session.group.metrics.errors.WithLabelValues(kind).Inc()
	f.mu.Lock()
	p.wait.most = most
	p.until = time.Now().Add(p.wait.next())
	tries := p.wait.tries
	changed := tries >= failingAfter && !p.failing
	if changed {
		p.failing = true
		f.countFailing()
	}
	f.mu.Unlock()
	if tries < failingAfter {
		f.session.log.DebugContext(ctx, "kafka partition could not be read",
			slog.Int("partition", int(p.id)), slog.Int("tries", tries), slog.String("error", err.Error()))
		return
	}
	level := slog.LevelWarn
	if kind == errorCorrupt || tries >= seriousAfter {
		level = slog.LevelError
	}
	if changed || tries == seriousAfter || p.grumble.loud() {
		f.session.log.Log(ctx, level, "kafka partition can't be read",
			slog.Int("partition", int(p.id)), slog.Int("tries", tries), slog.String("error", err.Error()))
	}
}

// succeeded notes that a partition was read.
func (f *fetcher) succeeded(ctx context.Context, p *partition) {
	f.mu.Lock()
	p.wait.reset()
	p.strays = 0
	recovered := p.failing
	if recovered {
		p.failing = false
		f.countFailing()
	}
	f.mu.Unlock()
	if recovered {
		f.session.log.InfoContext(ctx, "kafka partition is read again", slog.Int("partition", int(p.id)))
	}
}

// countFailing sets the gauge. The mutex is held.
func (f *fetcher) countFailing() {
	n := 0
	for _, p := range f.partitions {
		if p.failing {
			n++
		}
	}
	f.session.group.metrics.failing.Set(float64(n))
}
