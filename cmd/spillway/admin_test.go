package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/postgres"
	"spillway/internal/redis"
	"spillway/internal/testkit"
	"spillway/order"
	"spillway/replay"
)

func TestHelpOfTheAdminCommandsIsAsWritten(t *testing.T) {
	t.Parallel()
	for _, command := range []string{
		"admin", "admin orders", "admin orders list", "admin orders show", "admin dead-letters", "admin dead-letters list",
		"admin dead-letters show", "admin dead-letters requeue", "admin dead-letters discard", "admin replay",
		"admin replay status", "admin breakers", "admin breakers list", "admin breakers show", "admin breakers force-open",
		"admin breakers force-close", "admin breakers observe", "admin breakers release",
	} {
		code, out, errs := spill(t, nil, append(strings.Fields(command), "--help")...)
		if code != exitOK || errs != "" {
			t.Errorf("%s --help: exit %d, %s", command, code, errs)
		}
		path := filepath.Join("testdata", "help", strings.ReplaceAll(command, " ", "-")+".txt")
		if *update {
			if err := os.WriteFile(path, []byte(out), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if out != string(want) {
			t.Errorf("%s --help is\n%s\nwant\n%s", command, out, want)
		}
		if fields := strings.Fields(command); len(fields) == 3 && !strings.Contains(out, "Exit codes: 0 ") {
			t.Errorf("%s --help does not say the exit codes", command)
		}
	}
}

func TestAMistakeOnTheAdminCommandLineSaysWhatIsAccepted(t *testing.T) {
	t.Parallel()
	path := example(t)
	for _, c := range []struct{ args, want string }{
		{"orders list --state DONE", "want PROCESSING, SUCCEEDED, FAILED, DEAD or DISCARDED"},
		{"orders list --phase GONE", "want IN_FLIGHT, REPLAYING or UNKNOWN"},
		{"orders list --phase UNKNOWN --state DEAD", "want --state PROCESSING or none"},
		{"orders list --older-than 5", "want a duration with its unit, such as 90s, 15m or 24h"},
		{"orders list --older-than=-5m", "want a duration with its unit"},
		{"orders list --limit 0", "want 1 to 1000"},
		{"orders list --limit 1001", "want 1 to 1000"},
		{"orders list --before x", "want an id as the listing shows it"},
		{"orders list --timeout 0s", "want a duration with its unit"},
		{"orders show", "expected \"<number>\""},
		{"dead-letters list --status open", "want waiting, requeued, discarded or all"},
		{"dead-letters list --reason BECAUSE", "want one of [CONFIRMED"},
		{"dead-letters show one", "want an id as the listing shows it"},
		{"dead-letters show 99999999999999999999", "want an id as the listing shows it"},
		{"dead-letters show 1 --raw --json", "--raw and --json: want one of them"},
		{"dead-letters requeue", "want ids, or --all"},
		{"dead-letters requeue 1 --all", "want one or the other"},
		{"dead-letters requeue 1 --route wallet", "want --all with it, or ids alone"},
		{"dead-letters requeue --all", "want --dry-run to see which, or --yes to do it"},
		{"dead-letters requeue --all --yes --dry-run", "want one of them"},
		{"dead-letters requeue --all --yes --limit 10001", "want 1 to 10000"},
		{"dead-letters requeue 1 --by " + strings.Repeat("x", 129), "want 1 to 128"},
		{"dead-letters discard 1", "missing flags: --note=TEXT"},
		{"breakers list --worker 127.0.0.1:9464", "want http://host:port"},
		{"breakers list --worker http://u:C4NARY@127.0.0.1:9464", "want http://host:port"},
	} {
		args := append([]string{"admin"}, strings.Fields(c.args)...)
		code, out, errs := spill(t, nil, append(args, "-c", path)...)
		if code != exitUsage || out != "" || !strings.Contains(errs, c.want) || strings.Contains(errs, "C4NARY") {
			t.Errorf("%s: exit %d, out %q, err %q, want %q in it", c.args, code, out, errs, c.want)
		}
	}
	code, _, errs := spill(t, []string{"SPILLWAY_HTTP_LISTEN=127.0.0.1:0"}, "admin", "breakers", "list", "-c", path)
	if code != exitUsage || !strings.Contains(errs, "want --worker http://host:port") {
		t.Errorf("breakers of a worker on port 0: exit %d, %q", code, errs)
	}
}

func TestRawBytesAreNotWrittenToATerminal(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	code := run([]string{"admin", "dead-letters", "show", "1", "--raw", "-c", example(t)}, &surroundings{
		ctx: t.Context(), in: strings.NewReader(""), out: &stdout, err: &stderr, stdoutTerminal: true,
	})
	if code != exitUsage || !strings.Contains(stderr.String(), "want a file or a pipe") {
		t.Errorf("exit %d, %q", code, stderr.String())
	}
}

func TestAServerThatIsAwayIsExitOneAndNamed(t *testing.T) {
	t.Parallel()
	// Port 1 on loopback: nothing listens there.
	path := example(t, "redis://127.0.0.1:6379/0", "redis://:C4NARY@127.0.0.1:1/0",
		"postgres://spillway@127.0.0.1:5432/spillway", "postgres://spillway:C4NARY@127.0.0.1:1/spillway")
	for _, c := range []struct {
		args string
		want []string
	}{
		{"orders list", []string{"127.0.0.1"}},
		{"orders show T-1", []string{"127.0.0.1"}},
		{"dead-letters list", []string{"127.0.0.1"}},
		{"dead-letters requeue 1", []string{"127.0.0.1"}},
		{"replay status", []string{"Redis at 127.0.0.1:1 is away", "connection refused", "spillway: Redis is away"}},
		{"replay status --json", []string{`"redis":"127.0.0.1:1"`, `"away":`, `"queues":[]`}},
		{"breakers list --worker http://127.0.0.1:1", []string{"no answer from http://127.0.0.1:1", "1 of 1 workers did not answer"}},
		{"breakers list --json --worker http://127.0.0.1:1", []string{`"worker":"http://127.0.0.1:1","error":`}},
	} {
		args := append([]string{"admin"}, strings.Fields(c.args)...)
		began := time.Now()
		code, out, errs := spill(t, nil, append(args, "-c", path, "--timeout", "2s")...)
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s took %s", c.args, took)
		}
		if code != exitFailure || strings.Contains(out+errs, "C4NARY") {
			t.Errorf("%s: exit %d, out %q, err %q", c.args, code, out, errs)
		}
		for _, want := range c.want {
			if !strings.Contains(out+errs, want) {
				t.Errorf("%s says %q and %q, want %q", c.args, out, errs, want)
			}
		}
	}
}

// office is an operator's desk over real servers, with a database of its own.
type office struct {
	*testing.T
	store *postgres.Store
	file  string
}

func newOffice(t *testing.T, changes ...string) *office {
	t.Helper()
	db := postgres.Config{URL: testkit.Postgres(t)}
	if _, err := postgres.Migrate(t.Context(), db, postgres.Up); err != nil {
		t.Fatal(err)
	}
	store, err := postgres.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return &office{T: t, store: store, file: example(t, append(changes, "postgres://spillway@127.0.0.1:5432/spillway", db.URL)...)}
}

func (o *office) must(err error) {
	o.Helper()
	if err != nil {
		o.Fatal(err)
	}
}

// do runs an admin command and checks its exit code.
func (o *office) do(code int, args ...string) (out, errs string) {
	o.Helper()
	got, out, errs := spill(o.T, nil, append(append([]string{"admin"}, args...), "-c", o.file)...)
	if got != code {
		o.Errorf("%q: exit %d, want %d:\n%s%s", args, got, code, out, errs)
	}
	return out, errs
}

// ask is do for JSON.
func (o *office) ask(code int, into any, args ...string) {
	o.Helper()
	out, _ := o.do(code, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		o.Fatalf("%q: %v:\n%s", args, err, out)
	}
}

// kill admits an order and lets it end as a dead letter, whose id it returns.
func (o *office) kill(number, value string) int64 {
	o.Helper()
	admitted, err := o.store.Admit(o.Context(), "wallet", "worker-1", time.Minute, []order.Admission{{
		Number: number, Message: order.Message{Topic: "orders.in", Offset: int64(len(number)), Key: []byte(number), Value: []byte(value), Time: time.Now()},
	}})
	o.must(err)
	_, err = o.store.Settle(o.Context(), "worker-1", []order.Settlement{admitted[0].Order.Settle(order.Transition{
		State: order.Dead, Attempts: 3, AttemptsTotal: 3, Outcome: order.OutcomeOverloaded, Reason: order.AttemptsExhausted, Detail: "503",
	})})
	o.must(err)
	v, err := o.store.ShowOrder(o.Context(), "wallet", number)
	o.must(err)
	return v.Letter
}

// bury writes a dead letter of a record that is no order, and returns its id.
func (o *office) bury(m order.Message, why order.Reason) int64 {
	o.Helper()
	m.Topic = "orders.in"
	o.must(o.store.Bury(o.Context(), []order.DeadRecord{{Route: "wallet", Message: m, Reason: why, Detail: "as it was then"}}))
	ls, err := o.store.ListDeadLetters(o.Context(), desk.LetterFilter{Limit: 1})
	o.must(err)
	return ls[0].ID
}

type resolved struct {
	DryRun  bool `json:"dry_run"`
	Done    int
	NotDone int `json:"not_done"`
	Letters []struct {
		ID      int64
		Result  string
		OrderID int64 `json:"order_id"`
		Number  string
		Why     string
	}
}

func TestDeadLettersAreSentBackAndGivenUp(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	first, second, third := o.kill("T-1", "a"), o.kill("T-2", "b"), o.kill("X-3", "c")
	keyed := o.bury(order.Message{Offset: 10, Key: []byte("T-10"), Value: []byte("d")}, order.NoNumber)
	keyless := o.bury(order.Message{Offset: 11, Value: []byte("e")}, order.NoNumber)
	id := func(n int64) string { return strconv.FormatInt(n, 10) }

	var r resolved
	o.ask(exitOK, &r, "dead-letters", "requeue", id(first), id(keyed), "--dry-run")
	if !r.DryRun || r.Done != 2 || r.Letters[1].Result != "would_requeue" || r.Letters[1].Number != "T-10" {
		t.Errorf("dry run %+v", r)
	}
	o.ask(exitFailure, &r, "dead-letters", "requeue", id(first), id(keyed), id(keyless), "999999", "--by", "ann", "--note", "mended")
	if r.DryRun || r.Done != 2 || r.NotDone != 2 || r.Letters[2].Result != "refused" || r.Letters[3].Result != "not_found" ||
		!strings.Contains(r.Letters[2].Why, "NO_BUSINESS_NUMBER: the record's key is null") {
		t.Errorf("requeued %+v", r)
	}
	v, err := o.store.ShowOrder(t.Context(), "wallet", "T-1")
	o.must(err)
	if v.Order.State != order.Processing || v.Order.Phase != order.Unknown || v.Order.Life != 1 || v.History[len(v.History)-1].Actor != "ann" {
		t.Errorf("T-1 stands at %+v", v.Order)
	}
	if v, err = o.store.ShowOrder(t.Context(), "wallet", "T-10"); err != nil || v.Order.Phase != order.Replaying {
		t.Errorf("T-10 stands at %+v, %v", v.Order, err)
	}
	out, errs := o.do(exitFailure, "dead-letters", "requeue", id(first))
	if !strings.Contains(out, "resolved_already") || !strings.Contains(out, "requeued by ann") || !strings.Contains(errs, "1 of 1 dead letters were not requeued") {
		t.Errorf("requeued twice: %q, %q", out, errs)
	}

	o.ask(exitOK, &r, "dead-letters", "requeue", "--all", "--prefix", "T-", "--route", "wallet", "--yes")
	if len(r.Letters) != 1 || r.Letters[0].ID != second {
		t.Errorf("all of T-: %+v", r)
	}
	_, errs = o.do(exitOK, "dead-letters", "requeue", "--all", "--route", "nowhere", "--yes")
	if !strings.Contains(errs, `no route "nowhere"; they have: wallet`) {
		t.Errorf("an unknown route: %q", errs)
	}
	out, _ = o.do(exitOK, "dead-letters", "discard", id(third), id(keyless), "--note", "never meant to be paid", "--by", "bob")
	if strings.Count(out, "discarded") != 2 {
		t.Errorf("discarded: %q", out)
	}
	if v, err = o.store.ShowOrder(t.Context(), "wallet", "X-3"); err != nil || v.Order.State != order.Discarded {
		t.Errorf("X-3 stands at %+v, %v", v.Order, err)
	}
	var list struct {
		Letters []struct{ ID int64 } `json:"dead_letters"`
	}
	o.ask(exitOK, &list, "dead-letters", "list")
	if len(list.Letters) != 0 {
		t.Errorf("still waiting: %+v", list)
	}
	o.ask(exitOK, &list, "dead-letters", "list", "--status", "all")
	if len(list.Letters) != 5 {
		t.Errorf("of all: %+v", list)
	}
}

func TestOrdersAreFoundByTheirFilters(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.kill("T-1", "a")
	_, err := o.store.Admit(t.Context(), "wallet", "worker-1", time.Minute, []order.Admission{
		{Number: "T-2", Message: order.Message{Topic: "orders.in", Value: []byte("b")}},
		{Number: "U-3", Message: order.Message{Topic: "orders.in", Value: []byte("c")}},
	})
	o.must(err)
	for args, want := range map[string]string{
		"":                                  "[U-3 T-2 T-1]",
		"--state dead":                      "[T-1]",
		"--phase in_flight":                 "[U-3 T-2]",
		"--phase in_flight --prefix T":      "[T-2]",
		"--phase REPLAYING":                 "[]",
		"--older-than 1h":                   "[]",
		"--limit 1":                         "[U-3]",
		"--route wallet --state PROCESSING": "[U-3 T-2]",
	} {
		var list struct{ Orders []struct{ Number string } }
		o.ask(exitOK, &list, append([]string{"orders", "list"}, strings.Fields(args)...)...)
		numbers := []string{}
		for _, row := range list.Orders {
			numbers = append(numbers, row.Number)
		}
		if got := fmt.Sprint(numbers); got != want {
			t.Errorf("orders list %s: %s, want %s", args, got, want)
		}
	}
	out, _ := o.do(exitOK, "orders", "show", "T-1")
	for _, want := range []string{"order T-1 of route wallet: DEAD", "admitted    -           PROCESSING, IN_FLIGHT", "PROCESSING  DEAD", "| a"} {
		if !strings.Contains(out, want) {
			t.Errorf("T-1 is shown without %q:\n%s", want, out)
		}
	}
	_, errs := o.do(exitFailure, "orders", "show", "T-9", "--route", "ledger")
	if !strings.Contains(errs, `order "T-9" of route "ledger": not found`) || !strings.Contains(errs, "they have: wallet") {
		t.Errorf("of no order: %q", errs)
	}
}

// TestHostileTextReachesTheTerminalEscaped is the command line's part of what a hostile payload may try.
func TestHostileTextReachesTheTerminalEscaped(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	evil := "<img src=x onerror=\"document.title='pwn'\"> </script><script>1</script> {{7*7}} javascript:alert(1) " +
		"\x1b[2J\x1b]0;pwn\x07 \u009b31m \x9b31m \u202e a\r\nb\x00"
	long := append([]byte(evil), bytes.Repeat([]byte{0x1b, '[', 'm', 0xff}, 5000)...)
	m := order.Message{Offset: 1, Key: []byte(evil), Value: long, Headers: []order.Header{{Key: evil, Value: []byte(evil)}}}
	id := o.bury(m, order.Undecodable)
	o.must(o.store.Bury(t.Context(), []order.DeadRecord{{Route: desk.Fit(evil), Number: evil, Message: m, Reason: order.Reason(desk.Fit(evil)), Detail: evil}}))
	show := []string{"dead-letters", "show", strconv.FormatInt(id, 10)}
	all := ""
	for _, args := range [][]string{
		{"dead-letters", "list"},
		{"dead-letters", "list", "--json"},
		{"dead-letters", "list", "--route", desk.Fit(evil)},
		{"orders", "list", "--route", evil},
		show, append(show, "--json"),
		{"dead-letters", "requeue", strconv.FormatInt(id, 10), strconv.FormatInt(id+1, 10), "--by", "ann\x1b[2J"},
		{"orders", "show", "\x1b[2J"},
		{"orders", "show", "T", "--route", evil},
	} {
		_, out, errs := spill(t, nil, append(append([]string{"admin"}, args...), "-c", o.file)...)
		all += out + errs
		for _, r := range out + errs {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("%q prints %U:\n%q", args, r, out+errs)
				break
			}
		}
	}
	for _, want := range []string{
		"<img src=x onerror=", "</script><script>1</script>", "{{7*7}}", `\x1b[2J\x1b]0;pwn\a`, `\u009b31m`, `\x9b31m`, `\u202e`, `a\r`,
		fmt.Sprintf("of %d bytes; all of them: spillway admin dead-letters show %d --raw > FILE", len(long), id),
	} {
		if !strings.Contains(all, want) {
			t.Errorf("nothing shows %q", want)
		}
	}

	raw, errs := o.do(exitOK, append(show, "--raw")...)
	if raw != string(long) || errs != "" {
		t.Errorf("--raw gives %d bytes, want %d; %q", len(raw), len(long), errs)
	}
	var view struct{ Record struct{ Key, Value string } }
	o.ask(exitOK, &view, show...)
	if view.Record.Value != base64.StdEncoding.EncodeToString(long) || view.Record.Key != base64.StdEncoding.EncodeToString([]byte(evil)) {
		t.Error("--json does not have the exact bytes")
	}
	null := o.bury(order.Message{Offset: 2}, order.NullValue)
	out, errs := o.do(exitOK, "dead-letters", "show", strconv.FormatInt(null, 10), "--raw")
	if out != "" || !strings.Contains(errs, "the value is null") {
		t.Errorf("--raw of null: %q, %q", out, errs)
	}
}

