package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway/internal/board"
	"spillway/order"
)

// told is what the metrics say of a whole story.
func told() board.Reading {
	return board.Reading{Pauses: 24, Spilled: 7, Replayed: 6, Settled: 2, Opened: 3}
}

// sound is the evidence of a story that went well: eight orders SUCCEEDED, one FAILED, two bad records.
func sound() evidence {
	e := evidence{
		orders: map[string]struct{}{}, effects: map[string]int{}, maxFlight: permits,
		record:  record{states: map[string]order.State{}, letters: map[place]letter{}},
		offsets: offsets{written: 11, committed: 11},
		bad: []badRecord{
			{partition: 1, offset: 5, key: []byte("bad-1"), value: nil},
			{partition: 2, offset: 5, key: []byte("bad-2"), value: []byte{}},
		},
	}
	for i := range 8 {
		number := fmt.Sprintf("D%d", i)
		e.orders[number] = struct{}{}
		e.effects[number] = 1
		e.record.states[number] = order.Succeeded
	}
	e.orders["refused"] = struct{}{}
	e.record.states["refused"] = order.Failed
	e.record.letters[place{1, 5}] = letter{hasKey: true, key: []byte("bad-1")}
	e.record.letters[place{2, 5}] = letter{hasKey: true, key: []byte("bad-2"), hasValue: true, value: []byte{}}
	return e
}

func TestASoundStoryHolds(t *testing.T) {
	t.Parallel()
	r := judge(sound(), told(), 61230*time.Millisecond)
	if !r.Holds || len(r.Problems) > 0 {
		t.Errorf("it does not hold: %q", r.Problems)
	}
	want := Report{
		Holds: true, Produced: 11, Consumed: 11, Succeeded: 8, Failed: 1, Dead: 2, BadRecords: 2, Effects: 8,
		Pauses: 24, Spilled: 7, Replayed: 6, Compensated: 2, BreakerOpened: 3, MaxInFlight: permits, Permits: permits, Seconds: 61.23,
	}
	r.Problems = nil
	if fmt.Sprint(r) != fmt.Sprint(want) {
		t.Errorf("report\n%+v\nwant\n%+v", r, want)
	}
}

// Whatever goes wrong must be seen, and by its name: an audit that can't fail shows nothing.
func TestAuditSeesEachKindOfHarm(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm func(e *evidence)
		want string
	}{
		"an order without a row":      {func(e *evidence) { delete(e.record.states, "D3") }, "1 records are lost"},
		"a bad record without letter": {func(e *evidence) { delete(e.record.letters, place{1, 5}) }, "1 records are lost"},
		"null kept as empty": {func(e *evidence) {
			e.record.letters[place{1, 5}] = letter{hasKey: true, key: []byte("bad-1"), hasValue: true, value: []byte{}}
		}, "1 records are lost"},
		"empty kept as null": {func(e *evidence) {
			e.record.letters[place{2, 5}] = letter{hasKey: true, key: []byte("bad-2")}
		}, "1 records are lost"},
		"another key": {func(e *evidence) {
			e.record.letters[place{1, 5}] = letter{hasKey: true, key: []byte("bad-X")}
		}, "1 records are lost"},
		"applied twice":             {func(e *evidence) { e.effects["D1"] = 2 }, "1 orders were applied more than once"},
		"SUCCEEDED without effect":  {func(e *evidence) { delete(e.effects, "D1") }, "1 orders are SUCCEEDED without an effect"},
		"FAILED with effect":        {func(e *evidence) { e.effects["refused"] = 1 }, "1 orders are FAILED with an effect"},
		"other bodies":              {func(e *evidence) { e.altered = 2 }, "2 orders were sent with different bodies"},
		"not settled":               {func(e *evidence) { e.record.states["D1"] = order.Processing }, "1 orders are still PROCESSING"},
		"not committed":             {func(e *evidence) { e.offsets.committed = 9 }, "2 records are not committed"},
		"not written":               {func(e *evidence) { e.failed, e.writeErr = 3, errors.New("away") }, "3 records could not be written: away"},
		"a log that holds more":     {func(e *evidence) { e.offsets = offsets{12, 12} }, "the log holds 12 records, the producer wrote 11"},
		"a row of nobody":           {func(e *evidence) { e.record.states["X"] = order.Dead }, "1 rows, letters or effects are of orders that nobody wrote"},
		"an effect of nobody":       {func(e *evidence) { e.effects["X"] = 1 }, "1 rows, letters or effects are of orders that nobody wrote"},
		"a letter of nobody":        {func(e *evidence) { e.record.letters[place{9, 9}] = letter{} }, "1 rows, letters or effects are of orders that nobody wrote"},
		"a letter twice":            {func(e *evidence) { e.record.extra = 1 }, "1 rows, letters or effects are of orders that nobody wrote"},
		"more calls than permits":   {func(e *evidence) { e.maxFlight = permits + 1 }, fmt.Sprintf("%d calls were in flight at once, with %d permits", permits+1, permits)},
		"no bad record was written": {func(e *evidence) { e.bad, e.record.letters, e.offsets = nil, nil, offsets{9, 9} }, "the story is not whole: no record was bad"},
	} {
		e := sound()
		c.harm(&e)
		r := judge(e, told(), time.Minute)
		if r.Holds || !strings.Contains(strings.Join(r.Problems, "\n"), c.want) {
			t.Errorf("%s: holds %v, problems %q, want %q", name, r.Holds, r.Problems, c.want)
		}
	}
}

func TestAFairWeatherStoryDoesNotHold(t *testing.T) {
	t.Parallel()
	r := judge(sound(), board.Reading{}, time.Minute)
	if r.Holds || len(r.Problems) != 5 {
		t.Errorf("holds %v, problems %q: want the five parts that did not happen", r.Holds, r.Problems)
	}
}

func TestReportIsOneLineOfJSONAndReadable(t *testing.T) {
	t.Parallel()
	good := judge(sound(), told(), time.Minute)
	b, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(b, &fields); err != nil || bytes.ContainsRune(b, '\n') {
		t.Fatalf("%v: %s", err, b)
	}
	for _, name := range []string{
		"produced", "consumed", "succeeded", "failed", "dead", "processing", "lost", "duplicate_effects", "false_success",
		"pauses", "spilled", "replayed", "compensated", "breaker_opened", "max_in_flight", "permits", "seconds",
	} {
		if _, ok := fields[name].(float64); !ok {
			t.Errorf("%s is not a number in %s", name, b)
		}
	}
	e := sound()
	e.effects["D1"] = 2
	checkText(t, good, "It holds:")
	checkText(t, judge(e, told(), time.Minute), "IT DOES NOT HOLD:\n  - 1 orders were applied more than once\n")
}

func checkText(t *testing.T, r Report, want string) {
	t.Helper()
	var text bytes.Buffer
	if err := r.Write(&text); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), want) {
		t.Errorf("no %q in\n%s", want, text.String())
	}
	for line := range strings.Lines(text.String()) {
		if len(line) > 90 || strings.HasSuffix(line, " \n") {
			t.Errorf("line %q: too long or with blanks at its end", line)
		}
	}
}
