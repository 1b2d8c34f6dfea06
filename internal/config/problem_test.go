package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// problems parses what must not pass and returns the messages, one a line.
func problems(t *testing.T, text string, env ...string) []string {
	t.Helper()
	c, err := Parse("spillway.yaml", []byte(text), env)
	var wrong *Error
	if !errors.As(err, &wrong) {
		t.Fatalf("err = %v, want an *Error", err)
	}
	if c != nil {
		t.Error("a config came with the error")
	}
	return strings.Split(wrong.Error(), "\n")
}

func wantProblems(t *testing.T, got []string, want ...string) {
	t.Helper()
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("problems:\n%s\nwant:\n%s", g, w)
	}
}

const rateForm = "accepted: a rate with a unit (/s, /m, /h), 1/h to 1000000/s, such as 200/s, or none"

const waitForm = "accepted: a duration with a unit (ms, s, m, h), 1ms to 1m, such as 20ms"

// TestValuesThatCouldMeanSomethingElseAreRefused holds case H1: bare numbers became nanoseconds in systems like ours.
func TestValuesThatCouldMeanSomethingElseAreRefused(t *testing.T) {
	t.Parallel()
	const wait = "permits.wait: "
	for _, x := range []struct {
		in, want string // in stands below the route, on line 16
	}{
		{"permits: {wait: 250}", "16:21: " + wait + "250 has no unit; " + waitForm},
		{`permits: {wait: "30"}`, `16:21: ` + wait + "30 has no unit; " + waitForm},
		{"permits: {wait: 1.5}", "16:21: " + wait + "1.5 has no unit; " + waitForm},
		{"permits: {wait: 0}", "16:21: " + wait + "0 has no unit; " + waitForm},
		{"permits: {wait: -5s}", "16:21: " + wait + "-5s is negative; " + waitForm},
		{"permits: {wait: 1d}", "16:21: " + wait + "1d is not a duration; " + waitForm},
		{"permits: {wait: 0s}", "16:21: " + wait + "0s is too small; " + waitForm},
		{"permits: {wait: 2m}", "16:21: " + wait + "2m is too large; " + waitForm},
		{"permits: {wait: 400ns}", "16:21: " + wait + "400ns is too small; " + waitForm},
		{"permits: {wait: soon}", "16:21: " + wait + "soon is not a duration; " + waitForm},
		{`permits: {wait: ""}`, "16:21: " + wait + "is empty; " + waitForm + "; leave the key out for the default"},
		{"permits: {wait: ~}", "16:21: " + wait + "is empty; " + waitForm + "; leave the key out for the default"},
		{"permits: {wait: [5s]}", "16:21: " + wait + "is a list; " + waitForm},
		{"permits: {wiat: 5s}", "16:15: permits.wiat: is not a setting; did you mean wait?; accepted: limit, mode, min, max, wait, fleet or shares"},
		{"permits: {wait: 5s, wait: 6s}", "16:25: permits.wait: is given twice, first on line 16; accepted: each key once"},
		{"permits: {limit: 0}", "16:22: permits.limit: 0 is too small; accepted: a whole number, 1 to 10000"},
		{"permits: {limit: 5, min: 6}", "16:30: permits.min: 6 is more than limit 5; accepted: at most 5"},
		{"permits: {limit: 5, max: 4}", "16:30: permits.max: 4 is less than limit 5; accepted: at least 5"},
		{"permits: {mode: adaptive}", "16:21: permits.mode: adaptive is not known; accepted: fixed, observe or enforce"},
		{"permits: {limit: 0x10}", "16:22: permits.limit: 0x10 is not a whole number; accepted: a whole number, 1 to 10000"},
		{"permits: {limit: 010}", "16:22: permits.limit: 010 is not a plain whole number; accepted: a whole number, 1 to 10000"},
		{"permits: {limit: 1_0}", "16:22: permits.limit: 1_0 is not a whole number; accepted: a whole number, 1 to 10000"},
		{"permits: {limit: 1e3}", "16:22: permits.limit: 1e3 is not a whole number; accepted: a whole number, 1 to 10000"},
		{"permits: {limit: 5.0}", "16:22: permits.limit: 5.0 is not a plain whole number; accepted: a whole number, 1 to 10000"},
		{"prefetch: {records: -1}", "16:25: prefetch.records: -1 is negative; accepted: a whole number, 1 to 10000000"},
		{"prefetch: {bytes: -1MiB}", "16:23: prefetch.bytes: -1MiB is negative; accepted: a size with a unit (B, KiB, MiB, GiB), 64KiB to 16GiB, such as 64MiB"},
		{"prefetch: {bytes: 67108864}", "16:23: prefetch.bytes: 67108864 has no unit; accepted: a size with a unit (B, KiB, MiB, GiB), 64KiB to 16GiB, such as 64MiB"},
		{"prefetch: {bytes: 64M}", "16:23: prefetch.bytes: 64M is not a size; accepted: a size with a unit (B, KiB, MiB, GiB), 64KiB to 16GiB, such as 64MiB"},
		{"breaker: {failure_rate: 50}", "16:29: breaker.failure_rate: 50 has no % sign; accepted: a percentage, 0% to 100%, such as 50%"},
		{"breaker: {failure_rate: 0.5}", "16:29: breaker.failure_rate: 0.5 has no % sign; accepted: a percentage, 0% to 100%, such as 50%"},
		{"breaker: {failure_rate: 101%}", "16:29: breaker.failure_rate: 101% is too large; accepted: a percentage, 0% to 100%, such as 50%"},
		{"rate: {limit: 200}", "16:19: rate.limit: 200 has no unit; " + rateForm},
		{"rate: {limit: 0}", "16:19: rate.limit: 0 has no unit; " + rateForm},
		{"rate: {limit: 0/s}", "16:19: rate.limit: 0/s would let nothing through; none is no limit; " + rateForm},
		{"rate: {limit: -1/s}", "16:19: rate.limit: -1/s is negative; " + rateForm},
		{"rate: {limit: 200/d}", "16:19: rate.limit: 200/d is not a rate; " + rateForm},
		{"rate: {limit: 1e3/s}", "16:19: rate.limit: 1e3/s is not a rate; " + rateForm},
		{"rate: {limit: 0.5/h}", "16:19: rate.limit: 0.5/h is too small; " + rateForm},
		{"rate: {limit: 1000001/s}", "16:19: rate.limit: 1000001/s is too large; " + rateForm},
		{"rate: {limit: fast}", "16:19: rate.limit: fast is not a rate; " + rateForm},
		{"rate: {tenant: {limit: 5/s}}", "16:28: rate.tenant.limit: 5/s has no effect with from: none; accepted: from: header or value, or no such key"},
		{"rate: {tenant: {from: value}}", "16:27: rate.tenant.pointer: is needed with from: value; accepted: a JSON pointer such as /shop"},
		{"rate: {tenant: {from: header, header: shop, max: 0}}", "16:54: rate.tenant.max: 0 is too small; accepted: a whole number, 1 to 100000"},
		{"permits: {fleet: many}", "16:22: permits.fleet: many is not a whole number; accepted: a whole number, 0 to 1000000"},
		{"breaker: {window: 1500ms}", "16:23: breaker.window: 1500ms is not in whole seconds; accepted: a duration in whole seconds, 1s to 5m, such as 10s"},
		{"breaker: {wilson_z: NaN}", "16:25: breaker.wilson_z: NaN is not a number; accepted: a number, 0 to 5"},
		{"breaker: {wilson_z: .inf}", "16:25: breaker.wilson_z: .inf is not a number; accepted: a number, 0 to 5"},
		{"permits: {limit: 2}\n    breaker: {probes_in_flight: 3}", "17:33: breaker.probes_in_flight: 3 is more than permits.limit 2; accepted: at most 2"},
		{"degrade: fallback", "16:14: degrade: fallback is not known; accepted: spill, hold or skip"},
		{"permits: *shared", "16:14: permits: is an anchor, an alias or a merge key, which are not read; accepted: a section with keys of its own"},
		{"permits: 5", "16:14: permits: is a single value; accepted: a section with keys of its own"},
	} {
		t.Run(x.in, func(t *testing.T) {
			t.Parallel()
			place, rest, _ := strings.Cut(x.want, ": ")
			wantProblems(t, problems(t, minimal(t)+"    "+x.in+"\n"), "spillway.yaml:"+place+": routes.wallet."+rest)
		})
	}
}

