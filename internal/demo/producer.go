package demo

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// producer writes orders at a steady rate, and remembers what Kafka has acknowledged: that is what must not be lost.
type producer struct {
	client *kgo.Client
	topic  string
	next   int // number of the next record; Run's goroutine alone uses it

	mu     sync.Mutex // guards what follows
	orders map[string]struct{}
	bad    []badRecord
	failed int
	err    error // of the first that failed
}

// badRecord is a record that can't become an order, where it stands and what it holds.
type badRecord struct {
	partition  int32
	offset     int64
	key, value []byte
}

func newProducer(brokers []string, topic string) (*producer, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic),
		kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	return &producer{client: client, topic: topic, orders: map[string]struct{}{}}, nil
}

// Run writes until ctx ends, then waits until all that was written is acknowledged or given up.
func (p *producer) Run(ctx context.Context) error {
	const beat = 50 * time.Millisecond
	tick := time.NewTicker(beat)
	defer tick.Stop()
	// What is under way when ctx ends is finished: the audit wants to know what became of it.
	writing := context.WithoutCancel(ctx)
	began := time.Now()
	for ctx.Err() == nil {
		// By the clock, not by the tick: a machine that stalls must not slow the story down.
		for due := int(time.Since(began).Seconds() * ratePerSec); p.next < due; {
			p.write(writing)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	flushing, cancel := context.WithTimeout(writing, 10*time.Second)
	defer cancel()
	if err := p.client.Flush(flushing); err != nil {
		return fmt.Errorf("producer: wait for the last acknowledgements: %w", err)
	}
	return nil
}

func (p *producer) write(ctx context.Context) {
	p.next++
	number := fmt.Sprintf("D%07d", p.next)
	r := &kgo.Record{Key: []byte(number), Value: orderValue(number, p.next)}
	good := p.next%badEvery != 0
	if !good {
		number = fmt.Sprintf("bad-%d", p.next)
		r = &kgo.Record{Key: []byte(number), Value: badValue(p.next / badEvery)}
	}
	p.client.Produce(ctx, r, func(r *kgo.Record, err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case err != nil:
			p.failed++
			if p.err == nil {
				p.err = err
			}
		case good:
			p.orders[number] = struct{}{}
		default:
			p.bad = append(p.bad, badRecord{partition: r.Partition, offset: r.Offset, key: r.Key, value: r.Value})
		}
	})
}

// orderValue is a payment of about valueSize bytes.
func orderValue(number string, n int) []byte {
	head := fmt.Sprintf(`{"order_no":%q,"amount":%d,"currency":"EUR","memo":"`, number, 100+n%9900)
	return []byte(head + strings.Repeat(".", max(0, valueSize-len(head)-2)) + `"}`)
}

// badValue is one of the ways in which a record can be wrong, in turn. The second is Kafka's null, the last is empty.
func badValue(n int) []byte {
	switch n % 4 {
	case 0:
		return []byte{0xff, 0xfe, 0x00, 'n', 'o', 't', ' ', 'J', 'S', 'O', 'N', 0x80}
	case 1:
		return nil
	case 2:
		return []byte(`{"amount":100,"currency":"EUR"}`)
	}
	return []byte{}
}

// close ends the connections. Run must have returned.
func (p *producer) close() { p.client.Close() }