func TestAdminRefusesAnOutOfDateSchema(t *testing.T) {
	t.Parallel()
	path := example(t, "postgres://spillway@127.0.0.1:5432/spillway", testkit.Postgres(t))
	code, out, errs := spill(t, nil, "admin", "orders", "list", "-c", path)
	if code != exitFailure || out != "" || !strings.Contains(errs, "spillway migrate up") {
		t.Errorf("exit %d, out %q, err %q", code, out, errs)
	}
}

func TestReplayStatusCountsARealQueue(t *testing.T) {
	t.Parallel()
	url := testkit.Redis(t)
	prefix := strings.NewReplacer(":", "", "/", "-").Replace(testkit.Prefix(t))
	prefix = prefix[max(0, len(prefix)-40):]
	path := example(t, "redis://127.0.0.1:6379/0", url, "#prefix: spillway", "prefix: "+prefix)
	cfg, err := config.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Redis.Prefix != prefix {
		t.Fatalf("the example has another prefix: %s", cfg.Redis.Prefix)
	}
	client, err := redis.Open(redis.Config{URL: url, Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	q := client.Queue("wallet", 100)
	err = q.Push(t.Context(), []replay.Entry{
		{ID: 1, Data: []byte("{}1")}, {ID: 2, Data: []byte("{}2")}, {ID: 3, NotBefore: time.Now().Add(time.Hour), Data: []byte("{}3")},
	})
	if err != nil {
		t.Fatal(err)
	}
	claim, err := q.Claim(t.Context(), "w", 1, 1<<20, time.Minute)
	if err != nil || len(claim.Items) != 1 {
		t.Fatalf("claim %+v: %v", claim, err)
	}
	t.Cleanup(func() { _, _ = q.Finish(t.Context(), claim, replay.Finished{Done: []int64{1}}) })
	code, out, errs := spill(t, nil, "admin", "replay", "status", "--json", "-c", path)
	var status struct {
		Queues []struct {
			Route                 string
			Ready, Delayed, Total int
			InFlight              int `json:"in_flight"`
			Capacity              int
			OldestSeconds         float64 `json:"oldest_seconds"`
		}
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil || code != exitOK {
		t.Fatalf("exit %d, %v: %q, %q", code, err, out, errs)
	}
	s := status.Queues[0]
	if s.Route != "wallet" || s.Ready != 1 || s.Delayed != 1 || s.InFlight != 1 || s.Total != 3 || s.Capacity != 100000 || s.OldestSeconds < 0 {
		t.Errorf("status %+v", s)
	}
}

func TestBreakersAreAskedAtTheWorkersOwnAddress(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/breakers" {
			http.NotFound(rw, q)
			return
		}
		_, _ = rw.Write([]byte(`{"owner":"host-1","at":"2026-03-01T12:00:00Z","breakers":[{"route":"wallet","endpoint":"submit","state":"open"}]}`))
	}))
	t.Cleanup(server.Close)
	for _, host := range []string{"127.0.0.1", "", "0.0.0.0", "[::]"} {
		listen := host + ":" + server.URL[strings.LastIndexByte(server.URL, ':')+1:]
		code, out, errs := spill(t, []string{"SPILLWAY_HTTP_LISTEN=" + listen}, "admin", "breakers", "list", "-c", example(t))
		if code != exitOK || !strings.Contains(out, "wallet  submit    open") {
			t.Errorf("listening on %s: exit %d, %q, %q", listen, code, out, errs)
		}
	}
}