func TestEnvironmentFollowsTheRulesOfTheFile(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ variable, want string }{
		{"SPILLWAY_ROUTES_WALLET_PERMITS_WAIT=250", "routes.wallet.permits.wait: 250 has no unit; " + waitForm},
		{"SPILLWAY_ROUTES_WALLET_PERMITS_WAIT=30", "routes.wallet.permits.wait: 30 has no unit; " + waitForm},
		{"SPILLWAY_ROUTES_WALLET_PERMITS_WAIT=1.5", "routes.wallet.permits.wait: 1.5 has no unit; " + waitForm},
		{"SPILLWAY_ROUTES_WALLET_PERMITS_WAIT=-5s", "routes.wallet.permits.wait: -5s is negative; " + waitForm},
		{"SPILLWAY_ROUTES_WALLET_PERMITS_WAIT=1d", "routes.wallet.permits.wait: 1d is not a duration; " + waitForm},
		{"SPILLWAY_ROUTES_WALLET_PERMITS_WAIT=0s", "routes.wallet.permits.wait: 0s is too small; " + waitForm},
		{"SPILLWAY_ROUTES_WALLET_PERMITS_LIMIT=0", "routes.wallet.permits.limit: 0 is too small; accepted: a whole number, 1 to 10000"},
		{"SPILLWAY_ROUTES_WALLET_PREFETCH_RECORDS=-1", "routes.wallet.prefetch.records: -1 is negative; accepted: a whole number, 1 to 10000000"},
		{"SPILLWAY_KAFKA_TLS_ENABLED=maybe", "kafka.tls.enabled: maybe is neither true nor false; accepted: true or false"},
		{"SPILLWAY_KAFKA_BROKERS= , ,", `kafka.brokers: " , ," holds no entry; accepted: host:port, at least one`},
		{"SPILLWAY_KAFKA_BROKERS=a:9092,b", "kafka.brokers[1]: b is not host:port; accepted: host:port with a port of 1 to 65535, such as 127.0.0.1:9092"},
		{"SPILLWAY_SHUTDOWN_GRACE=7s", "shutdown.grace: 7s is longer than the group waits for a silent worker: kafka.session_timeout 8s (the default) less kafka.heartbeat 2s (the default); accepted: at most 6s"},
		{"SPILLWAY_KAFKA_BROKER=a:1", "is not a setting; did you mean SPILLWAY_KAFKA_BROKERS?; accepted: a setting's path in capitals, such as SPILLWAY_KAFKA_BROKERS"},
		{"SPILLWAY_ROUTES_WALLET_NAME=x", "is not a setting; accepted: a setting's path in capitals, such as SPILLWAY_KAFKA_BROKERS or SPILLWAY_ROUTES_<NAME>_PERMITS_LIMIT for a route of the file"},
	} {
		t.Run(x.variable, func(t *testing.T) {
			t.Parallel()
			name, _, _ := strings.Cut(x.variable, "=")
			wantProblems(t, problems(t, minimal(t), x.variable), name+": "+x.want)
		})
	}
}

func TestContradictionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		in   string // below the route
		want []string
	}{
		{"breaker: {window: 1s}\n    lease: 1s", []string{
			"17:12: routes.wallet.lease: 1s is too short to be renewed in time for a call of 300ms; accepted: more than 2.6s",
		}},
		{"replay: {lease: 1s}", []string{
			"16:21: routes.wallet.replay.lease: 1s is too short to be renewed in time for a call of 300ms; accepted: more than 2.6s",
		}},
		{"prefetch: {partition_bytes: 128MiB}", []string{
			"16:33: routes.wallet.prefetch.partition_bytes: 128MiB is more than half of what all partitions together may hold, and a fetch may bring twice as much: bytes 64MiB (the default); accepted: at most 32MiB",
		}},
		{"prefetch: {bytes: 512KiB}", []string{
			"16:23: routes.wallet.prefetch.partition_bytes: 1MiB (the default) is more than half of what all partitions together may hold, and a fetch may bring twice as much: bytes 512KiB; accepted: at most 256KiB",
		}},
		{"permits: {shares: {live: 90%}}", []string{
			"16:30: routes.wallet.permits.shares.live: 90% and replay 20% (the default) and compensate 10% (the default) add up to 120%; accepted: shares that add up to 100%",
		}},
		{"compensate: {grace: 200ms, delay: 2m}", []string{
			"16:25: routes.wallet.compensate.grace: 200ms is shorter than downstream.timeout 300ms (the default); accepted: at least 300ms",
			"16:39: routes.wallet.compensate.delay_max: 1m (the default) is shorter than delay 2m; accepted: at least 2m",
		}},
		{"replay: {attempts: 30, batch: 50, capacity: 10}", []string{
			"16:24: routes.wallet.replay.attempts_total: 20 (the default) is less than attempts 30; accepted: at least 30",
			"16:49: routes.wallet.replay.capacity: 10 is too small; accepted: a whole number, 100 to 100000000",
		}},
		{"breaker: {failure_rate: 0%, slow_rate: 0%, consecutive: 0}", []string{
			"16:29: routes.wallet.breaker.mode: enforce (the default) has no rule left: failure_rate, slow_rate and consecutive are all off; accepted: at least one rule, or mode: disabled",
		}},
		{"breaker: {minimum_calls: 3, ramp_minimum_calls: 4}", []string{
			"16:53: routes.wallet.breaker.ramp_minimum_calls: 4 is more than minimum_calls 3; accepted: at most 3",
		}},
		{"breaker: {open_wait: 10m, open_wait_max: 5m}", []string{
			"16:46: routes.wallet.breaker.open_wait_max: 5m is shorter than open_wait 10m; accepted: at least 10m",
		}},
		{"number: {from: header}", []string{
			"16:20: routes.wallet.number.header: is needed with from: header; accepted: a record header's name",
		}},
		{"number: {pointer: /id}", []string{
			"16:23: routes.wallet.number.pointer: /id has no effect with from: key; accepted: from: value, or no such key",
		}},
		{"number: {from: value, pointer: id}", []string{
			"16:36: routes.wallet.number.pointer: id is not a JSON pointer; accepted: a JSON pointer such as /order_no",
		}},
	} {
		t.Run(x.in, func(t *testing.T) {
			t.Parallel()
			want := make([]string, len(x.want))
			for i, w := range x.want {
				want[i] = "spillway.yaml:" + w
			}
			wantProblems(t, problems(t, minimal(t)+"    "+x.in+"\n"), want...)
		})
	}
}

