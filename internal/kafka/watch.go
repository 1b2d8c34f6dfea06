package kafka

import (
	"context"
	"errors"
	"log/slog"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// watch looks at the topic every so often, and whenever refresh asks, until ctx ends. It ends the generation when the
// number of partitions is not the one that was dealt out, or when the topic is not the one it was.
func (s *session) watch(ctx context.Context, dealt int, end context.CancelCauseFunc) {
	id := s.current().id
	wait := backoff{least: leastWait, most: mostWait}
	failures, absences := grumbler{every: grumbleEvery}, grumbler{every: grumbleEvery}
	defer s.group.metrics.missing.Set(0)

	// The first look is early: the one who dealt may have seen an old number.
	due := min(time.Second, s.group.config.WatchInterval)
	for {
		timer := time.NewTimer(due)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-s.kick:
			timer.Stop()
			// Nobody may make us ask in a tight loop.
			if !pause(ctx, wait.next()) {
				return
			}
		}
		v, err := s.client.topic(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failures.loud() {
				s.log.WarnContext(ctx, "kafka topic can't be looked up", slog.String("error", s.group.explain(err).Error()))
			}
			due = wait.next()
			continue
		}
		failures.hush()
		due = s.group.config.WatchInterval
		s.saw(v)
		if v.missing() {
			s.group.metrics.missing.Set(1)
			if absences.loud() {
				s.log.ErrorContext(ctx, "kafka topic does not exist")
			}
			due = min(wait.next(), due)
			continue
		}
		s.group.metrics.missing.Set(0)
		if cause := s.ended(ctx, v, id, dealt); cause != nil {
			end(cause)
			return
		}
		if s.leaderless(v) {
			due = min(wait.next(), due)
			continue
		}
		if len(s.kick) == 0 {
			wait.reset()
		}
	}
}

// ended says why the generation can't go on with what the topic is now, nil if it can.
func (s *session) ended(ctx context.Context, v view, id topicID, dealt int) error {
	switch {
	case id != topicID{} && v.id != id:
		s.group.metrics.resets.WithLabelValues(resetRecreated).Add(float64(len(s.assigned)))
		s.log.ErrorContext(ctx, "kafka topic was deleted and made again: it is read from its beginning, what was not read "+
			"of the old one is lost", slog.Int("partitions", len(s.assigned)))
		// What was read belongs to the old topic: its offsets must not become the new one's.
		s.fence(errRecreated)
		s.group.balancer.changed(len(v.leaders))
		return errRecreated
	case len(v.leaders) != dealt:
		s.group.balancer.changed(len(v.leaders))
		return errResized
	}
	return nil
}

// leaderless reports whether an assigned partition has no leader.
func (s *session) leaderless(v view) bool {
	for _, position := range s.assigned {
		if node, ok := v.leaders[position.Partition]; !ok || node == anyNode {
			return true
		}
	}
	return false
}

// keepAlive sends heartbeats from the end of the generation on, while serve still drains: kafka-go has stopped its own,
// and the group would put the member out and refuse its last commit. It ends with ctx, when the group says that the
// member is out, and at the latest when the group no longer waits for it.
func (s *session) keepAlive(ctx, over context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-over.Done():
	}
	ctx, cancel := context.WithTimeout(ctx, s.group.config.RebalanceTimeout)
	defer cancel()
	retry := min(leastWait, s.group.config.HeartbeatInterval)
	for {
		err := s.client.heartbeat(ctx, s.generation, s.member)
		if ctx.Err() != nil {
			break
		}
		next := s.group.config.HeartbeatInterval
		switch {
		case err == nil, errors.Is(err, kafkago.RebalanceInProgress):
		case out(err):
			s.fence(errEvicted)
			s.log.WarnContext(ctx, "kafka group put this member out while it drained", slog.String("error", err.Error()))
			return
		default:
			next = retry
		}
		if !pause(ctx, next) {
			break
		}
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.log.ErrorContext(ctx, "kafka generation drained for longer than the group waits",
			slog.Duration("rebalance_timeout", s.group.config.RebalanceTimeout))
	}
}

// out reports whether an error says that the member is no part of the generation any more.
func out(err error) bool {
	return errors.Is(err, kafkago.IllegalGeneration) || errors.Is(err, kafkago.UnknownMemberId) ||
		errors.Is(err, kafkago.FencedInstanceID)
}
