package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// changed applies replacements to the minimal file and parses it.
func changed(t *testing.T, replacements ...string) *Config {
	t.Helper()
	text := minimal(t)
	for i := 0; i < len(replacements); i += 2 {
		if !strings.Contains(text, replacements[i]) {
			t.Fatalf("%q is not in the file", replacements[i])
		}
		text = strings.Replace(text, replacements[i], replacements[i+1], 1)
	}
	return mustParse(t, text)
}

func TestDiffNamesEverySettingThatDiffersAndWhetherItIsHot(t *testing.T) {
	t.Parallel()
	const route = "\n    topic:"
	for _, x := range []struct {
		name          string
		before, after []string
		want          []string // with " (hot)" behind the hot ones
	}{
		{name: "nothing"},
		{
			name: "the default written out", after: []string{route, "\n    permits: {limit: 50, shares: {live: 70%}}" + route},
		},
		{
			name:   "permits and prefetch",
			before: []string{route, "\n    permits: {limit: 5}\n    prefetch: {bytes: 8MiB, records: 100}" + route},
			after: []string{
				route, "\n    permits: {limit: 20, wait: 5ms, shares: {live: 60%, replay: 30%}}\n    prefetch: {bytes: 16MiB, partition_bytes: 2MiB, records: 99}" + route,
			},
			want: []string{
				"routes.wallet.permits.limit: 5 → 20 (hot)", "routes.wallet.permits.max: 20 → 80 (hot)",
				"routes.wallet.permits.wait: 20ms → 5ms (hot)",
				"routes.wallet.permits.shares.live: 70% → 60% (hot)", "routes.wallet.permits.shares.replay: 20% → 30% (hot)",
				"routes.wallet.prefetch.bytes: 8MiB → 16MiB (hot)", "routes.wallet.prefetch.partition_bytes: 1MiB → 2MiB (hot)",
				"routes.wallet.prefetch.records: 100 → 99 (hot)",
			},
		},
		{
			name:   "a bound that is moved, and one that is turned on",
			before: []string{route, "\n    permits: {fleet: 100}" + route},
			after:  []string{route, "\n    permits: {fleet: 80}\n    rate: {fleet: 1000/s}" + route},
			want:   []string{"routes.wallet.permits.fleet: 100 → 80 (hot)", "routes.wallet.rate.fleet: none → 1000/s"},
		},
		{
			name:  "levels and looks",
			after: []string{"routes:", "log: {level: debug, format: text}\nreload: {poll: 0s}\nroutes:"},
			want:  []string{"log.level: info → debug (hot)", "log.format: json → text", "reload.poll: 5s → 0s (hot)"},
		},
		{
			name:  "what follows from another setting",
			after: []string{route, "\n    breaker: {window: 20s}" + route},
			want:  []string{"routes.wallet.breaker.window: 10s → 20s", "routes.wallet.breaker.slow_window: 10s → 20s"},
		},
		{
			name:  "lists, headers and rules",
			after: []string{"      submit:\n", "      headers: {X-A: C4NARY}\n      urls: [\"http://10.0.0.9\"]\n      submit:\n        rules: [{status: [409], outcome: SUCCEEDED}]\n"},
			want: []string{
				`routes.wallet.downstream.urls: "" → http://10.0.0.9`, `routes.wallet.downstream.headers: "" → X-A=***`,
				"routes.wallet.downstream.submit.rules: 0 entries → 1 entries",
			},
		},
		{
			name:   "an entry of a list",
			before: []string{"      submit:\n", "      submit:\n        rules: [{status: [409], outcome: SUCCEEDED}]\n"},
			after:  []string{"      submit:\n", "      submit:\n        rules: [{status: [409-410], outcome: REJECTED}]\n"},
			want: []string{
				"routes.wallet.downstream.submit.rules[0].status: 409 → 409-410",
				"routes.wallet.downstream.submit.rules[0].outcome: SUCCEEDED → REJECTED",
			},
		},
		{
			name: "another name", after: []string{"name: wallet", "name: purse"},
			want: []string{"routes.wallet: a route → not there", "routes.purse: not there → a route"},
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, c := range Diff(changed(t, x.before...), changed(t, x.after...)) {
				line := c.String()
				if c.Hot {
					line += " (hot)"
				}
				got = append(got, line)
			}
			if !slices.Equal(got, x.want) {
				t.Errorf("changes:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(x.want, "\n"))
			}
		})
	}
}

func TestDiffShowsNoSecretAndStillSeesThatItChanged(t *testing.T) {
	t.Parallel()
	with := func(secret string) *Config {
		return changed(t, "      submit:\n", "      bearer_token: "+secret+"\n      submit:\n",
			"postgres://spillway@", "postgres://spillway:"+secret+"@")
	}
	changes := Diff(with("C4NARY1"), with("C4NARY2"))
	if len(changes) != 2 {
		t.Fatalf("changes %v, want the address and the token", changes)
	}
	for _, c := range changes {
		if strings.Contains(c.String(), "C4NARY") || c.Hot {
			t.Errorf("%s, hot %v", c, c.Hot)
		}
	}
	if with("C4NARY1").Fingerprint() != with("C4NARY2").Fingerprint() {
		t.Error("the fingerprint tells of secrets")
	}
}

