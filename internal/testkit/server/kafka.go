package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
)

// KafkaVersion is the release the tests run against; scripts/kafka/pom.xml names the same.
const KafkaVersion = "4.3.1"

// clusterID is any 22 characters that decode to 16 bytes.
const clusterID = "U3BpbGx3YXlUZXN0Tm9kZQ"

const kafkaProperties = `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{{.Host}}:{{.Controller}}
listeners=PLAINTEXT://{{.Host}}:{{.Port}},CONTROLLER://{{.Host}}:{{.Controller}}
advertised.listeners=PLAINTEXT://{{.Host}}:{{.Advertised}}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={{.Dir}}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=8
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=8
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
auto.create.topics.enable=false
log.cleaner.dedupe.buffer.size=16777216
# Tests shrink and compact logs on purpose and will not wait minutes for it.
log.cleaner.backoff.ms=500
log.retention.check.interval.ms=1000
log.initial.task.delay.ms=500
# A test may write records larger than the default of 1 MiB.
message.max.bytes=16777216
`

const kafkaLogging = `rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %c{1}: %m%n
logger.server.name=kafka.server
logger.server.level=info
`

// KafkaConfig says what node NewKafka prepares.
type KafkaConfig struct {
	Dir string // created; holds the data and the configuration
	Log string // file for what the node prints
	Lib string // folder with the jars
	// Fast lets the JVM compile less: it starts sooner and is slower later, which is right for tests and wrong for a
	// measurement.
	Fast bool
	// Advertised is the port that clients are told to come to; 0 is the node's own.
	Advertised int
}

// NewKafka formats one KRaft node, broker and controller in one process.
func NewKafka(ctx context.Context, config KafkaConfig) (Spec, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return Spec{}, err
	}
	dir, err := filepath.Abs(config.Dir)
	if err != nil {
		return Spec{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Spec{}, err
	}
	port, err := writeKafkaFiles(ctx, dir, config.Advertised)
	if err != nil {
		return Spec{}, err
	}
	spec := Spec{Kind: KindKafka, Dir: dir, Log: config.Log, Port: port}
	properties := filepath.Join(dir, "server.properties")
	jvm := []string{java, "-Xms128m", "-Xmx512m", "-XX:+UseSerialGC"}
	if config.Fast {
		jvm = append(jvm, "-XX:TieredStopAtLevel=1")
	}
	jvm = append(jvm, "-cp", filepath.Join(config.Lib, "*"), "-Dlog4j2.configurationFile="+filepath.Join(dir, "log4j2.properties"))

	tool := append([]string{"-XX:TieredStopAtLevel=1"}, jvm[1:]...)
	tool = append(tool, "kafka.tools.StorageTool", "format", "-t", clusterID, "-c", properties)
	format := exec.CommandContext(ctx, java, tool...)
	if output, err := format.CombinedOutput(); err != nil {
		return Spec{}, fmt.Errorf("format Kafka's storage: %w: %s", err, output)
	}
	spec.Argv = append(jvm, "kafka.Kafka", properties)
	return spec, nil
}

// writeKafkaFiles picks the node's ports, writes its configuration to dir, and returns the port for clients.
func writeKafkaFiles(ctx context.Context, dir string, advertised int) (int, error) {
	controller, err := FreePort(ctx)
	if err != nil {
		return 0, err
	}
	port := controller
	for port == controller {
		if port, err = FreePort(ctx); err != nil {
			return 0, err
		}
	}
	if advertised == 0 {
		advertised = port
	}
	var text strings.Builder
	values := map[string]string{
		"Host": Host, "Port": strconv.Itoa(port), "Advertised": strconv.Itoa(advertised),
		"Controller": strconv.Itoa(controller), "Dir": dir,
	}
	if err := template.Must(template.New("server.properties").Parse(kafkaProperties)).Execute(&text, values); err != nil {
		return 0, err
	}
	return port, errors.Join(
		os.WriteFile(filepath.Join(dir, "server.properties"), []byte(text.String()), 0o600),
		os.WriteFile(filepath.Join(dir, "log4j2.properties"), []byte(kafkaLogging), 0o600),
	)
}

// KafkaLib is where the services command keeps the jars that it resolved.
func KafkaLib() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "spillway", "kafka-"+KafkaVersion), nil
}
