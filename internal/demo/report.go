package demo

import (
	"fmt"
	"io"
	"strings"
	"time"

	"spillway/internal/board"
	"spillway/order"
)

// Report is what became of every record, and what happened on the way. Its JSON is one line for a script.
type Report struct {
	Holds    bool     `json:"holds"`    // whether every record is accounted for and everything of the story happened
	Problems []string `json:"problems"` // why not

	Produced  int64 `json:"produced"`  // records that Kafka acknowledged to the producer
	Consumed  int64 `json:"consumed"`  // records that the group committed
	Succeeded int64 `json:"succeeded"` // orders, by their rows in Postgres
	Failed    int64 `json:"failed"`
	Dead      int64 `json:"dead"` // dead letters: records that can't be orders, and orders that were given up
	// Processing orders at the end: nobody knows yet what becomes of them.
	Processing int64 `json:"processing"`
	BadRecords int64 `json:"bad_records"` // records written so that they can't be orders
	DeadOrders int64 `json:"dead_orders"` // orders among Dead

	Lost             int64 `json:"lost"`              // produced, and neither a row nor a dead letter with its very bytes
	Uncommitted      int64 `json:"uncommitted"`       // in the log and not committed
	DuplicateEffects int64 `json:"duplicate_effects"` // orders that the wallet applied more than once
	FalseSuccess     int64 `json:"false_success"`     // SUCCEEDED, and the wallet knows nothing of it
	FalseFailure     int64 `json:"false_failure"`     // FAILED, and the wallet applied it
	AlteredBodies    int64 `json:"altered_bodies"`    // orders that came to the wallet with different bodies
	Effects          int64 `json:"effects"`           // orders that the wallet applied

	Pauses        int64 `json:"pauses"` // from here on as the worker's metrics count it
	Spilled       int64 `json:"spilled"`
	Replayed      int64 `json:"replayed"`
	Compensated   int64 `json:"compensated"`
	BreakerOpened int64 `json:"breaker_opened"`

	MaxInFlight int64   `json:"max_in_flight"` // at the wallet, submits and lookups together
	Permits     int64   `json:"permits"`
	Seconds     float64 `json:"seconds"` // of the whole story, the drain included
}

// judge compares the evidence. It is pure.
func judge(e evidence, told board.Reading, took time.Duration) Report {
	r := Report{
		Problems: []string{},
		Produced: int64(len(e.orders) + len(e.bad)), Consumed: e.offsets.committed, BadRecords: int64(len(e.bad)),
		Uncommitted:   e.offsets.written - e.offsets.committed,
		AlteredBodies: e.altered, Effects: int64(len(e.effects)),
		Pauses: int64(told.Pauses), Spilled: int64(told.Spilled), Replayed: int64(told.Replayed),
		Compensated: int64(told.Settled), BreakerOpened: int64(told.Opened),
		MaxInFlight: int64(e.maxFlight), Permits: permits, Seconds: took.Round(10 * time.Millisecond).Seconds(),
	}
	strangers := r.tally(e)
	r.conclude(e, strangers)
	r.missing()
	r.Holds = len(r.Problems) == 0
	return r
}

// tally counts rows, letters and effects against what was written. It returns how many of them nobody wrote.
func (r *Report) tally(e evidence) (strangers int) {
	for number, state := range e.record.states {
		if _, known := e.orders[number]; !known {
			strangers++
		}
		switch state {
		case order.Succeeded:
			r.Succeeded++
			if e.effects[number] == 0 {
				r.FalseSuccess++
			}
		case order.Failed:
			r.Failed++
			if e.effects[number] > 0 {
				r.FalseFailure++
			}
		case order.Processing:
			r.Processing++
		case order.Dead, order.Discarded:
			r.Dead++
			r.DeadOrders++
		}
	}
	r.Dead += int64(len(e.record.letters))
	for number := range e.orders {
		if _, there := e.record.states[number]; !there {
			r.Lost++
		}
	}
	for _, b := range e.bad {
		if l, there := e.record.letters[place{b.partition, b.offset}]; !there || !l.exact(b) {
			r.Lost++
		}
	}
	for number, effects := range e.effects {
		if effects > 1 {
			r.DuplicateEffects++
		}
		if _, known := e.orders[number]; !known {
			strangers++
		}
	}
	return strangers + e.record.extra + max(len(e.record.letters)-len(e.bad), 0)
}

