package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"spillway/consumer"
)

// fetchLoop asks one broker, one request at a time. A large response is handed over while the next request is under way:
// else the broker would be idle meanwhile. That goes for one response at a time, so that at most two are in memory.
type fetchLoop struct {
	fetcher *fetcher
	node    int32
	buffers [][]byte // of responses that were handed over, reused
	wait    backoff
	lull    backoff // of answers that come at once and bring nothing
	grumble grumbler
	handing chan handed // tells when the response that is handed over in the background is; nil while none is

	// Of the goroutine that hands over.
	decoder *decoder
	answers map[int32]*kmsg.FetchResponseTopicPartition
}

// handed is a response that was handed over.
type handed struct {
	bytes    []byte
	quick    bool // it came long before the broker had to answer
	progress bool // something was read
	throttle time.Duration
}

func newFetchLoop(f *fetcher, node int32) *fetchLoop {
	config := &f.session.group.config
	return &fetchLoop{
		fetcher: f, node: node,
		decoder: newDecoder(config.Topic, config.Isolation == ReadCommitted, config.MaxBatchBytes),
		wait:    backoff{least: leastWait, most: mostWait},
		lull:    backoff{least: 5 * time.Millisecond, most: config.MaxWait},
		grumble: grumbler{every: grumbleEvery},
		answers: map[int32]*kmsg.FetchResponseTopicPartition{},
	}
}

// responseSlack is what a fetch response takes beside the batches, for any number of partitions.
const responseSlack = 4 << 20

// askBytes bounds what one request asks for, whatever was granted: a larger response takes memory and is no faster. Who
// gets nothing of it is asked for first the next time.
const askBytes = 8 << 20

// largeResponse is the size from which on handing over takes about as long as a round trip to the broker, or longer.
const largeResponse = 256 << 10

// keepResponse is the largest buffer kept from one response to the next: what one usually takes, heads and all.
const keepResponse = askBytes + 1<<20

// round sends one request for the granted partitions and hands over what came, or begins to. short says that some
// partitions that could be asked for are not, so that the broker should not hold the request for long.
func (l *fetchLoop) round(ctx context.Context, grants []consumer.Grant, short bool) {
	s := l.fetcher.session
	config := &s.group.config
	hold := config.MaxWait
	if short {
		hold /= 5
	}
	request, total := l.request(grants, hold)
	asking, cancel := context.WithTimeout(ctx, hold+config.CallTimeout)
	defer cancel()
	began := time.Now()
	s.group.metrics.fetches.Inc()
	a, err := s.client.send(asking, l.node, exchange{
		request: request, newest: fetchVersion, limit: total + config.MaxBatchBytes + responseSlack,
		buffer: l.takeBuffer(), // not used again if the request is given up: it may still be written to
	})
	var response *kmsg.FetchResponse
	if err == nil {
		response, err = asFetch(a)
	}
	if err != nil {
		for _, g := range grants {
			l.fetcher.feed.Release(g)
		}
		l.broken(ctx, err)
		return
	}
	l.wait.reset()
	l.grumble.hush()
	s.group.metrics.bytes.Add(float64(len(a.bytes)))
	h := handed{
		bytes: a.bytes, quick: time.Since(began) < hold/2,
		throttle: time.Duration(response.ThrottleMillis) * time.Millisecond,
	}
	l.settle(ctx)
	l.handOver(ctx, grants, response, h)
}

// takeBuffer returns a buffer for the next response, nil if there is none.
func (l *fetchLoop) takeBuffer() []byte {
	n := len(l.buffers)
	if n == 0 {
		return nil
	}
	b := l.buffers[n-1]
	l.buffers = l.buffers[:n-1]
	return b
}

// settle waits until nothing is handed over in the background.
func (l *fetchLoop) settle(ctx context.Context) {
	if l.handing != nil {
		h := <-l.handing
		l.handing = nil
		l.finish(ctx, h)
	}
}

// finish takes the buffer back, and waits where the next request would come too soon.
func (l *fetchLoop) finish(ctx context.Context, h handed) {
	if cap(h.bytes) <= keepResponse {
		l.buffers = append(l.buffers, h.bytes)
	}
	switch {
	case h.throttle > 0:
		pause(ctx, h.throttle)
	case h.progress:
		l.lull.reset()
	case h.quick:
		pause(ctx, l.lull.next())
	}
}

// asFetch takes the fetch response out of an answer.
func asFetch(a *answer) (*kmsg.FetchResponse, error) {
	response, ok := a.Response.(*kmsg.FetchResponse)
	if !ok {
		return nil, fmt.Errorf("the broker answers with %T", a.Response)
	}
	if response.ErrorCode != 0 {
		return nil, kafkago.Error(response.ErrorCode)
	}
	return response, nil
}

