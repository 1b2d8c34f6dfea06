package drill

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"spillway/internal/testkit"
)

// The canaries: what must never come out anywhere. Each holds the mark, some of them what must be escaped on the way.
const (
	mark            = "c4nary"
	redisPassword   = "C4naryRedis+default=7" // of the default user
	redisUserSecret = "C4naryRedis/user@7"
	pgPassword      = "C4naryPg:/@ ?7"
	kafkaPassword   = `C4naryKafka"\7`
	bearerToken     = "C4naryBearer.abc-7"
	stray           = "C4naryStray7" // in what is wrong, mistyped or in the wrong place
)

// scan fails the test if text gives a secret away, whole, in part, in another case of letters, or encoded.
func scan(t *testing.T, what, text string) {
	t.Helper()
	low := strings.ToLower(text)
	if i := strings.Index(low, mark); i >= 0 {
		t.Errorf("%s gives a secret away: …%s…", what, text[max(0, i-120):min(len(text), i+60)])
		return
	}
	for _, secret := range []string{redisPassword, redisUserSecret, pgPassword, kafkaPassword, bearerToken, stray} {
		for _, form := range []string{
			base64.StdEncoding.EncodeToString([]byte(secret)), base64.RawURLEncoding.EncodeToString([]byte(secret)),
			base64.StdEncoding.EncodeToString([]byte("\x00" + vaultUser + "\x00" + secret)),
			base64.StdEncoding.EncodeToString([]byte(vaultUser + ":" + secret)), hex.EncodeToString([]byte(secret)),
		} {
			if i := strings.Index(low, strings.ToLower(form)); i >= 0 {
				t.Errorf("%s gives a secret away, encoded: …%s…", what, text[max(0, i-120):min(len(text), i+120)])
			}
		}
	}
}

// run runs the command to its end and scans what it prints.
func (v *vault) run(t *testing.T, env []string, args ...string) (out string, code int) {
	t.Helper()
	p := v.launch(t, env, args...)
	code = p.Wait(40 * time.Second)
	scan(t, "spillway "+strings.Join(args, " "), p.Output())
	return p.Output(), code
}

func (v *vault) launch(t *testing.T, env []string, args ...string) *testkit.Proc {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return testkit.Command(t, path, args, slices.Concat(v.env, env))
}

// pages reads and scans everything a worker serves, and returns it.
func (v *vault) pages(t *testing.T, addr string) string {
	t.Helper()
	r := &rig{t: t}
	all := ""
	for _, path := range []string{"/metrics", "/readyz", "/livez", "/breakers"} {
		body, status := r.get("http://" + addr + path)
		if status != http.StatusOK && path != "/readyz" {
			t.Errorf("%s: %d", path, status)
		}
		scan(t, path, body)
		all += body
	}
	return all
}

// TestNoSecretComesOut is case I3: whatever goes right or wrong, no secret is printed, served or stored, and where the
// servers stand still is.
func TestNoSecretComesOut(t *testing.T) {
	t.Parallel()
	testkit.Redis(t) // without the services there are no programs to start servers of our own from
	v := newVault(t)
	if out, code := v.run(t, nil, "migrate", "up", "-c", v.file); code != 0 {
		t.Fatalf("migrate up: exit %d:\n%s", code, out)
	}
	v.workInPeace(t)
	v.loseDownstream(t)
	for name, group := range map[string]func(*testing.T){
		"wrong password": v.wrongPasswords, "unreachable": v.unreachable, "malformed": v.malformed, "mistyped": v.mistyped,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group(t)
		})
	}
}

