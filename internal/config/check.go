package config

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// rule reports a setting that does not fit, alone or beside others. It says nothing where the setting or one of the others
// has a problem of its own. The place is that of the setting, or of the first of the others that was given.
func (l *loader) rule(ok bool, path, why, accepted string, others ...string) {
	if ok || l.broken(path) || slices.ContainsFunc(others, l.broken) {
		return
	}
	at := l.origin(path)
	if !l.given(path) {
		for _, other := range others {
			if o, ok := l.origins[other]; ok {
				at.line, at.column, at.variable = o.line, o.column, o.variable
				break
			}
		}
	}
	l.problemAt(at, path, why, accepted)
}

// stands is what a setting stands at, for a message.
func (l *loader) stands(path string) string { return l.origin(path).text }

// check looks at what each setting alone and all of them together mean.
func (l *loader) check() {
	c := &l.cfg
	l.checkKafka(&c.Kafka)
	l.checkStores(c)
	_, ok := hostPort(c.HTTP.Listen, 0)
	l.rule(ok, "http.listen", "is not an address", "host:port; port 0 takes a free one, no host means every address")
	longest := c.Kafka.SessionTimeout - c.Kafka.Heartbeat
	l.rule(c.Shutdown.Grace <= longest, "shutdown.grace",
		fmt.Sprintf("is longer than the group waits for a silent worker: kafka.session_timeout %s less kafka.heartbeat %s",
			l.stands("kafka.session_timeout"), l.stands("kafka.heartbeat")),
		"at most "+formatDuration(longest), "kafka.session_timeout", "kafka.heartbeat")
	l.rule(c.Reload.Poll == 0 || c.Reload.Poll >= leastPoll, "reload.poll", "is too small", "at least "+formatDuration(leastPoll)+", or 0s for no looks")
	l.checkRoutes(c.Routes)
	l.checkAlerts(c.Alerts.Webhooks)
	l.files()
}

// leastPoll is the shortest time between two looks at the settings file.
const leastPoll = 100 * time.Millisecond

func (l *loader) checkKafka(k *Kafka) {
	for i, broker := range k.Brokers {
		host, ok := hostPort(broker, 1)
		path := fmt.Sprintf("kafka.brokers[%d]", i)
		l.rule(ok && host != "", path, "is not host:port", "host:port with a port of 1 to 65535, such as 127.0.0.1:9092")
	}
	l.rule(isPrintable(k.ClientID, 200), "kafka.client_id", "does not do", "1 to 200 printable characters")
	l.rule(k.Heartbeat*3 <= k.SessionTimeout, "kafka.heartbeat",
		"is more than a third of kafka.session_timeout "+l.stands("kafka.session_timeout"),
		"at most "+formatDuration((k.SessionTimeout/3).Truncate(time.Millisecond)), "kafka.session_timeout")

	if !k.TLS.Enabled {
		for _, name := range []string{"ca_file", "cert_file", "key_file", "server_name"} {
			path := join("kafka.tls", name)
			l.rule(!l.given(path), path, "has no effect while kafka.tls.enabled is false", "kafka.tls.enabled: true, or no such key",
				"kafka.tls.enabled")
		}
	}
	l.keyPair("kafka.tls", k.TLS.CertFile, k.TLS.KeyFile)

	s, user := &k.SASL, "kafka.sasl.username"
	if s.Mechanism == SASLNone {
		for _, name := range []string{"username", "password", "password_file"} {
			path := join("kafka.sasl", name)
			l.rule(!l.given(path), path, "has no effect while kafka.sasl.mechanism is none", "another mechanism, or no such key",
				"kafka.sasl.mechanism")
		}
		return
	}
	l.rule(s.Username != "", user, "is needed by kafka.sasl.mechanism "+s.Mechanism, "a text", "kafka.sasl.mechanism")
	l.rule(!s.Password.Empty() || s.PasswordFile != "", "kafka.sasl.password",
		"is needed by kafka.sasl.mechanism "+s.Mechanism, "a text, or password_file", "kafka.sasl.mechanism")
	l.rule(s.Password.Empty() || s.PasswordFile == "", "kafka.sasl.password_file", "is given beside a password", "one of the two",
		"kafka.sasl.password")
}

