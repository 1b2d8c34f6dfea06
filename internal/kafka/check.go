package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	kafkago "github.com/segmentio/kafka-go"
)

// errAuthentication says that the cluster refused who we say we are.
var errAuthentication = errors.New("SASL authentication was refused: see the mechanism, the username and the password")

// explain makes an error say what is the matter where the driver's own words do not. It never holds a secret.
func (g *Group) explain(err error) error {
	if g.config.SASL.Mechanism == "" {
		return err
	}
	refused := errors.Is(err, kafkago.SASLAuthenticationFailed) || errors.Is(err, kafkago.UnsupportedSASLMechanism) ||
		errors.Is(err, kafkago.IllegalSASLState)
	switch {
	case refused:
		return fmt.Errorf("%w: %w", errAuthentication, err)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		// Some brokers close the connection instead of answering.
		return fmt.Errorf("the broker closed the connection, which may mean that SASL authentication was refused: %w", err)
	}
	return err
}

// Check says whether the worker could consume now: a broker can be reached, it lets us in, and the topic exists with a
// leader for every partition. It uses a connection of its own, which it closes, and creates nothing.
func (g *Group) Check(ctx context.Context) error {
	client, err := newClient(&g.config)
	if err != nil {
		return err
	}
	defer client.close()
	v, err := client.topic(ctx)
	if err != nil {
		return fmt.Errorf("kafka: %w", g.explain(err))
	}
	if v.missing() {
		return fmt.Errorf("kafka: topic %q does not exist", g.config.Topic)
	}
	without := 0
	for _, node := range v.leaders {
		if node == anyNode {
			without++
		}
	}
	if without > 0 {
		return fmt.Errorf("kafka: %d of %d partitions of topic %q have no leader", without, len(v.leaders), g.config.Topic)
	}
	return nil
}

// Ends returns the log end offset of every partition of the topic, whoever owns it and whether or not it is paused.
// With an error it still returns what could be found out.
func (g *Group) Ends(ctx context.Context) (map[int32]int64, error) {
	g.mu.Lock()
	client := g.client
	g.mu.Unlock()
	if client == nil {
		own, err := newClient(&g.config)
		if err != nil {
			return nil, err
		}
		defer own.close()
		client = own
	}
	v, err := client.topic(ctx)
	if err == nil && v.missing() {
		err = fmt.Errorf("topic %q does not exist", g.config.Topic)
	}
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", g.explain(err))
	}
	ends, err := client.list(ctx, v.leaders, slices.Sorted(maps.Keys(v.leaders)), atEnd)
	if err != nil {
		return ends, fmt.Errorf("kafka: %w", err)
	}
	return ends, nil
}
