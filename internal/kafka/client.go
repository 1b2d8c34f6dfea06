package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Newest versions of the requests we send. Each is one that a Kafka 2.4 broker and a 4.x one both speak.
const (
	fetchVersion       = 11
	listVersion        = 5
	metadataVersion    = 12 // 10 and later tell the topic's id; asked for only where the broker has it
	commitVersion      = 7
	offsetFetchVersion = 5
	coordinatorVersion = 2
	heartbeatVersion   = 3
	leaveVersion       = 2
)

// anyNode routes a request to whichever broker there is.
const anyNode int32 = -1

// Timestamps that ListOffsets takes for the two ends of a log.
const (
	atStart int64 = -2
	atEnd   int64 = -1
)

// smallResponse bounds every response but a fetch's.
const smallResponse = 16 << 20

// client sends our requests. It is safe for concurrent use.
type client struct {
	transport *kafkago.Transport
	address   net.Addr
	config    *Config

	// coordinator is the broker that keeps our group, anyNode while unknown.
	coordinator atomic.Int32
}

// newClient makes a client with a transport of its own, which holds connections until close.
func newClient(config *Config) (*client, error) {
	mechanism, err := config.SASL.mechanism()
	if err != nil {
		return nil, err
	}
	c := &client{
		transport: &kafkago.Transport{
			Dial:           config.Dial,
			DialTimeout:    config.DialTimeout,
			ClientID:       config.ClientID,
			MetadataTopics: []string{config.Topic},
			TLS:            config.TLS,
			SASL:           mechanism,
		},
		address: kafkago.TCP(config.Brokers...),
		config:  config,
	}
	c.coordinator.Store(anyNode)
	return c, nil
}

// close ends the connections that are idle, and the others once they are.
func (c *client) close() { c.transport.CloseIdleConnections() }

// send sends one request to a broker. The response's byte slices live as long as the answer's bytes are left alone.
func (c *client) send(ctx context.Context, node int32, e exchange) (*answer, error) {
	e.clientID = c.config.ClientID
	var message kafkago.Request = &e
	if node != anyNode {
		message = &routed{exchange: e, node: node}
	}
	response, err := c.transport.RoundTrip(ctx, c.address, message)
	if err != nil {
		return nil, err
	}
	a, ok := response.(*answer)
	if !ok {
		return nil, fmt.Errorf("the transport answers with %T", response)
	}
	return a, nil
}

// call sends one small request under the call timeout.
func call[R kmsg.Response](ctx context.Context, c *client, node int32, e exchange) (R, error) {
	var none R
	ctx, cancel := context.WithTimeout(ctx, c.config.CallTimeout)
	defer cancel()
	e.limit = smallResponse
	a, err := c.send(ctx, node, e)
	if err != nil {
		return none, err
	}
	response, ok := a.Response.(R)
	if !ok {
		return none, fmt.Errorf("the broker answers with %T", a.Response)
	}
	return response, nil
}

// topicID is Kafka's own id of a topic: a topic that is deleted and made again has another one. Zero where the broker
// is too old to tell.
type topicID [16]byte

// view is what the cluster says of the topic.
type view struct {
	id      topicID
	leaders map[int32]int32 // partition → broker, anyNode while it has no leader
}

// missing reports whether the cluster does not know the topic.
func (v *view) missing() bool { return len(v.leaders) == 0 }

// topic asks any broker for the topic. An unknown topic is an empty view and no error; nothing is ever created.
func (c *client) topic(ctx context.Context) (view, error) {
	request := kmsg.NewPtrMetadataRequest()
	wanted := kmsg.NewMetadataRequestTopic()
	wanted.Topic = &c.config.Topic
	request.Topics = append(request.Topics, wanted)
	response, err := call[*kmsg.MetadataResponse](ctx, c, anyNode, exchange{request: request, newest: metadataVersion, probe: true})
	if err != nil {
		return view{}, fmt.Errorf("look up topic %q: %w", c.config.Topic, err)
	}
	for i := range response.Topics {
		topic := &response.Topics[i]
		if topic.Topic == nil || *topic.Topic != c.config.Topic {
			continue
		}
		code := kafkago.Error(topic.ErrorCode)
		if code == kafkago.UnknownTopicOrPartition || code == kafkago.UnknownTopicID {
			return view{}, nil
		}
		if code != 0 && code != kafkago.LeaderNotAvailable {
			return view{}, fmt.Errorf("look up topic %q: %w", c.config.Topic, code)
		}
		v := view{id: topic.TopicID, leaders: make(map[int32]int32, len(topic.Partitions))}
		for _, p := range topic.Partitions {
			v.leaders[p.Partition] = max(p.Leader, anyNode)
		}
		return v, nil
	}
	return view{}, fmt.Errorf("look up topic %q: the broker's answer leaves it out", c.config.Topic)
}

// list asks the leaders for one end of each partition's log. Partitions that could not be asked are left out and named
// by the error.
func (c *client) list(ctx context.Context, leaders map[int32]int32, partitions []int32, at int64) (map[int32]int64, error) {
	byNode := map[int32][]int32{}
	var failed []error
	for _, p := range partitions {
		if node, ok := leaders[p]; !ok || node == anyNode {
			failed = append(failed, fmt.Errorf("partition %d: %w", p, kafkago.LeaderNotAvailable))
		} else {
			byNode[node] = append(byNode[node], p)
		}
	}
	found := make(map[int32]int64, len(partitions))
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		if err := c.listNode(ctx, node, byNode[node], at, found); err != nil {
			failed = append(failed, err)
		}
	}
	return found, errors.Join(failed...)
}