// keyPair checks that a certificate and its key are named together.
func (l *loader) keyPair(path, cert, key string) {
	certPath, keyPath := join(path, "cert_file"), join(path, "key_file")
	l.rule(key != "" || cert == "", keyPath, "is needed with cert_file", "a PEM file", certPath)
	l.rule(cert != "" || key == "", certPath, "is needed with key_file", "a PEM file", keyPath)
}

func (l *loader) checkStores(c *Config) {
	l.rule(isWord(c.Redis.Prefix, 40, "._-"), "redis.prefix", "does not do", "1 to 40 of a-z A-Z 0-9 . _ -")
	l.rule(c.Redis.PasswordFile == "" || !hasPassword(c.Redis.URL), "redis.password_file",
		"is given beside a password in redis.url", "one of the two", "redis.url")
	l.rule(c.Postgres.PasswordFile == "" || !hasPassword(c.Postgres.URL), "postgres.password_file",
		"is given beside a password in postgres.url", "one of the two", "postgres.url")
}

func (l *loader) checkRoutes(routes []Route) {
	names, topics, groups := map[string]string{}, map[string]string{}, map[string]string{}
	for i := range routes {
		r, path := &routes[i], l.routePath(i)
		l.rule(isRouteName(r.Name), join(path, "name"), "does not do", "1 to 40 of a-z 0-9 -")
		l.rule(isWord(r.Topic, 249, "._-") && r.Topic != "." && r.Topic != "..", join(path, "topic"), "is no topic's name",
			"1 to 249 of a-z A-Z 0-9 . _ -")
		l.rule(isPrintable(r.Group, 249), join(path, "group"), "does not do", "1 to 249 printable characters",
			join(path, "name"))
		l.once(names, r.Name, path, "name")
		l.once(topics, r.Topic, path, "topic")
		l.once(groups, r.Group, path, "group")
		l.checkRoute(path, r)
	}
}

// once reports a value that an earlier route has already.
func (l *loader) once(seen map[string]string, value, path, name string) {
	p := join(path, name)
	var others []string
	if name == "group" && !l.given(p) { // then it follows from the name
		others = append(others, join(path, "name"))
	}
	other, ok := seen[value]
	if !ok {
		seen[value] = path
		return
	}
	l.rule(value == "", p, fmt.Sprintf("is the %s of %s too (line %d)", name, other, max(l.origin(join(other, name)).line, 1)),
		"a "+name+" that no other route has", others...)
}

func (l *loader) checkRoute(path string, r *Route) {
	l.checkNumber(join(path, "number"), &r.Number)
	l.checkTenants(join(path, "rate.tenant"), &r.Rate.Tenant)
	l.checkPermits(join(path, "permits"), &r.Permits)
	p := join(path, "permits.shares")
	sum := r.Permits.Shares.Live + r.Permits.Shares.Replay + r.Permits.Shares.Compensate
	l.rule(sum > 99.999 && sum < 100.001, join(p, "live"),
		fmt.Sprintf("and replay %s and compensate %s add up to %s", l.stands(join(p, "replay")), l.stands(join(p, "compensate")), sum),
		"shares that add up to 100%", join(p, "replay"), join(p, "compensate"))
	p = join(path, "prefetch")
	l.rule(2*r.Prefetch.PartitionBytes <= r.Prefetch.Bytes, join(p, "partition_bytes"),
		"is more than half of what all partitions together may hold, and a fetch may bring twice as much: bytes "+l.stands(join(p, "bytes")),
		"at most "+(r.Prefetch.Bytes/2).String(), join(p, "bytes"))
	l.checkTimes(path, r)
	l.checkDownstream(join(path, "downstream"), &r.Downstream)
	l.checkBreaker(path, r)
	l.checkAgain(path, r)
}

// checkPermits looks at the bounds between which the limit is adapted.
func (l *loader) checkPermits(path string, p *Permits) {
	limit := join(path, "limit")
	l.rule(p.Min <= p.Limit, join(path, "min"), "is more than limit "+l.stands(limit), fmt.Sprintf("at most %d", p.Limit), limit)
	l.rule(p.Max >= p.Limit, join(path, "max"), "is less than limit "+l.stands(limit), fmt.Sprintf("at least %d", p.Limit), limit)
}

