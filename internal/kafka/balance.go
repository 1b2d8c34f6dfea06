package kafka

import (
	"encoding/binary"
	"sync"

	kafkago "github.com/segmentio/kafka-go"
)

// balancer is kafka-go's, and remembers what it dealt out.
//
// Its user data is part of what a member joins with. A member that comes back with other user data makes the
// coordinator rebalance even when it is not the group's leader; with the same data, a follower would be handed its old
// assignment again and new partitions would stay unread.
type balancer struct {
	kafkago.GroupBalancer
	topic string

	mu    sync.Mutex // guards what follows
	seen  uint32     // partitions the watcher saw when it last ended a generation
	dealt int        // partitions dealt out by the last AssignGroups
	led   bool       // whether AssignGroups was called since the last take
}

// UserData implements kafkago.GroupBalancer.
func (b *balancer) UserData() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen == 0 {
		return nil, nil
	}
	return binary.BigEndian.AppendUint32(nil, b.seen), nil
}

// AssignGroups implements kafkago.GroupBalancer. Only the group's leader is asked.
func (b *balancer) AssignGroups(members []kafkago.GroupMember, partitions []kafkago.Partition) kafkago.GroupMemberAssignments {
	count := 0
	for i := range partitions {
		if partitions[i].Topic == b.topic {
			count++
		}
	}
	b.mu.Lock()
	b.dealt, b.led = count, true
	b.mu.Unlock()
	return b.GroupBalancer.AssignGroups(members, partitions)
}

// changed notes that the topic has another number of partitions, for the next join.
func (b *balancer) changed(count int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = uint32(max(count, 0)) //nolint:gosec // partitions are numbered with 32 bits
}

// take returns how many partitions were dealt out for the generation that begins, if this member was the one to deal.
func (b *balancer) take() (dealt int, led bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	dealt, led = b.dealt, b.led
	b.dealt, b.led = 0, false
	return dealt, led
}