// request makes the fetch request, and says how many bytes it asks for.
func (l *fetchLoop) request(grants []consumer.Grant, hold time.Duration) (*kmsg.FetchRequest, int) {
	config := &l.fetcher.session.group.config
	request := kmsg.NewPtrFetchRequest()
	request.ReplicaID = -1
	request.MaxWaitMillis = int32(hold.Milliseconds()) //nolint:gosec // at most an hour
	request.MinBytes = 1
	request.SessionEpoch = -1
	if config.Isolation == ReadCommitted {
		request.IsolationLevel = 1
	}
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = config.Topic
	total := 0
	for _, g := range grants {
		want := max(g.Bytes, 1)
		if p := l.fetcher.partition(g.Partition); p != nil {
			want = max(int32(float64(want)/p.ratio), 1)
		}
		partition := kmsg.NewFetchRequestTopicPartition()
		partition.Partition, partition.FetchOffset, partition.PartitionMaxBytes = g.Partition, g.Offset, want
		topic.Partitions = append(topic.Partitions, partition)
		total += int(want)
	}
	request.Topics = append(request.Topics, topic)
	request.MaxBytes = int32(min(total, askBytes))
	return request, total
}

// broken reports a request that failed as a whole, and waits a little.
func (l *fetchLoop) broken(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s := l.fetcher.session
	s.group.metrics.errors.WithLabelValues(errorNetwork).Inc()
	if l.wait.tries > 0 && l.grumble.loud() {
		s.log.WarnContext(ctx, "kafka broker does not answer fetches",
			slog.Int("broker", int(l.node)), slog.String("error", s.group.explain(err).Error()))
	}
	s.refresh()
	pause(ctx, l.wait.next())
}

// handOver gives every granted partition its part of the response. Of a large one it does so in the background with what
// brought records, and at once with the rest, which may be asked for again meanwhile. Nothing else is being handed over.
func (l *fetchLoop) handOver(ctx context.Context, grants []consumer.Grant, response *kmsg.FetchResponse, h handed) {
	clear(l.answers)
	for i := range response.Topics {
		for j := range response.Topics[i].Partitions {
			answer := &response.Topics[i].Partitions[j]
			l.answers[answer.Partition] = answer
		}
	}
	large := len(h.bytes) >= largeResponse && h.throttle == 0
	first := grants[0].Partition
	var later []consumer.Grant
	for _, g := range grants {
		if answer := l.answers[g.Partition]; large && answer != nil && len(answer.RecordBatches) > 0 {
			later = append(later, g)
		} else {
			h.progress = l.give(ctx, g, g.Partition == first) || h.progress
		}
	}
	if len(later) == 0 {
		l.finish(ctx, h)
		return
	}
	done := make(chan handed, 1)
	l.handing = done
	go func() {
		for _, g := range later {
			h.progress = l.give(ctx, g, g.Partition == first) || h.progress
		}
		done <- h
	}()
}

// give gives one partition its part of the response, and reports whether anything was read. Whatever goes wrong is noted
// before the grant comes back: from then on the partition may be asked for again.
func (l *fetchLoop) give(ctx context.Context, g consumer.Grant, first bool) bool {
	p, answer := l.fetcher.partition(g.Partition), l.answers[g.Partition]
	if p == nil || answer == nil {
		l.fetcher.feed.Release(g)
		return false
	}
	switch code := kafkago.Error(answer.ErrorCode); {
	case code == 0:
		return l.read(ctx, p, g, answer, first)
	case errors.Is(code, kafkago.OffsetOutOfRange):
		l.stray(ctx, p, g.Offset)
	default:
		kind := errorBroker
		if leaderMoved(code) {
			kind = errorLeader
		}
		l.fetcher.session.refresh()
		l.fetcher.failed(ctx, p, kind, mostWait, code)
	}
	l.fetcher.feed.Release(g)
	return false
}

// leaderMoved reports whether a code says that somebody else has the partition now, or nobody.
func leaderMoved(code kafkago.Error) bool {
	return code == kafkago.NotLeaderForPartition || code == kafkago.LeaderNotAvailable ||
		code == kafkago.UnknownTopicOrPartition || code == kafkago.ReplicaNotAvailable ||
		code == kafkago.FencedLeaderEpoch || code == kafkago.UnknownLeaderEpoch || code == kafkago.UnknownTopicID
}

// corruptWait bounds the waits between tries to read a batch that can't be decoded.
const corruptWait = 30 * time.Second