func TestCallTimeoutMustBeShorterThanTheBreakerWindow(t *testing.T) {
	t.Parallel()
	wantProblems(t, problems(t, minimal(t), "SPILLWAY_ROUTES_WALLET_DOWNSTREAM_TIMEOUT=10s", "SPILLWAY_ROUTES_WALLET_DOWNSTREAM_LOOKUP_TIMEOUT=1s"),
		"SPILLWAY_ROUTES_WALLET_DOWNSTREAM_TIMEOUT: routes.wallet.downstream.timeout: 10s is not shorter than breaker.window 10s (the default); accepted: less than 10s")
	mustParse(t, minimal(t), "SPILLWAY_ROUTES_WALLET_DOWNSTREAM_TIMEOUT=10s", "SPILLWAY_ROUTES_WALLET_BREAKER_MODE=disabled")
}

func TestInstancesOfAServiceDifferInTheirHostsAlone(t *testing.T) {
	t.Parallel()
	with := func(urls string) string {
		return strings.Replace(minimal(t), "      url: http", "      urls: "+urls+"\n      url: http", 1)
	}
	c := mustParse(t, with("[http://10.0.0.2:8080, http://10.0.0.3:8080/]"))
	if urls := c.Routes[0].Downstream.URLs; len(urls) != 2 || urls[1].Reveal() != "http://10.0.0.3:8080/" {
		t.Errorf("urls %v", urls)
	}
	c = mustParse(t, minimal(t), "SPILLWAY_ROUTES_WALLET_DOWNSTREAM_URLS=http://10.0.0.2:8080, http://10.0.0.3:8080")
	if urls := c.Routes[0].Downstream.URLs; len(urls) != 2 {
		t.Errorf("urls %v", urls)
	}
	const list = "routes.wallet.downstream.urls"
	for urls, want := range map[string]string{
		"[https://10.0.0.2]":       "[0]: https://10.0.0.2 has another scheme than url http://127.0.0.1:8080; accepted: the scheme of url",
		"[http://10.0.0.2/v2]":     "[0]: http://10.0.0.2/v2 has another path than url http://127.0.0.1:8080; accepted: the path of url",
		"[http://127.0.0.1:8080/]": "[0]: http://127.0.0.1:8080/ is the instance of routes.wallet.downstream.url too; accepted: each instance once",
		"[http://B, http://b:80]":  "[1]: http://b:80 is the instance of routes.wallet.downstream.urls[0] too; accepted: each instance once",
		"[http://b?CANARY=CANARY]": "[0]: http://b?CANARY=*** holds a query or a fragment; accepted: scheme, host, port and path alone",
		"[http://u:CANARY@b]":      "[0]: http://***@b holds a user; accepted: an address without one; use headers or bearer_token",
		"[ftp://b]":                "[0]: ftp://b has the wrong scheme; accepted: an address like http://host:port/… or https://host:port/…",
		"[]":                       ": is an empty list; accepted: a list of at most 15 addresses that differ from url in their host alone",
		"[" + strings.Repeat("http://b, ", 15) + "http://c]": ": holds 16 addresses; accepted: at most 15",
	} {
		var found bool
		for _, p := range problems(t, with(urls)) {
			found = found || strings.HasSuffix(p, list+want)
		}
		if !found {
			t.Errorf("%s: %q, want %q", urls, problems(t, with(urls)), list+want)
		}
	}
	for _, p := range problems(t, minimal(t), "SPILLWAY_ROUTES_WALLET_DOWNSTREAM_URLS=http://b?a=CANARY,http://u:CANARY@c,x CANARY") {
		if strings.Contains(p, "CANARY") {
			t.Errorf("a message shows what may be secret: %s", p)
		}
	}
}

