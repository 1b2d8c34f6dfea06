package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"spillway/consumer"
)

// Commit implements [consumer.Session]. One commit is under way at a time. Offsets at or below what the group holds
// are left out, so that a late commit moves nothing back. Errors of the network, and those of a coordinator that moves,
// are tried again until ctx ends.
func (s *session) Commit(ctx context.Context, offsets map[int32]int64) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("commit offsets: %w", context.Cause(ctx))
	case <-s.committing:
	}
	defer func() { s.committing <- struct{}{} }()

	err := s.commit(ctx, offsets)
	switch {
	case err == nil:
		s.group.metrics.commits.WithLabelValues(commitDone).Inc()
	case errors.Is(err, consumer.ErrFenced):
		s.group.metrics.commits.WithLabelValues(commitFenced).Inc()
	default:
		s.group.metrics.commits.WithLabelValues(commitFailed).Inc()
	}
	return err
}

// commit tries until everything is committed, or something can't be.
func (s *session) commit(ctx context.Context, offsets map[int32]int64) error {
	for p := range offsets {
		if !slices.ContainsFunc(s.assigned, func(a consumer.Position) bool { return a.Partition == p }) {
			return fmt.Errorf("commit offsets: partition %d is not assigned", p)
		}
	}
	wait := backoff{least: leastWait, most: mostWait}
	for {
		due, err := s.due(ctx, offsets)
		if err != nil || len(due) == 0 {
			return err
		}
		err = s.commitOnce(ctx, due)
		switch {
		case err == nil:
			return nil
		case out(err), errors.Is(err, kafkago.RebalanceInProgress):
			s.fence(err)
			return fmt.Errorf("commit offsets: %w: %w", consumer.ErrFenced, err)
		case ctx.Err() != nil:
			return fmt.Errorf("commit offsets: %w (last try: %w)", context.Cause(ctx), err)
		case !temporary(err):
			return fmt.Errorf("commit offsets: %w", s.group.explain(err))
		}
		if !pause(ctx, wait.next()) {
			return fmt.Errorf("commit offsets: %w (last try: %w)", context.Cause(ctx), err)
		}
	}
}

// due returns the offsets that would move the group forward.
func (s *session) due(ctx context.Context, offsets map[int32]int64) (map[int32]int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fenced != nil {
		return nil, fmt.Errorf("commit offsets: %w: %w", consumer.ErrFenced, s.fenced)
	}
	due := make(map[int32]int64, len(offsets))
	for p, offset := range offsets {
		if held, ok := s.last[p]; ok && offset <= held {
			continue
		}
		if end, ok := s.beyond[p]; ok && offset > end {
			s.log.WarnContext(ctx, "kafka offset lies beyond the log's end and is not committed",
				slog.Int("partition", int(p)), slog.Int64("offset", offset), slog.Int64("end", end))
			continue
		}
		due[p] = offset
	}
	return due, nil
}

// commitOnce sends one request and notes what it committed, also where it failed for some partitions.
func (s *session) commitOnce(ctx context.Context, offsets map[int32]int64) error {
	request := kmsg.NewPtrOffsetCommitRequest()
	request.Group, request.Generation, request.MemberID = s.group.config.Group, s.generation, s.member
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = s.group.config.Topic
	for _, p := range slices.Sorted(maps.Keys(offsets)) {
		partition := kmsg.NewOffsetCommitRequestTopicPartition()
		partition.Partition, partition.Offset, partition.Metadata = p, offsets[p], &s.mark
		topic.Partitions = append(topic.Partitions, partition)
	}
	request.Topics = append(request.Topics, topic)
	response, err := groupCall[*kmsg.OffsetCommitResponse](ctx, s.client, exchange{request: request, newest: commitVersion})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var failed []error
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			if code := kafkago.Error(p.ErrorCode); code != 0 {
				s.client.misplaced(code)
				failed = append(failed, fmt.Errorf("partition %d: %w", p.Partition, code))
				continue
			}
			if end, ok := s.beyond[p.Partition]; !ok || offsets[p.Partition] <= end {
				s.last[p.Partition] = offsets[p.Partition]
			}
		}
	}
	return errors.Join(failed...)
}
