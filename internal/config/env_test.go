package config

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestBrokersFromTheEnvironmentAreTrimmed(t *testing.T) {
	t.Parallel()
	c := mustParse(t, minimal(t), "SPILLWAY_KAFKA_BROKERS= a:9092 , b:9092 ,")
	if want := []string{"a:9092", "b:9092"}; !slices.Equal(c.Kafka.Brokers, want) {
		t.Errorf("brokers %q, want %q", c.Kafka.Brokers, want)
	}
	c = mustParse(t, strings.Replace(minimal(t), "[127.0.0.1:9092]", "\" a:9092 , b:9092 ,\"", 1))
	if want := []string{"a:9092", "b:9092"}; !slices.Equal(c.Kafka.Brokers, want) {
		t.Errorf("from the file: brokers %q, want %q", c.Kafka.Brokers, want)
	}
}

func TestFalseFromTheEnvironmentTurnsItOff(t *testing.T) {
	t.Parallel()
	on := strings.Replace(minimal(t), "kafka:", "kafka:\n  tls: {enabled: yes}", 1)
	if !mustParse(t, on).Kafka.TLS.Enabled {
		t.Fatal("yes in the file does not turn it on")
	}
	for _, text := range []string{"False", "false", "FALSE", "0", "no", "Off", " false "} {
		if mustParse(t, on, "SPILLWAY_KAFKA_TLS_ENABLED="+text).Kafka.TLS.Enabled {
			t.Errorf("%q leaves it on", text)
		}
	}
	for _, text := range []string{"True", "1", "yes", "on"} {
		if !mustParse(t, minimal(t), "SPILLWAY_KAFKA_TLS_ENABLED="+text).Kafka.TLS.Enabled {
			t.Errorf("%q leaves it off", text)
		}
	}
}

func TestAnEmptyVariableIsNotSet(t *testing.T) {
	t.Parallel()
	on := strings.Replace(minimal(t), "kafka:", "kafka:\n  tls: {enabled: true}", 1)
	c := mustParse(t, on, "SPILLWAY_KAFKA_TLS_ENABLED=", "SPILLWAY_KAFKA_BROKERS=  ", "SPILLWAY_NO_SUCH_SETTING=", "SPILLWAY_LOG_LEVEL=")
	if !c.Kafka.TLS.Enabled || !slices.Equal(c.Kafka.Brokers, []string{"127.0.0.1:9092"}) || c.Log.Level != "info" {
		t.Errorf("an empty variable changed something: %+v %+v", c.Kafka, c.Log)
	}
}

func TestTheLastOfSeveralVariablesCounts(t *testing.T) {
	t.Parallel()
	if got := mustParse(t, minimal(t), "SPILLWAY_LOG_LEVEL=debug", "SPILLWAY_LOG_LEVEL=warn").Log.Level; got != "warn" {
		t.Errorf("level %s, want warn", got)
	}
	if got := mustParse(t, minimal(t), "SPILLWAY_LOG_LEVEL=debug", "SPILLWAY_LOG_LEVEL=").Log.Level; got != "info" {
		t.Errorf("level %s, want info", got)
	}
}

