package kafka

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// watch looks at the topic every so often, and whenever refresh asks, until ctx ends. It ends the generation when the
// number of partitions is not the one that was dealt out, or when the topic is not the one it was.
func (s *session) watch(ctx context.Context, dealt int, end context.CancelCauseFunc) {
	id := s.current().id
	gap, looked := backoff{least: leastWait, most: mostWait}, time.Time{}
	failures, absences := grumbler{every: grumbleEvery}, grumbler{every: grumbleEvery}
	defer s.group.metrics.missing.Set(0)

	// The first look is early: the one who dealt may have seen an old number.
	due := min(time.Second, s.group.config.WatchInterval)
	for {
		if !s.awaitLook(ctx, due, &gap, looked) {
			return
		}
		before := s.current()
		v, err := s.client.topic(ctx)
		looked = time.Now()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failures.loud() {
				s.log.WarnContext(ctx, "kafka topic can't be looked up", slog.String("error", s.group.explain(err).Error()))
			}
			due = gap.next()
			continue
		}
		failures.hush()
		if !maps.Equal(v.leaders, before.leaders) {
			gap.reset() // what was asked for has come: the next question may be asked at once
		}
		due = s.group.config.WatchInterval
		s.saw(v)
		s.group.metrics.missing.Set(0)
		switch cause := s.ended(ctx, v, id, dealt); {
		case v.missing():
			s.group.metrics.missing.Set(1)
			if absences.loud() {
				s.log.ErrorContext(ctx, "kafka topic does not exist")
			}
			due = min(gap.next(), due)
		case cause != nil:
			end(cause)
			return
		case s.leaderless(v):
			due = min(gap.next(), due)
		}
	}
}

// awaitLook waits until the next look is due, or one is asked for, which is granted at once after a quiet time and ever
// less often while the answers do not change. It reports false when ctx has ended.
func (s *session) awaitLook(ctx context.Context, due time.Duration, gap *backoff, looked time.Time) bool {
	timer := time.NewTimer(due)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-s.kick:
	}
	since := time.Since(looked)
	if since > mostWait {
		gap.reset()
	}
	return pause(ctx, max(gap.next()-since, 0))
}

// ended says why the generation can't go on with what the topic is now, nil if it can.
func (s *session) ended(ctx context.Context, v view, id topicID, dealt int) error {
	switch {
	case v.missing():
		return nil // it may come back
	case id != topicID{} && v.id != id:
		s.group.metrics.resets.WithLabelValues(resetRecreated).Add(float64(len(s.assigned)))
		s.log.ErrorContext(ctx, "kafka topic was deleted and made again: it is read from its beginning, what was not read "+
			"of the old one is lost", slog.Int("partitions", len(s.assigned)))
		// What was read belongs to the old topic: its offsets must not become the new one's.
		s.fence(errRecreated)
		s.group.share.changed(len(v.leaders))
		return errRecreated
	case len(v.leaders) != dealt:
		s.group.share.changed(len(v.leaders))
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