func TestDiffIgnoresTheOrderOfRoutes(t *testing.T) {
	t.Parallel()
	a := mustParse(t, minimal(t)+"  - {name: b, topic: b, downstream: {url: \"http://h\", submit: {path: /}, lookup: {path: \"/{number}\"}}}\n")
	b := mustParse(t, minimal(t)+"  - {name: b, topic: b, downstream: {url: \"http://h\", submit: {path: /}, lookup: {path: \"/{number}\"}}}\n")
	slices.Reverse(b.Routes)
	b.Routes[0].Permits.Limit = 7
	if got := Diff(a, b); len(got) != 1 || got[0].Path != "routes.b.permits.limit" {
		t.Errorf("changes %v, want the limit of b", got)
	}
}

// TestARotatedSecretFileIsNoChangeOfSettings: it is read at the start and no more, and must not stand in the way of a new
// limit in an incident.
func TestARotatedSecretFileIsNoChangeOfSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret, hook := filepath.Join(dir, "secret"), filepath.Join(dir, "hook")
	text := strings.NewReplacer(
		"routes:", "alerts: {webhooks: [{name: ops, url_file: "+hook+"}]}\nroutes:",
		"      submit:\n", "      bearer_token_file: "+secret+"\n      submit:\n",
	).Replace(minimal(t))
	load := func(content string) *Config {
		for path, data := range map[string]string{secret: content, hook: "https://h/" + content} {
			if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c, err := LoadFrom("f", []byte(text), []string{"SPILLWAY_POSTGRES_PASSWORD_FILE=" + secret})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a, b := load("one"), load("two")
	if a.Routes[0].Downstream.BearerToken.Equal(b.Routes[0].Downstream.BearerToken) || a.Postgres.URL.Equal(b.Postgres.URL) {
		t.Fatal("the files were not read")
	}
	if got := Diff(a, b); len(got) != 0 {
		t.Errorf("changes %v, want none", got)
	}
}

func TestTheFingerprintIsOfWhatWorkersShare(t *testing.T) {
	t.Parallel()
	a := mustParse(t, minimal(t))
	own := mustParse(t, minimal(t), "SPILLWAY_HTTP_LISTEN=127.0.0.1:1", "SPILLWAY_KAFKA_CLIENT_ID=w2")
	other := mustParse(t, minimal(t), "SPILLWAY_ROUTES_WALLET_PERMITS_LIMIT=51")
	if a.Fingerprint() != own.Fingerprint() || a.Fingerprint() == other.Fingerprint() || a.Fingerprint() >= 1<<48 {
		t.Errorf("fingerprints %x, %x with its own address, %x with another limit", a.Fingerprint(), own.Fingerprint(), other.Fingerprint())
	}
	if own.HTTP.Listen != "127.0.0.1:1" {
		t.Error("taking a fingerprint changed the config")
	}
}

func TestTheSettingsOfTheBrakesAreHot(t *testing.T) {
	t.Parallel()
	hot := map[string]bool{}
	for _, s := range Settings() {
		if !s.Section {
			hot[s.Path] = s.Hot
		}
	}
	for path, want := range map[string]bool{
		"routes[].permits.limit": true, "routes[].permits.wait": true, "routes[].permits.shares.live": true,
		"routes[].prefetch.bytes": true, "routes[].prefetch.partition_bytes": true, "routes[].prefetch.records": true,
		"log.level": true, "reload.poll": true, "routes[].rate.limit": true, "routes[].rate.tenant.limit": true, "routes[].replay.rate": true,
		"routes[].compensate.rate": true, "routes[].rate.tenant.from": false,
		"log.format": false, "kafka.brokers": false, "routes[].name": false, "routes[].topic": false,
		"routes[].breaker.window": false, "routes[].downstream.url": false, "routes[].lease": false,
	} {
		if got, known := hot[path]; !known || got != want {
			t.Errorf("%s: hot %v (a setting: %v), want %v", path, got, known, want)
		}
	}
}

// TestWhatAFileCanHoldIsNotWrong reads values back as they are printed.
func TestWhatAFileCanHoldIsNotWrong(t *testing.T) {
	t.Parallel()
	var wrong []string
	look := func(v any, f field, text string) {
		p := reflect.New(reflect.TypeOf(v)).Elem()
		f.typ = p.Type()
		if why := f.set(p, text); why != "" {
			t.Fatalf("%s %s", text, why)
		}
		d := differ{changes: make([]Change, 1)}
		if d.judge(&f, p); d.changes[0].Wrong != "" {
			wrong = append(wrong, text+" "+d.changes[0].Wrong)
		}
	}
	for i := range 5000 {
		n := strconv.Itoa(i + 1)
		for _, unit := range []string{"/s", "/m", "/h"} {
			look(Rate(0), field{min: "none", max: "1000000/s"}, n+unit)
			look(Rate(0), field{min: "none", max: "1000000/s"}, n+".7"+unit)
		}
		look(Percent(0), field{min: "0%", max: "100%"}, "0."+n+"%")
		look(time.Duration(0), field{min: "0s", max: "24h"}, n+"ms")
		look(time.Duration(0), field{min: "0s", max: "24h"}, n+".3s")
		look(Size(0), field{min: "0B", max: "16GiB"}, n+"kB")
	}
	look(Rate(0), field{min: "none", max: "1000000/s"}, "none")
	if len(wrong) > 0 {
		t.Errorf("%d are, such as %v", len(wrong), wrong[:min(len(wrong), 5)])
	}
}
