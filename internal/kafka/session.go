package kafka

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"spillway/consumer"
)

// session is one generation's share of the topic.
type session struct {
	group      *Group
	client     *client
	log        *slog.Logger
	generation int32
	member     string
	assigned   []consumer.Position // ascending; complete once open has returned
	mark       string              // the metadata of our commits

	kick chan struct{} // asks watch for a fresh view

	mu     sync.Mutex // guards what follows
	view   view
	follow func(view) // told about every fresh view; nil while nobody fetches
	fenced error      // why no commit can succeed any more

	last   map[int32]int64 // what the group holds, by assigned partition
	beyond map[int32]int64 // the log's end, for partitions whose position was set back

	committing chan struct{} // holds a token while no commit is under way
}

var _ consumer.Session = (*session)(nil)

// newSession makes the session of a generation; open makes it usable.
func newSession(g *Group, client *client, gen *kafkago.Generation) *session {
	s := &session{
		group: g, client: client, generation: gen.ID, member: gen.MemberID,
		log:        g.log.With(slog.Int("generation", int(gen.ID))),
		kick:       make(chan struct{}, 1),
		committing: make(chan struct{}, 1),
		last:       map[int32]int64{},
		beyond:     map[int32]int64{},
	}
	for _, p := range gen.Assignments[g.config.Topic] {
		s.assigned = append(s.assigned, consumer.Position{Partition: int32(p.ID), Offset: -1}) //nolint:gosec // an int32 on the wire
	}
	slices.SortFunc(s.assigned, func(a, b consumer.Position) int { return cmp.Compare(a.Partition, b.Partition) })
	s.committing <- struct{}{}
	return s
}

// Generation implements [consumer.Session].
func (s *session) Generation() int32 { return s.generation }

// Assigned implements [consumer.Session].
func (s *session) Assigned() []consumer.Position { return slices.Clone(s.assigned) }

// current returns the newest view of the topic.
func (s *session) current() view {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view
}

// saw takes in a fresh view of the topic and tells the fetchers.
func (s *session) saw(v view) {
	s.mu.Lock()
	s.view = v
	follow := s.follow
	s.mu.Unlock()
	if follow != nil {
		follow(v)
	}
}

// refresh asks for a fresh view soon.
func (s *session) refresh() {
	select {
	case s.kick <- struct{}{}:
	default: // it is asked for already
	}
}

// fence makes every later commit fail.
func (s *session) fence(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fenced == nil {
		s.fenced = why
	}
}

// setBack lets commits of a partition go back to an offset. Until the log has grown again, what was read before is not
// committed any more.
func (s *session) setBack(partition int32, to, end int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[partition] = to
	s.beyond[partition] = end
}

// endsAt notes the log's end of a partition that was set back.
func (s *session) endsAt(partition int32, end int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beyond[partition] = end
}

// Times of the waits between tries.
const (
	leastWait = 100 * time.Millisecond
	mostWait  = 5 * time.Second
)

// insist calls try until it succeeds. It fails only when ctx ends.
func (s *session) insist(ctx context.Context, what string, try func() error) error {
	failures := grumbler{every: grumbleEvery}
	wait := backoff{least: leastWait, most: mostWait}
	for {
		err := try()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			return nil
		}
		if wait.tries > 0 && failures.loud() {
			s.log.WarnContext(ctx, "kafka cluster does not answer as hoped",
				slog.String("step", what), slog.String("error", s.group.explain(err).Error()))
		}
		if !pause(ctx, wait.next()) {
			return ctx.Err()
		}
	}
}

// open finds out where the assigned partitions are and where each is to be read from. It fails only when ctx ends.
func (s *session) open(ctx context.Context) error {
	err := s.insist(ctx, "look up the topic", func() error {
		v, err := s.client.topic(ctx)
		if err != nil {
			return err
		}
		if v.missing() && len(s.assigned) > 0 {
			s.group.metrics.missing.Set(1)
			return fmt.Errorf("topic %q: %w", s.group.config.Topic, kafkago.UnknownTopicOrPartition)
		}
		s.group.metrics.missing.Set(0)
		s.saw(v)
		return nil
	})
	if err != nil || len(s.assigned) == 0 {
		return err
	}
	var held map[int32]committed
	v := s.current()
	err = s.insist(ctx, "read the group's offsets", func() error {
		var err error
		held, err = s.client.commits(ctx, slices.Sorted(maps.Keys(v.leaders)))
		return err
	})
	if err != nil {
		return err
	}
	return s.place(ctx, v.id, held, len(v.leaders))
}

