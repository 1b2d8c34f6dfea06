package admin

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"spillway/consumer"
	"spillway/internal/desk"
	"spillway/internal/memstore"
	"spillway/order"
	"spillway/replay"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares text with a file under testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s is\n%s\nwant\n%s", name, text, want)
	}
}

// desktop is a store with a clock that a test moves, and a route whose business numbers are record keys.
type desktop struct {
	*memstore.Store
	*testing.T
	now *atomic.Int64 // seconds since the start
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newDesktop(t *testing.T) *desktop {
	t.Helper()
	now := &atomic.Int64{}
	return &desktop{Store: memstore.New(func() time.Time { return start.Add(time.Duration(now.Load()) * time.Second) }), T: t, now: now}
}

func (d *desktop) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

func (d *desktop) at() time.Time { return start.Add(time.Duration(d.now.Load()) * time.Second) }

func (d *desktop) admit(m order.Message, number string) order.Order {
	d.Helper()
	got, err := d.Admit(d.Context(), "wallet", "worker-1", time.Minute, []order.Admission{{Number: number, Message: m}})
	d.must(err)
	return got[0].Order
}

func (d *desktop) settle(o order.Order, t order.Transition) {
	d.Helper()
	got, err := d.Settle(d.Context(), "worker-1", []order.Settlement{o.Settle(t)})
	d.must(err)
	if got[0] != order.Applied {
		d.Fatalf("settled %v", got[0])
	}
}

func message(offset int64, key, value string, headers ...order.Header) order.Message {
	return order.Message{
		Topic: "orders.in", Partition: 3, Offset: offset, Key: []byte(key), Value: []byte(value), Headers: headers,
		Time: start.Add(-time.Second),
	}
}

func dead(reason order.Reason, detail string) order.Transition {
	return order.Transition{State: order.Dead, Attempts: 3, AttemptsTotal: 4, Outcome: order.OutcomeOverloaded, Reason: reason, Detail: detail}
}

var rules = map[string]consumer.Number{"wallet": {From: consumer.FromKey}}

func (d *desktop) resolver() *Resolver {
	return &Resolver{Letters: d, Orders: d, Rules: rules, By: desk.Sign{Operator: "ann", Note: "wallet was mended"}}
}

// furnish makes one of each kind: orders 1 to 4, letters 1 to 4.
func furnish(t *testing.T) *desktop {
	t.Helper()
	d := newDesktop(t)
	d.settle(d.admit(message(1, "T-1", `{"amount":1}`), "T-1"), order.Transition{
		State: order.Succeeded, Attempts: 1, AttemptsTotal: 1, Outcome: order.OutcomeSucceeded, Reason: order.Confirmed, Detail: "200 OK",
	})
	d.now.Add(30)
	d.settle(d.admit(message(2, "T-2", `{"amount":2}`, order.Header{Key: "trace-id", Value: []byte("abc")}, order.Header{Key: "none"}), "T-2"),
		dead(order.AttemptsExhausted, "UPSTREAM_OVERLOADED after 3 attempts (4 in all): 503 Service Unavailable"))
	d.now.Add(30)
	d.settle(d.admit(message(3, "T-3", `{"amount":3}`), "T-3"), order.Transition{
		State: order.Processing, Phase: order.Unknown, Attempts: 1, AttemptsTotal: 1, Outcome: order.OutcomeUnknown,
		Reason: order.UpstreamTimeout, Due: d.at().Add(5 * time.Second),
	})
	d.admit(message(4, "T-4", `{"amount":4}`), "T-4")
	null := message(5, "", "")
	null.Key, null.Value = nil, nil
	d.must(d.Bury(d.Context(), []order.DeadRecord{
		{Route: "wallet", Message: message(6, "T-6", `{"amount":`+strings.Repeat("6", 3000)+`}`), Reason: order.Undecodable, Detail: "unexpected end"},
		{Route: "wallet", Message: null, Reason: order.NullValue, Detail: "the record's value is null (a tombstone)"},
		{Route: "wallet", Raw: []byte("{\"v\":9\x00}"), Reason: order.QueueItemUnreadable, Detail: "entry of version 9"},
	}))
	d.now.Add(3600)
	return d
}

func TestOrdersAreListedForPeopleAndForScripts(t *testing.T) {
	t.Parallel()
	d := furnish(t)
	all, err := ListOrders(d.Context(), d, desk.OrderFilter{})
	d.must(err)
	var out bytes.Buffer
	d.must(all.WriteTable(&out, d.at()))
	page, err := ListOrders(d.Context(), d, desk.OrderFilter{Limit: 2})
	d.must(err)
	out.WriteString("\n")
	d.must(page.WriteTable(&out, d.at()))
	rest, err := ListOrders(d.Context(), d, desk.OrderFilter{Before: page.NextBefore})
	d.must(err)
	out.WriteString("\n")
	d.must(WriteJSON(&out, rest))
	golden(t, "orders-list.txt", out.String())
}

func TestAnOrderIsShownWithItsWholeHistory(t *testing.T) {
	t.Parallel()
	d := furnish(t)
	results, err := d.resolver().Requeue(d.Context(), []int64{1})
	d.must(err)
	if results.Done != 1 {
		t.Fatalf("%+v", results)
	}
	d.now.Add(1)
	var out bytes.Buffer
	for _, number := range []string{"T-1", "T-2", "T-4"} {
		v, err := ShowOrder(d.Context(), d, "wallet", number)
		d.must(err)
		d.must(v.Write(&out, d.at()))
		out.WriteString("\n")
	}
	v, err := ShowOrder(d.Context(), d, "wallet", "T-2")
	d.must(err)
	d.must(WriteJSON(&out, v))
	golden(t, "orders-show.txt", out.String())

	_, err = ShowOrder(d.Context(), d, "wallet", "T-9")
	if !errors.Is(err, desk.ErrNotFound) || !strings.Contains(err.Error(), "spillway admin orders list") {
		t.Errorf("of no order: %v", err)
	}
}

func TestAnOrderMadeOfADeadLetterTellsSo(t *testing.T) {
	t.Parallel()
	d := furnish(t)
	results, err := d.resolver().Requeue(d.Context(), []int64{2})
	d.must(err)
	if len(results.Letters) != 1 || results.Letters[0].Result != Requeued || results.Letters[0].Number != "T-6" {
		t.Fatalf("%+v", results)
	}
	v, err := ShowOrder(d.Context(), d, "wallet", "T-6")
	d.must(err)
	if len(v.History) != 2 || v.History[0].Kind != "admitted" || v.History[0].To != "DEAD" || v.History[1].From != "DEAD" ||
		v.History[1].To != "PROCESSING" || v.History[1].Phase != "REPLAYING" || v.History[1].Actor != "ann" {
		t.Errorf("history %+v", v.History)
	}
}

func TestDeadLettersAreListedAndShown(t *testing.T) {
	t.Parallel()
	d := furnish(t)
	_, err := d.resolver().Requeue(d.Context(), []int64{1})
	d.must(err)
	list, err := ListLetters(d.Context(), d, desk.LetterFilter{})
	d.must(err)
	var out bytes.Buffer
	d.must(list.WriteTable(&out, d.at()))
	for id := int64(1); id <= 4; id++ {
		v, err := ShowLetter(d.Context(), d, id)
		d.must(err)
		out.WriteString("\n")
		d.must(v.Write(&out, d.at()))
	}
	out.WriteString("\n")
	for _, id := range []int64{1, 3, 4} {
		v, err := ShowLetter(d.Context(), d, id)
		d.must(err)
		d.must(WriteJSON(&out, v))
	}
	golden(t, "dead-letters.txt", out.String())

	null, err := ShowLetter(d.Context(), d, 3)
	d.must(err)
	raw, err := ShowLetter(d.Context(), d, 4)
	d.must(err)
	if null.Bytes() != nil || string(raw.Bytes()) != "{\"v\":9\x00}" {
		t.Errorf("bytes %q and %q", null.Bytes(), raw.Bytes())
	}
	if _, err := ShowLetter(d.Context(), d, 99); !errors.Is(err, desk.ErrNotFound) {
		t.Errorf("of no letter: %v", err)
	}
}

func TestEachDeadLetterIsAnsweredByItself(t *testing.T) {
	t.Parallel()
	d := furnish(t)
	// T-2 lies dead as letter 1. A record of the same number clashes with it, and one is of a route that is gone.
	d.must(d.Bury(d.Context(), []order.DeadRecord{
		{Route: "wallet", Message: message(7, "T-2", "other"), Reason: order.PayloadConflict},
		{Route: "gone", Message: message(8, "T-8", "x"), Reason: order.Undecodable},
		{Route: "wallet", Message: message(9, "T-6", "again"), Reason: order.Undecodable},
	}))
	ids := []int64{1, 1, 2, 3, 4, 5, 6, 7, 99}
	r := d.resolver()

	r.DryRun = true
	dry, err := r.Requeue(d.Context(), ids)
	d.must(err)
	var out bytes.Buffer
	d.must(dry.WriteTable(&out))
	if n, err := d.ListDeadLetters(d.Context(), desk.LetterFilter{Status: desk.Waiting}); err != nil || len(n) != 7 {
		t.Fatalf("%d letters wait after a dry run: %v", len(n), err)
	}

	r.DryRun = false
	wet, err := r.Requeue(d.Context(), ids)
	d.must(err)
	out.WriteString("\n")
	d.must(wet.WriteTable(&out))
	for i := range wet.Letters {
		if wet.Letters[i].Result.Done() != dry.Letters[i].Result.Done() {
			t.Errorf("the dry run said %+v, then came %+v", dry.Letters[i], wet.Letters[i])
		}
	}

	discarded, err := r.Discard(d.Context(), []int64{1, 3, 99, 3})
	d.must(err)
	out.WriteString("\n")
	d.must(discarded.WriteTable(&out))
	r.DryRun = true
	discarded, err = r.Discard(d.Context(), []int64{3, 4, 99})
	d.must(err)
	out.WriteString("\n")
	d.must(WriteJSON(&out, discarded))
	golden(t, "resolve.txt", out.String())
}

func TestPickTakesTheNewestAndGivesThemOldestFirst(t *testing.T) {
	t.Parallel()
	d := newDesktop(t)
	var ds []order.DeadRecord
	for i := range 2*desk.MaxPage + 10 {
		ds = append(ds, order.DeadRecord{Route: "wallet", Message: message(int64(i), "", "x"), Reason: order.NoNumber})
	}
	d.must(d.Bury(d.Context(), ds))
	r := d.resolver()
	_, err := r.Discard(d.Context(), []int64{2005})
	d.must(err)
	ids, err := r.Pick(d.Context(), desk.LetterFilter{Route: "wallet"}, 2*desk.MaxPage+4)
	d.must(err)
	if len(ids) != 2004 || ids[0] != 6 || ids[2003] != 2010 {
		t.Errorf("%d ids from %d to %d", len(ids), ids[0], ids[len(ids)-1])
	}
	if ids, err = r.Pick(d.Context(), desk.LetterFilter{Route: "wallet"}, MaxResolve); err != nil || len(ids) != 2009 {
		t.Errorf("%d ids, %v", len(ids), err)
	}
}

// severed is a store whose connection breaks in the nth call that changes something.
type severed struct {
	*desktop
	good int
}

var errSevered = errors.New("connection reset by peer")

func (s *severed) Requeue(ctx context.Context, by desk.Sign, rs []desk.Requeue) ([]desk.Resolved, error) {
	if s.good--; s.good < 0 {
		return nil, errSevered
	}
	return s.desktop.Requeue(ctx, by, rs)
}

func TestABrokenConnectionLeavesTheRestUntriedAndSaysWhatIsKnown(t *testing.T) {
	t.Parallel()
	d := newDesktop(t)
	var ids []int64
	for i := range 250 {
		number := fmt.Sprintf("T-%d", i)
		d.settle(d.admit(message(int64(i), number, "x"), number), dead(order.AttemptsExhausted, ""))
		ids = append(ids, int64(i+1))
	}
	r := d.resolver()
	r.Letters = &severed{desktop: d, good: 1}
	results, err := r.Requeue(d.Context(), ids)
	if !errors.Is(err, errSevered) {
		t.Fatalf("error %v", err)
	}
	if results.Done != 100 || results.NotDone != 100 || results.Letters[99].Result != Requeued || results.Letters[100].Result != Unconfirmed {
		t.Errorf("%d done, %d not, then %+v", results.Done, results.NotDone, results.Letters[100])
	}
	again, err := d.resolver().Requeue(d.Context(), ids)
	d.must(err)
	if again.Done != 150 || again.Letters[0].Result != ResolvedAlready {
		t.Errorf("asked again: %d done, first %+v", again.Done, again.Letters[0])
	}
}

func TestNobodyResolvesTooManyOrWithoutAName(t *testing.T) {
	t.Parallel()
	d := furnish(t)
	r := d.resolver()
	many := make([]int64, MaxResolve+1)
	for i := range many {
		many[i] = int64(i + 1)
	}
	if _, err := r.Requeue(d.Context(), many); err == nil || !strings.Contains(err.Error(), "at most 10000") {
		t.Errorf("too many: %v", err)
	}
	r.By.Operator = ""
	if results, err := r.Discard(d.Context(), []int64{1}); err == nil || len(results.Letters) != 0 {
		t.Errorf("without a name: %+v, %v", results, err)
	}
}

type backlog struct {
	depths replay.Depths
	err    error
}

func (b backlog) Depths(context.Context) (replay.Depths, error) { return b.depths, b.err }

func TestReplayStatusSaysWhenRedisIsAway(t *testing.T) {
	t.Parallel()
	queues := []Queue{
		{Route: "wallet", Capacity: 1000, Backlog: backlog{depths: replay.Depths{Ready: 10, Delayed: 5, InFlight: 1, Oldest: 90 * time.Second}}},
		{Route: "ledger", Capacity: 10, Backlog: backlog{}},
	}
	var out bytes.Buffer
	status := CountQueues(t.Context(), "127.0.0.1:6379", queues, time.Second)
	if err := errors.Join(status.WriteTable(&out), WriteJSON(&out, status)); err != nil {
		t.Fatal(err)
	}
	queues[1].Backlog = backlog{err: errors.New("redis depths: dial tcp 127.0.0.1:6379: connect: connection refused")}
	for _, qs := range [][]Queue{queues, queues[1:]} {
		status := CountQueues(t.Context(), "127.0.0.1:6379", qs, time.Second)
		out.WriteString("\n")
		if err := errors.Join(status.WriteTable(&out), WriteJSON(&out, status)); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "replay-status.txt", out.String())
}

func TestBreakersOfSeveralWorkersAreListed(t *testing.T) {
	t.Parallel()
	said := WorkerBreakers{Owner: "host-1-abc", At: start, Breakers: []Breaker{
		{
			Route: "wallet", Endpoint: "submit", State: "open", Mode: "enforce", Force: "none", Since: start.Add(-10 * time.Second),
			NextProbe: start.Add(20 * time.Second), Streak: 20, Failure: Window{Samples: 40, Bad: 30, Rate: 0.75, Bound: 0.75},
			Slow: Window{Samples: 40}, Opened: 3, Admitted: 500, Refused: 77, LastReason: "failure-rate", LastMove: start.Add(-10 * time.Second),
		},
		{
			Route: "wallet", Endpoint: "lookup", State: "closed", Mode: "observe", Force: "closed", ForceEnds: start.Add(time.Hour),
			Since: start.Add(-time.Hour), Share: 1,
		},
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /breakers", func(rw http.ResponseWriter, _ *http.Request) { _ = WriteJSON(rw, said) })
	worker := httptest.NewServer(mux)
	t.Cleanup(worker.Close)
	stranger := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(stranger.Close)
	liar := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("\x1b[2J")) }))
	t.Cleanup(liar.Close)
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	mover := httptest.NewServer(http.RedirectHandler(worker.URL+"/breakers", http.StatusFound))
	t.Cleanup(mover.Close)

	fleet := AskBreakers(t.Context(), []string{worker.URL + "/", stranger.URL, liar.URL, away.URL, mover.URL}, 5*time.Second)
	if fleet.Missing() != 4 {
		t.Errorf("%d missing: %+v", fleet.Missing(), fleet)
	}
	fleet.History = Histories([]desk.BreakerSummary{
		{Route: "wallet", Endpoint: "lookup", Open: time.Minute},
		{
			Route: "wallet", Endpoint: "submit", Openings: 6, Workers: 2, LastOpened: start.Add(-10 * time.Second), LastReason: "failure-rate",
			Open: 17 * time.Minute,
		},
	})
	fleet.HistoryError = "ping postgres: \x1b"
	var out bytes.Buffer
	if err := errors.Join(fleet.WriteTable(&out, start), WriteJSON(&out, fleet)); err != nil {
		t.Fatal(err)
	}
	checkSafe(t, "the list", out.String())
	text := out.String()
	for name, s := range map[string]*httptest.Server{"WORKER": worker, "STRANGER": stranger, "LIAR": liar, "AWAY": away, "MOVER": mover} {
		text = strings.ReplaceAll(text, s.URL, "http://"+name+strings.Repeat("_", len(s.URL)-len("http://")-len(name)))
		text = strings.ReplaceAll(text, strings.TrimPrefix(s.URL, "http://"), name)
	}
	golden(t, "breakers.txt", text)
}

func TestAWorkersAddressIsAnAddressAlone(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"http://127.0.0.1:9464", "https://worker-1:9464/", "http://[::1]:9464"} {
		if err := CheckWorker(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "127.0.0.1:9464", "ftp://h:1", "http://", "http://h:1/metrics", "http://h:1?x=1", "http://u:C4NARY@h:1", "http://C4NARY@h o:1",
	} {
		err := CheckWorker(bad)
		if err == nil || !strings.Contains(err.Error(), "want http://host:port") || strings.Contains(err.Error(), "C4NARY") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
