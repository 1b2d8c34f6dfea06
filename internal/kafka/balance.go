package kafka

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	kafkago "github.com/segmentio/kafka-go"
)

// share is what one member knows of how its topic is divided: what it tells the group when it joins, and what it dealt
// out as the group's leader. It is safe for concurrent use.
type share struct {
	topic string

	mu    sync.Mutex // guards what follows
	seen  uint32     // partitions the watcher saw when it last ended a generation
	claim []byte     // the holding that the next join tells of, encoded
	dealt int        // partitions dealt out by the last AssignGroups
	led   bool       // whether AssignGroups was called since the last take
}

// balancers are the strategies a member offers, the best one first. The coordinator takes the one that most members put
// first among those that all offer, so a member that offers Sticky also offers what versions before it have.
func (s *share) balancers(b Balance) ([]kafkago.GroupBalancer, error) {
	switch b {
	case Sticky:
		return []kafkago.GroupBalancer{stickyBalancer{s}, plainBalancer{kafkago.RangeGroupBalancer{}, s}}, nil
	case Range:
		return []kafkago.GroupBalancer{plainBalancer{kafkago.RangeGroupBalancer{}, s}}, nil
	case RoundRobin:
		return []kafkago.GroupBalancer{plainBalancer{kafkago.RoundRobinGroupBalancer{}, s}}, nil
	}
	return nil, fmt.Errorf("kafka: balance %q: want %s, %s or %s", string(b), Sticky, Range, RoundRobin)
}

// changed notes that the topic has another number of partitions, for the next join.
func (s *share) changed(count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = uint32(max(count, 0)) //nolint:gosec // partitions are numbered with 32 bits
}

// hold notes what the member held in the generation that ends, for the next join.
func (s *share) hold(h holding) {
	claim := h.encode()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claim = claim
}

// take returns how many partitions were dealt out for the generation that begins, if this member was the one to deal.
func (s *share) take() (dealt int, led bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dealt, led = s.dealt, s.led
	s.dealt, s.led = 0, false
	return dealt, led
}

// deals notes a division made.
func (s *share) deals(all []kafkago.Partition) {
	n := len(idsOf(s.topic, all))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dealt, s.led = n, true
}

// idsOf returns a topic's partitions in ascending order.
func idsOf(topic string, all []kafkago.Partition) []int32 {
	var ids []int32
	for i := range all {
		if all[i].Topic == topic {
			ids = append(ids, int32(all[i].ID)) //nolint:gosec // an int32 on the wire
		}
	}
	slices.Sort(ids)
	return ids
}

// plainBalancer is one of kafka-go's. It moves partitions whenever the membership changes.
//
// Its user data is part of what a member joins with. A member that comes back with other user data makes the
// coordinator rebalance even when it is not the group's leader; with the same data, a follower would be handed its old
// assignment again and new partitions would stay unread.
type plainBalancer struct {
	kafkago.GroupBalancer
	share *share
}

// UserData implements kafkago.GroupBalancer.
func (b plainBalancer) UserData() ([]byte, error) {
	b.share.mu.Lock()
	defer b.share.mu.Unlock()
	if b.share.seen == 0 {
		return nil, nil
	}
	return binary.BigEndian.AppendUint32(nil, b.share.seen), nil
}

// AssignGroups implements kafkago.GroupBalancer. Only the group's leader is asked.
func (b plainBalancer) AssignGroups(members []kafkago.GroupMember, partitions []kafkago.Partition) kafkago.GroupMemberAssignments {
	b.share.deals(partitions)
	return b.GroupBalancer.AssignGroups(members, partitions)
}

// stickyBalancer leaves partitions where they are as far as balance allows: see deal. Its user data says what the member
// held last.
type stickyBalancer struct{ share *share }

// stickyName is the protocol's name in the group. It changes when members of two versions would not divide alike.
const stickyName = "spillway-sticky"

// ProtocolName implements kafkago.GroupBalancer.
func (stickyBalancer) ProtocolName() string { return stickyName }

// UserData implements kafkago.GroupBalancer.
func (b stickyBalancer) UserData() ([]byte, error) {
	b.share.mu.Lock()
	defer b.share.mu.Unlock()
	return b.share.claim, nil
}

// AssignGroups implements kafkago.GroupBalancer. Only the group's leader is asked. A group has one topic, but while its
// workers are moved to another one it has two: each is dealt among those that subscribe to it.
func (b stickyBalancer) AssignGroups(members []kafkago.GroupMember, partitions []kafkago.Partition) kafkago.GroupMemberAssignments {
	b.share.deals(partitions)
	claims := map[string][]claim{} // by topic
	assignments := make(kafkago.GroupMemberAssignments, len(members))
	for _, m := range members {
		assignments[m.ID] = map[string][]int{}
		for _, topic := range slices.Compact(slices.Sorted(slices.Values(m.Topics))) {
			claims[topic] = append(claims[topic], claim{member: m.ID, holding: decodeHolding(m.UserData)})
		}
	}
	for topic, claims := range claims {
		for i, mine := range deal(claims, idsOf(topic, partitions)) {
			list := make([]int, len(mine))
			for j, id := range mine {
				list[j] = int(id)
			}
			assignments[claims[i].member][topic] = list
		}
	}
	return assignments
}