func TestEverySettingWithAVariableCanBeOverridden(t *testing.T) {
	t.Parallel()
	// Values that pass together and differ from the defaults where there is a choice.
	for _, x := range []struct {
		env []string
		ok  func(c *Config) bool
	}{
		{[]string{"SPILLWAY_REDIS_URL=rediss://r:1/3"}, func(c *Config) bool { return c.Redis.URL.Reveal() == "rediss://r:1/3" }},
		{[]string{"SPILLWAY_KAFKA_SESSION_TIMEOUT=20s", "SPILLWAY_SHUTDOWN_GRACE=18s"}, func(c *Config) bool { return c.Shutdown.Grace == 18*time.Second }},
		{[]string{"SPILLWAY_ROUTES_WALLET_PREFETCH_BYTES=8MiB"}, func(c *Config) bool { return c.Routes[0].Prefetch.Bytes == 8<<20 }},
		{[]string{"SPILLWAY_ROUTES_WALLET_BREAKER_FAILURE_RATE=12.5%"}, func(c *Config) bool { return c.Routes[0].Breaker.FailureRate == 12.5 }},
		{[]string{"SPILLWAY_ROUTES_WALLET_BREAKER_WILSON_Z=1.96"}, func(c *Config) bool { return c.Routes[0].Breaker.WilsonZ == 1.96 }},
		{[]string{"SPILLWAY_ROUTES_WALLET_TOPIC=t2"}, func(c *Config) bool { return c.Routes[0].Topic == "t2" }},
		{[]string{"SPILLWAY_ROUTES_WALLET_DOWNSTREAM_SUBMIT_METHOD=PUT"}, func(c *Config) bool { return c.Routes[0].Downstream.Submit.Method == http.MethodPut }},
		{
			[]string{"SPILLWAY_ROUTES_WALLET_DOWNSTREAM_BEARER_TOKEN=CANARY"},
			func(c *Config) bool { return c.Routes[0].Downstream.BearerToken.Reveal() == "CANARY" },
		},
	} {
		if !x.ok(mustParse(t, minimal(t), x.env...)) {
			t.Errorf("%v has no effect", x.env)
		}
	}
	// And every single one is known: a value that no setting takes is reported at it.
	for _, s := range Settings() {
		if s.Variable == "" {
			continue
		}
		name := strings.Replace(s.Variable, "<NAME>", "WALLET", 1)
		_, err := Parse("f", []byte(minimal(t)), []string{name + "=\x01"})
		if err != nil && strings.Contains(err.Error(), "is not a setting") {
			t.Errorf("%s is not known", name)
		}
	}
}

func TestVariablesOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	mustParse(t, minimal(t), "SPILLWAY_TEST_KAFKA=127.0.0.1:1", "SPILLWAY_POSTGRES_BIN=/usr/bin", "SPILLWAY_CONFIG=x.yaml", "PATH=/bin",
		// What Kubernetes sets for services called spillway and spillway-metrics.
		"SPILLWAY_SERVICE_HOST=10.0.0.1", "SPILLWAY_SERVICE_PORT=9464", "SPILLWAY_SERVICE_PORT_HTTP=9464",
		"SPILLWAY_PORT=tcp://10.0.0.1:9464", "SPILLWAY_PORT_9464_TCP=tcp://10.0.0.1:9464", "SPILLWAY_PORT_9464_TCP_PROTO=tcp",
		"SPILLWAY_PORT_9464_TCP_PORT=9464", "SPILLWAY_PORT_9464_TCP_ADDR=10.0.0.1", "SPILLWAY_METRICS_SERVICE_HOST=10.0.0.2")
	wantProblems(t, problems(t, minimal(t), "SPILLWAY_PORT=9464"),
		"SPILLWAY_PORT: is not a setting; accepted: a setting's path in capitals, such as SPILLWAY_KAFKA_BROKERS")
}

func TestAVariableThatCouldMeanTwoSettingsIsRefused(t *testing.T) {
	t.Parallel()
	text := minimal(t) +
		"  - {name: wallet-replay, topic: t2, downstream: {url: 'http://h', submit: {path: /p}, lookup: {path: '/p/{number}'}}}\n"
	wantProblems(t, problems(t, text, "SPILLWAY_ROUTES_WALLET_REPLAY_LEASE=20s"),
		"SPILLWAY_ROUTES_WALLET_REPLAY_LEASE: could be routes.wallet.replay.lease or routes.wallet-replay.lease; "+
			"accepted: such a setting in the file, or another route's name")
	mustParse(t, text, "SPILLWAY_ROUTES_WALLET_REPLAY_CAPACITY=500")
}