func TestTwoRoutesShareNeitherNameNorTopicNorGroup(t *testing.T) {
	t.Parallel()
	second := func(name, topic, group string) string {
		return fmt.Sprintf("  - name: %s\n    topic: %s\n    group: %s\n    downstream: {url: 'http://h', submit: {path: /p}, lookup: {path: '/p/{number}'}}\n",
			name, topic, group)
	}
	wantProblems(t, problems(t, minimal(t)+second("wallet", "orders.in", "spillway-wallet")),
		"spillway.yaml:16:11: routes[1].name: wallet is the name of routes.wallet too (line 8); accepted: a name that no other route has",
		"spillway.yaml:17:12: routes[1].topic: orders.in is the topic of routes.wallet too (line 9); accepted: a topic that no other route has",
		"spillway.yaml:18:12: routes[1].group: spillway-wallet is the group of routes.wallet too (line 8); accepted: a group that no other route has")
	c := mustParse(t, minimal(t)+second("bank", "bank.in", "g"), "SPILLWAY_ROUTES_BANK_PERMITS_LIMIT=7")
	if c.Routes[0].Permits.Limit != 50 || c.Routes[1].Permits.Limit != 7 {
		t.Errorf("limits %d and %d, want 50 and 7", c.Routes[0].Permits.Limit, c.Routes[1].Permits.Limit)
	}
}

