package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"spillway/consumer"
)

// Group is one worker's membership in the consumer group of one topic. Run may be called once; Check and Ends at any
// time and concurrently.
type Group struct {
	config    Config
	share     *share
	balancers []kafkago.GroupBalancer
	metrics   *metrics
	log       *slog.Logger

	mu     sync.Mutex // guards client
	client *client    // while Run is on
}

var _ consumer.Group = (*Group)(nil)

// Why a generation that serve is in the middle of ends, as the cause of its context.
var (
	errRebalance = errors.New("the group rebalances")
	errResized   = errors.New("the topic's number of partitions changed")
	errRecreated = errors.New("the topic was deleted and made again")
	errEvicted   = errors.New("the group has put this member out")
)

// closeGrace is how long a leaving member waits for an answer to its join before it cuts the connection.
const closeGrace = 2 * time.Second

// joinBackoff is how long kafka-go waits after a failed try to join.
const joinBackoff = time.Second

// New makes a Group and starts nothing. It fails on a configuration that can't be right; whether the cluster agrees
// with it, Check says.
func New(config Config) (*Group, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	mine := &share{topic: config.Topic}
	balancers, err := mine.balancers(config.Balance)
	if err != nil {
		return nil, err
	}
	if _, err := config.SASL.mechanism(); err != nil {
		return nil, err
	}
	metrics, err := newMetrics(config.Registerer, config.Route)
	if err != nil {
		return nil, fmt.Errorf("kafka: register metrics: %w", err)
	}
	return &Group{
		config:    config,
		share:     mine,
		balancers: balancers,
		metrics:   metrics,
		log:       config.Logger.With(slog.String("topic", config.Topic), slog.String("group", config.Group)),
	}, nil
}

// member makes kafka-go's group.
func (g *Group) member(open *dials) (*kafkago.ConsumerGroup, error) {
	mechanism, err := g.config.SASL.mechanism()
	if err != nil {
		return nil, err
	}
	return kafkago.NewConsumerGroup(kafkago.ConsumerGroupConfig{
		ID:      g.config.Group,
		Brokers: g.config.Brokers,
		Dialer: &kafkago.Dialer{
			ClientID:      g.config.ClientID,
			DialFunc:      open.DialContext,
			Timeout:       g.config.DialTimeout,
			TLS:           g.config.TLS,
			SASLMechanism: mechanism,
		},
		Topics:            []string{g.config.Topic},
		GroupBalancers:    g.balancers,
		HeartbeatInterval: g.config.HeartbeatInterval,
		SessionTimeout:    g.config.SessionTimeout,
		RebalanceTimeout:  g.config.RebalanceTimeout,
		JoinGroupBackoff:  joinBackoff,
		Timeout:           min(g.config.CallTimeout, g.config.SessionTimeout), // a heartbeat unanswered for longer is one lost
	})
}

// Run implements [consumer.Group]. A cluster that is away is waited for; only an error of serve, or a group setting
// that the cluster will never accept, ends it early.
func (g *Group) Run(ctx context.Context, serve func(ctx context.Context, s consumer.Session) error) error {
	client, err := newClient(&g.config)
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.client = client
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.client = nil
		g.mu.Unlock()
		client.close()
	}()

	open := &dials{dial: g.config.Dial}
	cg, err := g.member(open)
	if err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	var lastMember string
	defer func() { g.depart(context.WithoutCancel(ctx), client, cg, open, lastMember) }()

	var ghosts sync.WaitGroup
	defer ghosts.Wait()
	laid := func() {}
	defer func() { laid() }()
	failures := grumbler{every: grumbleEvery}
	for {
		gen, err := cg.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, kafkago.RebalanceInProgress):
			continue // members joined together: the next try is the answer
		case err != nil:
			if err := g.joinFailed(ctx, &failures, err); err != nil {
				return err
			}
			if ghost := lastMember; ghost != "" {
				lastMember = ""
				laying, stop := context.WithCancel(ctx)
				laid = stop
				ghosts.Go(func() { g.layGhost(laying, client, ghost) })
			}
			continue
		}
		laid()
		failures.hush()
		lastMember = gen.MemberID
		g.metrics.joins.Inc()
		done := make(chan error, 1)
		gen.Start(func(over context.Context) {
			err := g.generation(ctx, over, client, gen, serve)
			if (err != nil || ctx.Err() != nil) && g.leave(context.WithoutCancel(ctx), client, gen.MemberID) {
				lastMember = ""
			}
			done <- err
		})
		if err := <-done; err != nil {
			return err
		}
	}
}

// joinFailed reports a failed try to join. It returns the error if no later try can be better.
func (g *Group) joinFailed(ctx context.Context, failures *grumbler, err error) error {
	if errors.Is(err, kafkago.InvalidSessionTimeout) || errors.Is(err, kafkago.InvalidGroupId) {
		return fmt.Errorf("kafka: join group %q: %w", g.config.Group, err)
	}
	g.metrics.joinErrors.Inc()
	if failures.loud() {
		g.log.WarnContext(ctx, "kafka group can't be joined", slog.String("error", g.explain(err).Error()))
	}
	return nil
}