// workInPeace runs a worker whose secrets are right, over a downstream that echoes them.
func (v *vault) workInPeace(t *testing.T) {
	t.Helper()
	v.produce("DENIED-1", "BAD-1", "ODD-1", "MOVED-1", "BROKEN-1")
	p := v.launch(t, nil, "worker", "-c", v.file)
	r := &rig{t: t}
	addr := r.addr(p)
	testkit.Eventually(t, 30*time.Second, func() (bool, string) {
		ready, checks := r.ready(addr)
		return ready, fmt.Sprintf("not ready: %v\n%s", checks, tail(p.Output()))
	})
	list := []string{"admin", "dead-letters", "list", "-c", v.file}
	testkit.Eventually(t, 30*time.Second, func() (bool, string) {
		out, _ := v.run(t, nil, list...)
		return strings.Contains(out, "DENIED-1") && strings.Contains(out, "BAD-1"), out
	})
	testkit.Eventually(t, 30*time.Second, func() (bool, string) { // looked up, so that the lookup's details are there too
		out, _ := v.run(t, nil, "admin", "orders", "show", "BROKEN-1", "-c", v.file)
		return strings.Contains(out, "500 Internal") && strings.Contains(out, "502 Bad Gateway"), out
	})
	for _, args := range [][]string{
		append(list, "--json"),
		{"admin", "dead-letters", "show", "1"},
		{"admin", "dead-letters", "show", "2"},
		{"admin", "dead-letters", "show", "1", "--json"},
		{"admin", "dead-letters", "show", "2", "--json"},
		{"admin", "dead-letters", "show", "1", "--raw"},
		{"admin", "orders", "list"},
		{"admin", "orders", "list", "--json"},
		{"admin", "orders", "show", "DENIED-1"},
		{"admin", "orders", "show", "BAD-1", "--json"},
		{"admin", "orders", "show", "ODD-1"},
		{"admin", "orders", "show", "MOVED-1"},
		{"admin", "orders", "show", "BROKEN-1", "--json"},
		{"admin", "replay", "status"},
		{"admin", "replay", "status", "--json"},
		{"admin", "breakers", "list", "--worker", "http://" + addr},
		{"migrate", "status"},
		{"config", "check"},
		{"config", "check", "--json"},
		{"config", "show"},
	} {
		if !slices.Contains(args, "-c") {
			args = append(slices.Clip(args), "-c", v.file)
		}
		if out, code := v.run(t, nil, args...); code != 0 {
			t.Errorf("%q: exit %d:\n%s", args, code, out)
		}
	}
	shown, _ := v.run(t, nil, "config", "show", "-c", v.file)
	for _, server := range []string{v.redis, v.postgres, v.kafka, v.service} {
		if !strings.Contains(shown, server) {
			t.Errorf("config show hides %s:\n%s", server, shown)
		}
	}
	v.pages(t, addr)
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	scan(t, "the command line", string(bytes.ReplaceAll(cmdline, []byte{0}, []byte(" "))))
	v.scanDatabase(t)

	p.Signal(syscall.SIGQUIT) // the runtime prints every goroutine, as it does after a panic
	p.Wait(20 * time.Second)
	if !strings.Contains(p.Output(), "goroutine ") {
		t.Errorf("no stacks were printed:\n%s", tail(p.Output()))
	}
	scan(t, "the worker's log and stacks", p.Output())
}

// scanDatabase looks at every row that the worker wrote.
func (v *vault) scanDatabase(t *testing.T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), v.postgresURL(v.postgres, pgPassword))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for _, table := range []string{"orders", "order_history", "dead_letters"} {
		var rows string
		if err := conn.QueryRow(t.Context(), "SELECT coalesce(string_agg(x::text, E'\\n'), '') FROM "+table+" x").Scan(&rows); err != nil {
			t.Fatal(err)
		}
		if rows == "" {
			t.Errorf("table %s is empty", table)
		}
		scan(t, "table "+table, rows)
	}
}

// nowhere is an address that nothing listens on.
const nowhere = "127.0.0.1:1"

// loseDownstream sends an order to a service that is away. No other worker runs that could take it.
func (v *vault) loseDownstream(t *testing.T) {
	t.Helper()
	v.produce("GONE-1")
	env := []string{"SPILLWAY_ROUTES_WALLET_DOWNSTREAM_URL=http://" + nowhere}
	p := v.launch(t, env, "worker", "-c", v.file)
	addr := (&rig{t: t}).addr(p)
	testkit.Eventually(t, 30*time.Second, func() (bool, string) {
		out, _ := v.run(t, env, "admin", "orders", "show", "GONE-1", "-c", v.file)
		return strings.Contains(out, "CONNECT_FAILED") && strings.Contains(out, nowhere), out
	})
	v.pages(t, addr)
	p.Kill()
	scan(t, "the worker", p.Output())
}

// fault is one thing wrong with the environment of a worker.
type fault struct {
	name  string
	env   []string // the variables that make it so
	shows string   // where the server stands: what people need to find the fault
	ends  bool     // whether the worker can't start
	tells string   // what the worker says of it, in its log or at /readyz
}

func (v *vault) wrongPasswords(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kafka-password")
	if err := os.WriteFile(file, []byte(stray), 0o600); err != nil {
		t.Fatal(err)
	}
	wrong := "SPILLWAY_KAFKA_SASL_PASSWORD_FILE=" + file
	for _, f := range []fault{
		{"redis default user", []string{"SPILLWAY_REDIS_URL=" + v.redisURL("", stray)}, v.redis, false, "WRONGPASS"},
		{"redis user", []string{"SPILLWAY_REDIS_URL=" + v.redisURL(vaultUser, stray)}, v.redis, false, "WRONGPASS"},
		{"postgres", []string{"SPILLWAY_POSTGRES_URL=" + v.postgresURL(v.postgres, stray)}, v.postgres, true, "password authentication failed"},
		{"kafka plain", []string{wrong}, v.kafka, false, "SASL authentication was refused"},
		{"kafka scram", []string{wrong, "SPILLWAY_KAFKA_SASL_MECHANISM=scram-sha-256"}, v.kafka, false, "SASL authentication was refused"},
		{"kafka mechanism", []string{"SPILLWAY_KAFKA_SASL_MECHANISM=scram-sha-512"}, v.kafka, false, "SASL"},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			v.suffer(t, f)
		})
	}
}