func (l *loader) checkNumber(path string, n *Number) {
	from := join(path, "from")
	header, pointer := join(path, "header"), join(path, "pointer")
	l.rule(n.From != FromHeader || n.Header != "", header, "is needed with from: header", "a record header's name", from)
	l.rule(n.From == FromHeader || n.Header == "", header, "has no effect with from: "+n.From, "from: header, or no such key", from)
	l.rule(n.From != FromValue || n.Pointer != "", pointer, "is needed with from: value", "a JSON pointer such as /order_no", from)
	l.rule(n.From == FromValue || n.Pointer == "", pointer, "has no effect with from: "+n.From, "from: value, or no such key", from)
	l.rule(isPointer(n.Pointer), pointer, "is not a JSON pointer", "a JSON pointer such as /order_no")
}

func (l *loader) checkTenants(path string, n *Tenants) {
	from := join(path, "from")
	header, pointer, limit := join(path, "header"), join(path, "pointer"), join(path, "limit")
	l.rule(n.From != FromHeader || n.Header != "", header, "is needed with from: header", "a record header's name", from)
	l.rule(n.From == FromHeader || n.Header == "", header, "has no effect with from: "+n.From, "from: header, or no such key", from)
	l.rule(n.From != FromValue || n.Pointer != "", pointer, "is needed with from: value", "a JSON pointer such as /shop", from)
	l.rule(n.From == FromValue || n.Pointer == "", pointer, "has no effect with from: "+n.From, "from: value, or no such key", from)
	l.rule(isPointer(n.Pointer), pointer, "is not a JSON pointer", "a JSON pointer such as /shop")
	l.rule(n.From != FromNone || n.Limit == 0, limit, "has no effect with from: none", "from: header or value, or no such key", from)
}

// leaseMargin is how much longer than a call a lease must be: the time to renew it or to settle.
const leaseMargin = time.Second

// checkTimes compares the deadlines of a call with what must outlast them.
func (l *loader) checkTimes(path string, r *Route) {
	d := &r.Downstream
	timeout, lookup := join(path, "downstream.timeout"), join(path, "downstream.lookup_timeout")
	window, slowWindow := join(path, "breaker.window"), join(path, "breaker.slow_window")
	if r.Breaker.Mode != "disabled" {
		for _, call := range []struct {
			path string
			d    time.Duration
		}{{timeout, d.Timeout}, {lookup, d.LookupTimeout}} {
			l.rule(call.d < r.Breaker.Window, call.path, "is not shorter than breaker.window "+l.stands(window),
				"less than "+formatDuration(r.Breaker.Window), window, timeout)
			l.rule(call.d < r.Breaker.SlowWindow, call.path, "is not shorter than breaker.slow_window "+l.stands(slowWindow),
				"less than "+formatDuration(r.Breaker.SlowWindow), slowWindow, timeout)
		}
	}
	l.rule(d.Slow < d.Timeout, join(path, "downstream.slow"), "is not shorter than downstream.timeout "+l.stands(timeout),
		"less than "+formatDuration(d.Timeout)+", or 0s", timeout)
	longest := max(d.Timeout, d.LookupTimeout)
	for _, lease := range []struct {
		name string
		d    time.Duration
	}{{"lease", r.Lease}, {"replay.lease", r.Replay.Lease}} {
		// It is renewed at a third to a half of its length, and an order is sent only while a call fits into what is left.
		least := 2 * (longest + leaseMargin)
		l.rule(lease.d > least, join(path, lease.name), "is too short to be renewed in time for a call of "+formatDuration(longest),
			"more than "+formatDuration(least), timeout, lookup)
	}
	l.rule(r.Compensate.Grace >= d.Timeout, join(path, "compensate.grace"), "is shorter than downstream.timeout "+l.stands(timeout),
		"at least "+formatDuration(d.Timeout), timeout)
}