// place sets the position of every assigned partition.
func (s *session) place(ctx context.Context, id topicID, held map[int32]committed, count int) error {
	first := count // the number of partitions when the group first started
	stale := 0
	for p, c := range held {
		m, ok := parseMark(c.metadata)
		switch {
		case ok && m.id != id && m.id != topicID{} && id != topicID{}:
			// The commit is of an earlier topic of this name. Its number means nothing here.
			delete(held, p)
			stale++
		case ok:
			first = min(first, m.first)
		default:
			first = 0 // committed by somebody else: what has no commit may be new
		}
	}
	if stale > 0 {
		first = 0
		s.group.metrics.resets.WithLabelValues(resetRecreated).Add(float64(stale))
		s.log.ErrorContext(ctx, "kafka group holds offsets of a topic that was deleted and made again: it is read from its "+
			"beginning, what was not read of the old one is lost", slog.Int("partitions", stale))
	}
	s.mark = mark{id: id, first: first}.String()

	var early, late []int32
	for i := range s.assigned {
		position := &s.assigned[i]
		c, ok := held[position.Partition]
		switch {
		case ok:
			position.Offset = c.offset
			s.last[position.Partition] = c.offset // nobody commits yet
		case s.group.config.Start == Latest && int(position.Partition) < first:
			late = append(late, position.Partition)
		default:
			early = append(early, position.Partition)
		}
	}
	if err := s.begin(ctx, early, atStart); err != nil {
		return err
	}
	if err := s.begin(ctx, late, atEnd); err != nil {
		return err
	}
	if len(late) == 0 {
		return nil
	}
	// Without a commit, the next generation would begin at the end again, which has moved on by then.
	offsets := make(map[int32]int64, len(late))
	for _, position := range s.assigned {
		if slices.Contains(late, position.Partition) {
			offsets[position.Partition] = position.Offset
		}
	}
	return s.insist(ctx, "commit where the group begins", func() error {
		err := s.Commit(ctx, offsets)
		if errors.Is(err, consumer.ErrFenced) {
			s.log.WarnContext(ctx, "kafka group moved on before its start was committed")
			return nil
		}
		return err
	})
}

// begin places partitions at one end of their logs.
func (s *session) begin(ctx context.Context, partitions []int32, at int64) error {
	if len(partitions) == 0 {
		return nil
	}
	return s.insist(ctx, "find where the logs begin", func() error {
		v, err := s.client.topic(ctx)
		if err != nil {
			return err
		}
		s.saw(v)
		found, err := s.client.list(ctx, v.leaders, partitions, at)
		for i := range s.assigned {
			if offset, ok := found[s.assigned[i].Partition]; ok {
				s.assigned[i].Offset = offset
			}
		}
		return err
	})
}

// mark is what the metadata of a commit says, so that a later reader can tell what the offset belongs to.
type mark struct {
	id    topicID // the topic's own id: a topic of the same name that was made later has another
	first int     // how many partitions there were when the group first started
}

// markFormat is a mark's text. Its number grows when the meaning changes.
const markFormat = "spillway/1 %s %d"

func (m mark) String() string { return fmt.Sprintf(markFormat, hex.EncodeToString(m.id[:]), m.first) }

// parseMark reads a mark, and says whether it is one.
func parseMark(metadata string) (mark, bool) {
	var m mark
	var id string
	if n, err := fmt.Sscanf(metadata, markFormat, &id, &m.first); err != nil || n != 2 || m.first < 0 {
		return mark{}, false
	}
	raw, err := hex.DecodeString(id)
	if err != nil || len(raw) != len(m.id) {
		return mark{}, false
	}
	copy(m.id[:], raw)
	return m, true
}