// listNode asks one broker for one end of some logs and adds them to found.
func (c *client) listNode(ctx context.Context, node int32, partitions []int32, at int64, found map[int32]int64) error {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = c.config.Topic
	for _, p := range partitions {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = p, at
		topic.Partitions = append(topic.Partitions, partition)
	}
	request.Topics = append(request.Topics, topic)
	response, err := call[*kmsg.ListOffsetsResponse](ctx, c, node, exchange{request: request, newest: listVersion})
	if err != nil {
		return fmt.Errorf("ask broker %d for offsets: %w", node, err)
	}
	var failed []error
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				failed = append(failed, fmt.Errorf("offsets of partition %d: %w", p.Partition, kafkago.Error(p.ErrorCode)))
				continue
			}
			found[p.Partition] = p.Offset
		}
	}
	return errors.Join(failed...)
}

// groupNode returns the group's coordinator, which it looks up if it is not known.
func (c *client) groupNode(ctx context.Context) (int32, error) {
	if node := c.coordinator.Load(); node != anyNode {
		return node, nil
	}
	request := kmsg.NewPtrFindCoordinatorRequest()
	request.CoordinatorKey = c.config.Group
	response, err := call[*kmsg.FindCoordinatorResponse](ctx, c, anyNode, exchange{request: request, newest: coordinatorVersion})
	if err == nil && response.ErrorCode != 0 {
		err = kafkago.Error(response.ErrorCode)
	}
	if err != nil {
		return anyNode, fmt.Errorf("look up the coordinator of group %q: %w", c.config.Group, err)
	}
	c.coordinator.Store(response.NodeID)
	return response.NodeID, nil
}

// groupCall sends one request to the group's coordinator. Any error makes it look for the coordinator anew.
func groupCall[R kmsg.Response](ctx context.Context, c *client, e exchange) (R, error) {
	var none R
	node, err := c.groupNode(ctx)
	if err != nil {
		return none, err
	}
	response, err := call[R](ctx, c, node, e)
	if err != nil {
		c.coordinator.CompareAndSwap(node, anyNode)
	}
	return response, err
}

// misplaced makes the client look for the coordinator anew if a code says that it has moved.
func (c *client) misplaced(code kafkago.Error) {
	if code == kafkago.NotCoordinatorForGroup || code == kafkago.GroupCoordinatorNotAvailable {
		c.coordinator.Store(anyNode)
	}
}

// heartbeat tells the coordinator that the member lives. The code is kafkago.RebalanceInProgress while the group waits
// for it to come back.
func (c *client) heartbeat(ctx context.Context, generation int32, member string) error {
	request := kmsg.NewPtrHeartbeatRequest()
	request.Group, request.Generation, request.MemberID = c.config.Group, generation, member
	response, err := groupCall[*kmsg.HeartbeatResponse](ctx, c, exchange{request: request, newest: heartbeatVersion})
	if err != nil {
		return err
	}
	if code := kafkago.Error(response.ErrorCode); code != 0 {
		c.misplaced(code)
		return code
	}
	return nil
}

// leave takes a member out of the group.
func (c *client) leave(ctx context.Context, member string) error {
	request := kmsg.NewPtrLeaveGroupRequest()
	request.Group, request.MemberID = c.config.Group, member
	response, err := groupCall[*kmsg.LeaveGroupResponse](ctx, c, exchange{request: request, newest: leaveVersion})
	if err == nil && response.ErrorCode != 0 {
		err = kafkago.Error(response.ErrorCode)
	}
	return err
}

// committed is what the group holds of one partition.
type committed struct {
	offset   int64
	metadata string
}

// commits asks for what the group has committed. Partitions without a commit are left out.
func (c *client) commits(ctx context.Context, partitions []int32) (map[int32]committed, error) {
	request := kmsg.NewPtrOffsetFetchRequest()
	request.Group = c.config.Group
	topic := kmsg.NewOffsetFetchRequestTopic()
	topic.Topic, topic.Partitions = c.config.Topic, partitions
	request.Topics = append(request.Topics, topic)
	response, err := groupCall[*kmsg.OffsetFetchResponse](ctx, c, exchange{request: request, newest: offsetFetchVersion})
	if err == nil && response.ErrorCode != 0 {
		c.misplaced(kafkago.Error(response.ErrorCode))
		err = kafkago.Error(response.ErrorCode)
	}
	if err != nil {
		return nil, fmt.Errorf("read the offsets of group %q: %w", c.config.Group, err)
	}
	found := make(map[int32]committed, len(partitions))
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return nil, fmt.Errorf("read the offset of group %q, partition %d: %w",
					c.config.Group, p.Partition, kafkago.Error(p.ErrorCode))
			}
			if p.Offset < 0 {
				continue
			}
			metadata := ""
			if p.Metadata != nil {
				metadata = *p.Metadata
			}
			found[p.Partition] = committed{p.Offset, metadata}
		}
	}
	return found, nil
}

// temporary reports whether a later try may get another answer: every error of the network may, and the codes of a
// cluster that is moving things about.
func temporary(err error) bool {
	if code, ok := errors.AsType[kafkago.Error](err); ok {
		return code.Temporary() || code == kafkago.BrokerNotAvailable
	}
	return true
}

// pause waits for d, or less if ctx ends first, and reports whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
