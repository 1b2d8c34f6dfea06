// Command topic creates a topic on the test broker, or on the one that SPILLWAY_KAFKA_BROKERS names. Run it through
// scripts/topic.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "topic:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	brokers := os.Getenv("SPILLWAY_KAFKA_BROKERS")
	if brokers == "" {
		brokers = os.Getenv("SPILLWAY_TEST_KAFKA")
	}
	partitions := 0
	if len(args) == 2 {
		partitions, _ = strconv.Atoi(args[1]) // what is no number is refused with the rest
	}
	if brokers == "" || partitions < 1 || partitions > 1000 {
		return fmt.Errorf(`want scripts/topic NAME PARTITIONS (1 to 1000), after eval "$(scripts/services env)"`)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(brokers, ",")...))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err = kadm.NewClient(client).CreateTopic(ctx, int32(partitions), -1, nil, args[0])
	return err
}