func (v *vault) unreachable(t *testing.T) {
	t.Helper()
	for _, f := range []fault{
		{"redis", []string{"SPILLWAY_REDIS_URL=redis://:C4naryRedis@" + nowhere}, nowhere, false, "refused"},
		{"redis host", []string{"SPILLWAY_REDIS_URL=redis://u:C4naryRedis@no-such-host.invalid:6379"}, "no-such-host.invalid", false, "replay:wallet"},
		{"postgres", []string{"SPILLWAY_POSTGRES_URL=" + v.postgresURL(nowhere, pgPassword)}, nowhere, true, "refused"},
		{"postgres host", []string{"SPILLWAY_POSTGRES_URL=" + v.postgresURL("no-such-host.invalid:5432", pgPassword)}, "no-such-host.invalid", true, "no-such-host"},
		{"kafka", []string{"SPILLWAY_KAFKA_BROKERS=" + nowhere}, nowhere, false, "refused"},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			v.suffer(t, f)
		})
	}
}

// suffer runs a worker and the commands under a fault, scans all they say, and looks for the server's place in it.
func (v *vault) suffer(t *testing.T, f fault) {
	t.Helper()
	// A group of its own: the workers of these tests run side by side.
	env := append(slices.Clip(f.env), "SPILLWAY_ROUTES_WALLET_GROUP=g-"+strings.NewReplacer(" ", "-", "/", "-").Replace(t.Name()))
	p := v.launch(t, env, "worker", "-c", v.file)
	said := ""
	if f.ends {
		if code := p.Wait(40 * time.Second); code != 1 {
			t.Errorf("exit %d", code)
		}
		said = p.Output()
	} else {
		r := &rig{t: t}
		addr := r.addr(p)
		testkit.Eventually(t, 30*time.Second, func() (bool, string) {
			said = p.Output() + v.pages(t, addr)
			return strings.Contains(said, f.tells), "the worker does not say " + f.tells + ":\n" + tail(said)
		})
		p.Signal(syscall.SIGTERM)
		p.Wait(20 * time.Second)
		said += p.Output()
	}
	scan(t, "the worker", said)
	if !strings.Contains(said, f.tells) {
		t.Errorf("the worker does not say %q:\n%s", f.tells, tail(said))
	}
	for _, args := range [][]string{
		{"admin", "orders", "list", "--timeout", "2s"},
		{"admin", "dead-letters", "requeue", "999", "--timeout", "2s"},
		{"admin", "replay", "status", "--timeout", "2s"},
		{"migrate", "status"},
		{"config", "check"},
		{"config", "show"},
	} {
		out, _ := v.run(t, env, append(args, "-c", v.file)...)
		if args[1] != "show" { // where the settings are listed it is no wonder
			said += out
		}
	}
	if !strings.Contains(said, f.shows) {
		t.Errorf("nothing says where the server stands (%s):\n%s", f.shows, tail(said))
	}
}