func TestTenMistakesAreTenMessages(t *testing.T) {
	t.Parallel()
	const text = `kafka:
  brokers: [127.0.0.1]
  heartbeat: 5s
redis:
  url: redis://127.0.0.1:6379/0
  url: redis://127.0.0.1:6379/1
postgres:
  url: mysql://root:CANARY@127.0.0.1/db
log:
  level: loud
routes:
  - name: wallet
    topic: orders in
    permits:
      wait: 250
      wiat: 5s
    downstream:
      url: http://127.0.0.1:8080
      timeout: 10s
      submit: {path: /pay}
      lookup: {path: /pay}
    breaker: {probes_in_flight: 60}
`
	wantProblems(t, problems(t, text),
		"spillway.yaml:2:13: kafka.brokers[0]: 127.0.0.1 is not host:port; accepted: host:port with a port of 1 to 65535, such as 127.0.0.1:9092",
		"spillway.yaml:3:14: kafka.heartbeat: 5s is more than a third of kafka.session_timeout 8s (the default); accepted: at most 2.666s",
		"spillway.yaml:6:3: redis.url: is given twice, first on line 5; accepted: each key once",
		"spillway.yaml:8:8: postgres.url: mysql://***@127.0.0.1/db has the wrong scheme; accepted: an address like postgres://host:port/… or postgresql://host:port/…",
		"spillway.yaml:10:10: log.level: loud is not known; accepted: debug, info, warn or error",
		`spillway.yaml:13:12: routes.wallet.topic: "orders in" is no topic's name; accepted: 1 to 249 of a-z A-Z 0-9 . _ -`,
		"spillway.yaml:15:13: routes.wallet.permits.wait: 250 has no unit; "+waitForm,
		"spillway.yaml:16:7: routes.wallet.permits.wiat: is not a setting; did you mean wait?; accepted: limit, mode, min, max, wait, fleet or shares",
		"spillway.yaml:19:16: routes.wallet.downstream.timeout: 10s is not shorter than breaker.window 10s (the default); accepted: less than 10s",
		"spillway.yaml:21:22: routes.wallet.downstream.lookup.path: /pay does not hold {number}, nor does a header; accepted: a path that names the order, such as /orders/{number}",
		"spillway.yaml:22:33: routes.wallet.breaker.probes_in_flight: 60 is too large; accepted: a whole number, 1 to 16")
}

func TestWhatMustBeGivenIsAskedForWhereItBelongs(t *testing.T) {
	t.Parallel()
	wantProblems(t, problems(t, "# nothing\n"),
		"spillway.yaml:1:1: kafka.brokers: is not given; accepted: host:port, at least one",
		"spillway.yaml:1:1: redis.url: is not given; accepted: an address like redis://host:port/… or rediss://host:port/…",
		"spillway.yaml:1:1: postgres.url: is not given; accepted: an address like postgres://host:port/… or postgresql://host:port/…",
		"spillway.yaml:1:1: routes: is not given; accepted: a list of sections, at least one")
	got := problems(t, strings.Replace(minimal(t), "  url: postgres", "  #url: postgres", 1)+"  - lease: 5s\n")
	wantProblems(t, got,
		"spillway.yaml:5:1: postgres.url: is not given; accepted: an address like postgres://host:port/… or postgresql://host:port/…",
		"spillway.yaml:16:5: routes[1].name: is not given; accepted: 1 to 40 of a-z 0-9 -, used once",
		"spillway.yaml:16:5: routes[1].topic: is not given; accepted: a topic's name (1 to 249 of a-z A-Z 0-9 . _ -), used by one route",
		"spillway.yaml:16:5: routes[1].downstream.url: is not given; accepted: an address like http://host:port/… or https://host:port/…",
		"spillway.yaml:16:5: routes[1].downstream.submit.path: is not given; accepted: a path that begins with /, with placeholders where wanted",
		"spillway.yaml:16:5: routes[1].downstream.lookup.path: is not given; accepted: a path that begins with / and holds {number}")
}

func TestTextThatIsNoSettingsFileIsRefused(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ in, want string }{
		{"kafka: [1", "1:8: is not YAML: sequence end token ']' not found"},
		{"kafka: {a: \"CANARY\n", "1:12: is not YAML: could not find end character of double-quoted text"},
		{"- a\n- b\n", "1:1: is a list; accepted: a section with keys of its own"},
		{"just words", "1:1: is a single value; accepted: a section with keys of its own"},
		{"<<: {a: 1}\n", "1:1: has a key that is an anchor, an alias or a merge key, which are not read; accepted: plain keys; write shared values out"},
		{strings.Repeat("#", maxFile+1), "1:1: is larger than 1MiB"},
	} {
		got := problems(t, x.in)
		if got[0] != "spillway.yaml:"+x.want {
			t.Errorf("%.40q: %s\nwant %s", x.in, got[0], x.want)
		}
	}
	got := problems(t, minimal(t)+"---\nkafka: {}\n")
	wantProblems(t, got, "spillway.yaml:17:1: begins a second document; accepted: one document")
}