// conclude says what must not be.
func (r *Report) conclude(e evidence, strangers int) {
	must := func(holds bool, format string, args ...any) {
		if !holds {
			r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
		}
	}
	must(r.Lost == 0, "%d records are lost", r.Lost)
	must(r.DuplicateEffects == 0, "%d orders were applied more than once", r.DuplicateEffects)
	must(r.FalseSuccess == 0, "%d orders are SUCCEEDED without an effect", r.FalseSuccess)
	must(r.FalseFailure == 0, "%d orders are FAILED with an effect", r.FalseFailure)
	must(r.AlteredBodies == 0, "%d orders were sent with different bodies", r.AlteredBodies)
	must(r.Processing == 0, "%d orders are still PROCESSING", r.Processing)
	must(r.Uncommitted == 0, "%d records are not committed", r.Uncommitted)
	must(e.failed == 0, "%d records could not be written: %v", e.failed, e.writeErr)
	must(r.Produced == e.offsets.written, "the log holds %d records, the producer wrote %d", e.offsets.written, r.Produced)
	must(strangers == 0, "%d rows, letters or effects are of orders that nobody wrote", strangers)
	must(r.MaxInFlight <= r.Permits, "%d calls were in flight at once, with %d permits", r.MaxInFlight, r.Permits)
	must(r.Produced == r.Succeeded+r.Failed+r.Dead+r.Processing, "the sum does not hold: %d produced, %d accounted for",
		r.Produced, r.Succeeded+r.Failed+r.Dead+r.Processing)
}

// missing says which part of the story did not happen: an audit of a fair-weather run proves little.
func (r *Report) missing() {
	for _, part := range []struct {
		n    int64
		what string
	}{
		{r.Pauses, "no partition was paused"},
		{r.BreakerOpened, "no breaker opened"},
		{r.Spilled, "nothing was spilled into the replay queue"},
		{r.Replayed, "nothing was replayed"},
		{r.Compensated, "the compensator settled nothing"},
		{r.BadRecords, "no record was bad"},
	} {
		if part.n == 0 {
			r.Problems = append(r.Problems, "the story is not whole: "+part.what)
		}
	}
}

// Write prints the report for people.
func (r *Report) Write(out io.Writer) error {
	var b strings.Builder
	section := func(title string) { fmt.Fprintf(&b, "\n%s\n", title) }
	line := func(name string, n int64, says string, args ...any) {
		b.WriteString(strings.TrimRight(fmt.Sprintf("  %-18s %9d   %s", name, n, fmt.Sprintf(says, args...)), " ") + "\n")
	}
	section("Conservation: what became of every record")
	line("produced", r.Produced, "acknowledged by Kafka: %d orders, %d bad records", r.Produced-r.BadRecords, r.BadRecords)
	line("consumed", r.Consumed, "committed by the group; %d left", r.Uncommitted)
	line("succeeded", r.Succeeded, "rows in Postgres; the wallet applied %d orders", r.Effects)
	line("failed", r.Failed, "refused by the wallet for business reasons")
	line("dead", r.Dead, "dead letters: %d bad records, %d orders given up", r.Dead-r.DeadOrders, r.DeadOrders)
	line("processing", r.Processing, "")
	line("lost", r.Lost, "")
	line("duplicate effects", r.DuplicateEffects, "by the wallet's own ledger")
	line("false success", r.FalseSuccess, "SUCCEEDED without an effect")
	line("false failure", r.FalseFailure, "FAILED with an effect")
	section("On the way")
	line("pauses", r.Pauses, "partitions paused for want of permits")
	line("breaker opened", r.BreakerOpened, "submit and lookup together")
	line("spilled", r.Spilled, "orders into the replay queue, by the live lane")
	line("replayed", r.Replayed, "orders that became final by a replay")
	line("compensated", r.Compensated, "unknown outcomes cleared up by a lookup")
	line("max in flight", r.MaxInFlight, "calls at once at the wallet, of %d permits", r.Permits)
	fmt.Fprintf(&b, "  %-18s %9.1f\n\n", "seconds", r.Seconds)
	if r.Holds {
		b.WriteString("It holds: every record is accounted for, none was lost, none was applied twice.\n")
	} else {
		b.WriteString("IT DOES NOT HOLD:\n")
		for _, p := range r.Problems {
			b.WriteString("  - " + p + "\n")
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}