func (l *loader) checkBreaker(path string, r *Route) {
	b, p, limit := &r.Breaker, join(path, "breaker"), join(path, "permits.limit")
	l.rule(b.ProbesInFlight <= r.Permits.Limit, join(p, "probes_in_flight"), "is more than permits.limit "+l.stands(limit),
		fmt.Sprintf("at most %d", r.Permits.Limit), limit)
	l.rule(b.ProbesInFlight <= b.Probes || b.SuccessesToClose > 0, join(p, "probes_in_flight"),
		"is more than probes "+l.stands(join(p, "probes")), fmt.Sprintf("at most %d", b.Probes), join(p, "probes"))
	l.rule(b.RampMinimumCalls <= b.MinimumCalls, join(p, "ramp_minimum_calls"),
		"is more than minimum_calls "+l.stands(join(p, "minimum_calls")), fmt.Sprintf("at most %d", b.MinimumCalls), join(p, "minimum_calls"))
	l.rule(b.OpenWait <= b.OpenWaitMax, join(p, "open_wait_max"), "is shorter than open_wait "+l.stands(join(p, "open_wait")),
		"at least "+formatDuration(b.OpenWait), join(p, "open_wait"))
	l.rule(b.WilsonZ == 0 || b.FailureRate < 100, join(p, "failure_rate"), "is never reached by a Wilson bound", "less than 100%, or wilson_z 0",
		join(p, "wilson_z"))
	l.rule(b.WilsonZ == 0 || b.SlowRate < 100, join(p, "slow_rate"), "is never reached by a Wilson bound", "less than 100%, or wilson_z 0",
		join(p, "wilson_z"))
	l.rule(b.Mode == "disabled" || b.FailureRate > 0 || b.SlowRate > 0 || b.Consecutive > 0, join(p, "mode"),
		"has no rule left: failure_rate, slow_rate and consecutive are all off", "at least one rule, or mode: disabled",
		join(p, "failure_rate"), join(p, "slow_rate"), join(p, "consecutive"))
}

// checkAgain looks at what is tried again: replay and lookups.
func (l *loader) checkAgain(path string, r *Route) {
	p := join(path, "replay")
	l.rule(r.Replay.Attempts <= r.Replay.AttemptsTotal, join(p, "attempts_total"), "is less than attempts "+l.stands(join(p, "attempts")),
		fmt.Sprintf("at least %d", r.Replay.Attempts), join(p, "attempts"))
	l.rule(r.Replay.Delay <= r.Replay.DelayMax, join(p, "delay_max"), "is shorter than delay "+l.stands(join(p, "delay")),
		"at least "+formatDuration(r.Replay.Delay), join(p, "delay"))
	p = join(path, "compensate")
	l.rule(r.Compensate.Delay <= r.Compensate.DelayMax, join(p, "delay_max"), "is shorter than delay "+l.stands(join(p, "delay")),
		"at least "+formatDuration(r.Compensate.Delay), join(p, "delay"))
}

// isRouteName reports whether a text may name a route: it stands in metrics, keys and variables.
func isRouteName(s string) bool {
	return s != "" && len(s) <= 40 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// isWord reports whether a text is 1 to n letters, digits and others.
func isWord(s string, n int, others string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return s != "" && len(s) <= n && strings.Trim(s, letters+others) == ""
}

func isPrintable(s string, n int) bool {
	return s != "" && len(s) <= n && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar })
}

// isPointer reports whether a text is a JSON pointer (RFC 6901), the empty one included.
func isPointer(s string) bool {
	if s == "" {
		return true
	}
	rest := strings.NewReplacer("~0", "", "~1", "").Replace(s)
	return s[0] == '/' && !strings.Contains(rest, "~")
}

// hostPort splits an address and checks its port.
func hostPort(address string, lowest int) (host string, ok bool) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || !isPort(port, lowest) {
		return "", false
	}
	return host, host == "" || strings.Contains(host, ":") || isWord(host, 253, "._-")
}

func isPort(text string, lowest int) bool {
	n, err := strconv.Atoi(text)
	return err == nil && digitsOnly(text) && n >= lowest && n <= 65535
}