// read decodes what came for one partition and delivers it. It reports whether the position moved.
func (l *fetchLoop) read(
	ctx context.Context, p *partition, g consumer.Grant, answer *kmsg.FetchResponseTopicPartition, first bool,
) bool {
	out, err := l.decoder.decode(portion{
		partition: p.id, offset: g.Offset, bytes: int(g.Bytes), raw: answer.RecordBatches, aborted: answer.AbortedTransactions,
	})
	moved := out.next != g.Offset
	if err == nil && out.partial && !moved && first {
		err = at(p.id, g.Offset, fmt.Errorf("%w: it is cut off although it was asked for first", errCorrupt))
	}
	end := answer.HighWatermark
	if l.decoder.committed {
		end = answer.LastStableOffset
	}
	l.fetcher.mu.Lock()
	p.more = err == nil && out.next < end
	p.hungry = p.more && !moved
	if out.wire > 0 {
		p.ratio = max(1, 0.7*p.ratio+0.3*float64(out.size)/float64(out.wire))
	}
	l.fetcher.mu.Unlock()
	if p.setBack {
		l.fetcher.session.endsAt(p.id, answer.HighWatermark)
	}
	if err != nil {
		l.fetcher.session.group.metrics.corrupt.Inc()
		l.fetcher.failed(ctx, p, errorCorrupt, corruptWait, err)
	} else {
		l.fetcher.succeeded(ctx, p)
	}
	if !moved && answer.HighWatermark == p.highWater {
		l.fetcher.feed.Release(g)
		return false
	}
	l.fetcher.mu.Lock()
	p.highWater = answer.HighWatermark
	l.fetcher.mu.Unlock()
	l.fetcher.session.group.metrics.records.Add(float64(len(out.messages)))
	l.fetcher.feed.Deliver(consumer.Batch{
		Partition: p.id, Grant: g.Bytes, Messages: out.messages, Next: out.next, HighWater: answer.HighWatermark,
	})
	return moved
}

// stray deals with a position that is not in the log. The first time it only looks again: a leader that has just
// changed may not know its log's end yet, and a topic that was made anew is the watcher's to notice.
func (l *fetchLoop) stray(ctx context.Context, p *partition, offset int64) {
	s := l.fetcher.session
	l.fetcher.mu.Lock()
	p.strays++
	again := p.strays > 1
	l.fetcher.mu.Unlock()
	err := error(kafkago.OffsetOutOfRange)
	if again {
		var start, end int64
		if start, end, err = l.span(ctx, p.id); err == nil {
			if l.reset(ctx, p, offset, start, end) {
				l.fetcher.succeeded(ctx, p)
				return
			}
			err = kafkago.OffsetOutOfRange
		}
	}
	s.refresh()
	l.fetcher.failed(ctx, p, errorRange, mostWait, err)
}

// span asks the partition's leader for both ends of its log.
func (l *fetchLoop) span(ctx context.Context, id int32) (start, end int64, err error) {
	client, leaders := l.fetcher.session.client, map[int32]int32{id: l.node}
	starts, errStart := client.list(ctx, leaders, []int32{id}, atStart)
	ends, errEnd := client.list(ctx, leaders, []int32{id}, atEnd)
	return starts[id], ends[id], errors.Join(errStart, errEnd)
}

// reset moves a position that is not in the log into it, loudly, and reports whether it had to.
func (l *fetchLoop) reset(ctx context.Context, p *partition, offset, start, end int64) bool {
	s := l.fetcher.session
	attrs := []any{
		slog.Int("partition", int(p.id)), slog.Int64("offset", offset),
		slog.Int64("log_start", start), slog.Int64("log_end", end),
	}
	switch {
	case offset < start:
		s.group.metrics.lost.Add(float64(start - offset))
		s.group.metrics.resets.WithLabelValues(resetExpired).Inc()
		s.log.ErrorContext(ctx, "kafka records were deleted before they were read: they are lost to this worker",
			append(attrs, slog.Int64("lost", start-offset))...)
		l.fetcher.feed.Lost(consumer.Gap{
			Partition: p.id, From: offset, To: start, Why: "the log begins later: retention deleted the records",
		})
	case offset > end:
		to := start
		if s.group.config.Start == Latest {
			to = end
		}
		s.group.metrics.resets.WithLabelValues(resetBeyond).Inc()
		s.log.ErrorContext(ctx, "kafka log ends before the position: it was truncated or made anew",
			append(attrs, slog.Int64("continues_at", to))...)
		l.fetcher.mu.Lock()
		p.setBack = true
		l.fetcher.mu.Unlock()
		s.setBack(p.id, to, end)
		l.fetcher.feed.Lost(consumer.Gap{
			Partition: p.id, From: offset, To: to, Why: "the log ends earlier: it was truncated or made anew",
		})
	default:
		return false
	}
	return true
}