// layGhost takes out of the group the member that this worker was, until it has managed or ctx ends. After a failed join
// kafka-go joins as somebody new and has no connection to say farewell on; the group would wait for the old member for
// a whole session timeout, counted from when its coordinator is back.
func (g *Group) layGhost(ctx context.Context, client *client, member string) {
	wait := backoff{least: leastWait, most: time.Second}
	for {
		err := client.leave(ctx, member)
		if err == nil || errors.Is(err, kafkago.UnknownMemberId) || !pause(ctx, wait.next()) {
			return
		}
	}
}

// leave takes the member out of the group, and reports whether it is out. It is called while kafka-go still believes in
// the generation: with the generation's end it joins again at once, and that join makes the others divide the topic among
// a member that is about to leave, waits until they have, and only then can it say farewell.
func (g *Group) leave(ctx context.Context, client *client, member string) bool {
	ctx, cancel := context.WithTimeout(ctx, closeGrace) // brokers that say nothing must not outlast the shutdown
	defer cancel()
	err := client.leave(ctx, member)
	if err != nil && !errors.Is(err, kafkago.UnknownMemberId) {
		g.log.WarnContext(ctx, "kafka group could not be left", slog.String("error", err.Error()))
		return false
	}
	return true
}

// depart leaves the group and waits until kafka-go's goroutines have ended.
func (g *Group) depart(ctx context.Context, client *client, cg *kafkago.ConsumerGroup, open *dials, member string) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = cg.Close() // never fails
	}()
	timer := time.NewTimer(closeGrace)
	defer timer.Stop()
	select {
	case <-closed:
		return
	case <-timer.C:
	}
	// It waits for other members to drain. kafka-go forgets its member id with the broken join, so we leave ourselves:
	// else the group would miss this member for a session timeout.
	open.cut()
	<-closed
	if member != "" {
		g.leave(ctx, client, member)
	}
}

// generation is this worker's part in one generation of the group: it returns when serve has, and the generation ends
// with it. over ends when the group has ended it.
func (g *Group) generation(
	ctx, over context.Context, client *client, gen *kafkago.Generation,
	serve func(ctx context.Context, s consumer.Session) error,
) error {
	s := newSession(g, client, gen)
	serving, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	unhook := context.AfterFunc(over, func() { stop(errRebalance) })
	defer unhook()

	var helpers sync.WaitGroup
	defer helpers.Wait()
	keeping, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	helpers.Go(func() { s.keepAlive(keeping, over) })
	led := false
	defer func() { g.remember(ctx, s, led, context.Cause(serving)) }()

	if err := s.open(serving); err != nil {
		return nil // open fails only when the generation or Run ends
	}
	var dealt int
	if dealt, led = g.share.take(); !led {
		dealt = len(s.current().leaders)
	}
	watching, unwatch := context.WithCancel(serving)
	defer unwatch()
	helpers.Go(func() { s.watch(watching, dealt, stop) })

	g.metrics.assigned.Set(float64(len(s.assigned)))
	defer g.metrics.assigned.Set(0)
	g.log.InfoContext(ctx, "kafka generation begins",
		slog.Int("generation", int(gen.ID)), slog.Int("partitions", len(s.assigned)), slog.Bool("leader", led))
	var err error
	if len(s.assigned) == 0 {
		<-serving.Done() // the heartbeats go on: partitions may yet come
	} else {
		err = serve(serving, s)
	}
	g.log.InfoContext(ctx, "kafka generation ends",
		slog.Int("generation", int(gen.ID)), slog.String("cause", fmt.Sprint(context.Cause(serving))))
	if err == nil && serving.Err() == nil {
		pause(serving, joinBackoff) // serve gave up by itself: do not spin through rebalances
	}
	return err
}

// remember notes what the member held, for its next join. A follower that comes back into a generation that goes on,
// after a connection was cut for example, is handed the same partitions again as long as it says what it said before;
// with anything new it would make the whole group divide anew.
func (g *Group) remember(ctx context.Context, s *session, led bool, cause error) {
	if ctx.Err() != nil {
		return // it leaves
	}
	divides := led || errors.Is(cause, errResized) || errors.Is(cause, errRecreated)
	if !divides {
		asking, cancel := context.WithTimeout(ctx, min(g.config.HeartbeatInterval, closeGrace))
		defer cancel()
		divides = s.client.heartbeat(asking, s.generation, s.member) != nil
	}
	if !divides {
		return
	}
	h := holding{generation: s.generation}
	for _, position := range s.assigned {
		h.partitions = append(h.partitions, position.Partition)
	}
	g.share.hold(h)
}

// grumbleEvery is how often a lasting failure is logged.
const grumbleEvery = 30 * time.Second

// grumbler lets a repeated failure be logged at once and then every so often. It is safe for concurrent use.
type grumbler struct {
	every time.Duration
	last  atomic.Int64 // when it was last loud, in nanoseconds of the Unix clock; 0 for never
}

// loud reports whether this failure is to be logged.
func (g *grumbler) loud() bool {
	now := time.Now().UnixNano()
	last := g.last.Load()
	return (last == 0 || now-last >= int64(g.every)) && g.last.CompareAndSwap(last, now)
}

// hush makes the next failure loud again.
func (g *grumbler) hush() { g.last.Store(0) }