// malformed gives addresses that nobody can parse, in the file and in the environment: they are refused before anything
// is connected to, and not echoed whole.
func (v *vault) malformed(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(v.file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for name, c := range map[string]struct{ line, broken, env, shows string }{
		"redis":      {"redis:", `redis: {url: "redis://:C4nary@ho st:99999"}`, "SPILLWAY_REDIS_URL=redis://:C4nary@ho st:99999", "ho st:99999"},
		"redis port": {"redis:", `redis: {url: "redis://C4nary@127.0.0.1:99999/0"}`, "SPILLWAY_REDIS_URL=redis://u:C4nary@127.0.0.1:99999", "127.0.0.1:99999"},
		"redis text": {"redis:", `redis: {url: "C4nary%zz"}`, "SPILLWAY_REDIS_URL=//C4nary%zz", "redis.url"},
		"postgres": {
			"postgres:", `postgres: {url: "postgres://u:C4nary@ho st:99999/db"}`, "SPILLWAY_POSTGRES_URL=postgres://u:C4nary@ho st:99999/db", "ho st:99999",
		},
		"postgres words": {
			"postgres:", `postgres: {url: "host=h user=u password=C4nary"}`, "SPILLWAY_POSTGRES_URL=host=h password=C4nary", "postgres.url",
		},
		"downstream": {
			"      url:", `      url: "http://u:C4nary@ho st:99999"`, "SPILLWAY_ROUTES_WALLET_DOWNSTREAM_URL=http://u:C4nary@ho st:99999", "ho st:99999",
		},
		"downstream user": {
			"      url:", `      url: "http://u:C4nary@127.0.0.1:99"`, "SPILLWAY_ROUTES_WALLET_DOWNSTREAM_URL=http://u:C4nary@127.0.0.1:99", "127.0.0.1:99",
		},
		"bearer": {
			"      timeout:", `      bearer_token: "C4nary with blanks"`, "SPILLWAY_ROUTES_WALLET_DOWNSTREAM_BEARER_TOKEN=C4nary\x01x", "bearer_token",
		},
		"kafka": {
			"  brokers:", `  brokers: ["keeper:C4nary@ho st:99999"]`, "SPILLWAY_KAFKA_BROKERS=keeper:C4nary@ho st:99999", "ho st:99999",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken := slices.Clone(lines)
			at := slices.IndexFunc(broken, func(l string) bool { return strings.HasPrefix(l, c.line) })
			broken[at] = c.broken
			file := filepath.Join(t.TempDir(), "broken.yaml")
			if err := os.WriteFile(file, []byte(strings.Join(broken, "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			variable, _, _ := strings.Cut(c.env, "=")
			v.refuse(t, file, []string{variable + "="}, c.shows)
			v.refuse(t, v.file, []string{c.env}, c.shows)
		})
	}
}

// refuse wants every command to refuse the settings, naming the place and not the secret.
func (v *vault) refuse(t *testing.T, file string, env []string, shows string) {
	t.Helper()
	for _, args := range [][]string{
		{"config", "check"}, {"config", "check", "--json"}, {"config", "show"}, {"worker"}, {"migrate", "status"}, {"admin", "replay", "status"},
	} {
		out, code := v.run(t, env, append(args, "-c", file)...)
		if code != 2 || !strings.Contains(out, shows) {
			t.Errorf("%q with %v: exit %d, want 2 and %q in\n%s", args, env, code, shows, out)
		}
	}
}

// mistyped puts secrets where none belongs, as tired people do.
func (v *vault) mistyped(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(v.file)
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secret, []byte("C4nary with blanks"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		old, new, env string
	}{
		"an unknown key":       {"redis: {", `redis: {pasword: "C4nary", `, ""},
		"a list":               {"redis: {", `redis: {password_file: [C4nary], `, ""},
		"a section":            {"password_file:", `password: {plain: "C4nary"}, username:`, ""},
		"an open quote":        {"redis: {", `redis: {password_file: "C4nary, `, ""},
		"a tab":                {"redis: {", "redis:\n\tpassword: C4nary\nx: {", ""},
		"a tag":                {"redis: {", `redis: {password_file: !secret C4nary, `, ""},
		"an anchor":            {"redis: {", `redis: {password_file: &C4nary x, `, ""},
		"twice":                {"redis: {", "redis: {url: \"redis://:C4nary@h:1\", ", ""},
		"a scalar for a map":   {"headers: {", "headers: C4nary\n      max_answer: {", ""},
		"a list of headers":    {"headers: {", "headers: [C4nary]\n      max_answer: {", ""},
		"an unknown variable":  {"", "", "SPILLWAY_REDIS_PASSWORD=C4nary"},
		"a number of a secret": {"password_file:", "password: 0x_C4nary, nonsense:", ""},
		"an unwanted secret":   {"mechanism: plain", `mechanism: none, password: "C4nary"`, ""},
		"a mechanism":          {"mechanism: plain", `mechanism: plain, password: "C4nary"`, ""},
		"a secret's file":      {"      timeout:", "      bearer_token_file: \"FILE\"\n      timeout:", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, env := v.file, []string{"SPILLWAY_ROUTES_WALLET_DOWNSTREAM_BEARER_TOKEN="}
			if c.env != "" {
				env = []string{c.env}
			}
			if c.old != "" {
				if !strings.Contains(string(text), c.old) {
					t.Fatalf("the settings have no %q", c.old)
				}
				file = filepath.Join(t.TempDir(), "mistyped.yaml")
				if err := os.WriteFile(file, []byte(strings.Replace(string(text), c.old, strings.Replace(c.new, "FILE", secret, 1), 1)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, args := range [][]string{{"config", "check"}, {"config", "check", "--json"}, {"worker"}} {
				out, code := v.run(t, env, append(args, "-c", file)...)
				if code != 2 {
					t.Errorf("%q: exit %d, want 2:\n%s", args, code, out)
				}
			}
		})
	}
}
