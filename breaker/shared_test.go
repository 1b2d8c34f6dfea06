package breaker

import (
	"math/rand/v2"
	"testing"
	"time"
)

// follow gives a breaker a record whose word holds for a second.
func follow(b *Breaker, at time.Duration, r Record, slots int) {
	b.AdoptAt(epoch.Add(at), Adoption{Record: r, Valid: time.Second, Slots: slots, SlotsFor: time.Second, Of: 1})
}

// shared is a breaker with a listener that keeps its events.
func shared(t *testing.T, cfg Config) (*Breaker, *[]Event) {
	t.Helper()
	var events []Event
	cfg.OpenJitter = -1
	b, err := NewAt(epoch, Key{"s", "e"}, cfg, nil, func(e Event) { events = append(events, e) })
	if err != nil {
		t.Fatal(err)
	}
	return b, &events
}

func calls(b *Breaker, at time.Duration, r Result, n int) (admitted int) {
	for range n {
		if p, ok := b.AllowAt(epoch.Add(at)); ok {
			b.DoneAt(epoch.Add(at), p, r)
			admitted++
		}
	}
	return admitted
}

func wantState(t *testing.T, b *Breaker, at time.Duration, state State, own bool) Snapshot {
	t.Helper()
	s := b.SnapshotAt(epoch.Add(at))
	if s.State != state || s.Own != own {
		t.Fatalf("at %v it is %s (its own: %v), want %s (%v)", at, s.State, s.Own, state, own)
	}
	return s
}

const second = time.Second

func TestBreakerFollowsTheRecordThroughARecovery(t *testing.T) {
	t.Parallel()
	b, events := shared(t, Config{ProbesInFlight: 2})
	follow(b, 0, Record{}, 0)
	wantState(t, b, 0, Closed, false)

	why := Grounds{Reason: ReasonFailureRate, Window: 10 * second, Samples: 30, Failures: 20, Rate: 2. / 3, Bound: 0.6, Threshold: 0.5}
	follow(b, 2*second, Record{Epoch: 1, Moves: 1, State: Open, Age: second, Wait: 4 * second, Opens: 1, Why: why}, 0)
	s := wantState(t, b, 2*second, Open, false)
	if want := epoch.Add(5 * second); !s.NextProbe.Equal(want) || !s.Since.Equal(epoch.Add(second)) {
		t.Errorf("open since %v until %v, want until %v", s.Since, s.NextProbe, want)
	}
	if e := (*events)[0]; e.Source != SourceShared || e.Reason != ReasonFailureRate || e.Samples != 30 || e.Failures != 20 || e.Wait != 4*second {
		t.Errorf("event %+v", e)
	}
	if calls(b, 4*second, Success, 1) != 0 {
		t.Error("a call passed while open")
	}
	follow(b, 4500*time.Millisecond, Record{Epoch: 1, Moves: 1, State: Open}, 0)
	wantState(t, b, 5200*time.Millisecond, Open, false) // the record says when

	probing := Record{Epoch: 2, Moves: 2, State: HalfOpen, Wait: 4 * second, Opens: 1}
	follow(b, 5300*time.Millisecond, probing, 0)
	wantState(t, b, 5300*time.Millisecond, HalfOpen, false)
	if calls(b, 5300*time.Millisecond, Success, 3) != 0 || b.ReadyAt(epoch.Add(5300*time.Millisecond)) {
		t.Error("a probe passed without a slot")
	}
	if e := b.EvidenceAt(epoch.Add(5300*time.Millisecond), false); !e.Wanted || e.Epoch != 2 || e.Slots != 0 {
		t.Errorf("evidence %+v", e)
	}
	follow(b, 5500*time.Millisecond, probing, 1)
	p, ok := b.AllowAt(epoch.Add(5500 * time.Millisecond))
	if _, two := b.AllowAt(epoch.Add(5500 * time.Millisecond)); !ok || two {
		t.Errorf("with one slot: first %v, second %v", ok, two)
	}
	b.DoneAt(epoch.Add(5600*time.Millisecond), p, Success)
	calls(b, 5600*time.Millisecond, Success, 9)
	if e := b.EvidenceAt(epoch.Add(5600*time.Millisecond), false); e.ProbesGood != 10 || e.Ramping || e.Slots != 1 {
		t.Errorf("evidence %+v: the record says when the ramp begins", e)
	}

	ramp := Record{Epoch: 3, Moves: 3, State: HalfOpen, Ramping: true, Age: 7 * second, Wait: 4 * second, Opens: 1}
	follow(b, 5800*time.Millisecond, ramp, 0)
	if s := wantState(t, b, 5800*time.Millisecond, HalfOpen, false); s.Share != 0.04 {
		t.Errorf("7 s into the ramp the share is %v, want 4 %%", s.Share)
	}
	follow(b, 20*second, ramp, 0)
	if s := wantState(t, b, 20*second, HalfOpen, false); s.Share != 1 {
		t.Errorf("at the top the share is %v", s.Share)
	}
	follow(b, 20*second, Record{Epoch: 4, Moves: 4, Wait: 4 * second, Opens: 1}, 0)
	wantState(t, b, 20*second, Closed, false)
}

func TestOwnOpeningStandsUntilItsOwnWaitIsOver(t *testing.T) {
	t.Parallel()
	b, _ := shared(t, Config{OpenWait: 5 * second, RampStart: 1, FirstProbes: 1})
	closed := Record{Epoch: 3, Moves: 3}
	follow(b, 0, closed, 0)
	calls(b, 0, Failure, 20)
	wantState(t, b, 0, Open, true)
	if e := b.EvidenceAt(epoch, false); !e.Own || e.State != Open || e.Failure != (Window{20, 20, 0}) {
		t.Errorf("evidence %+v: what opened it must still be told", e)
	}
	for at := second / 2; at < 5*second; at += second / 2 {
		follow(b, at, closed, 0)
		wantState(t, b, at, Open, true)
	}
	follow(b, 5*second, closed, 0)
	wantState(t, b, 5*second, HalfOpen, true) // by itself: the fleet is closed, there are no slots to have
	if calls(b, 5*second, Success, 1) != 1 {
		t.Error("no probe of its own")
	}
	wantState(t, b, 5*second, Closed, false)
	if e := b.EvidenceAt(epoch.Add(10*second), false); e.Failure.Failures != 0 {
		t.Errorf("evidence %+v: what opened it is older than the window", e)
	}
}

func TestRecordThatOpensReplacesAnOpeningOfItsOwn(t *testing.T) {
	t.Parallel()
	b, _ := shared(t, Config{OpenWait: 60 * second, OpenWaitMax: 60 * second})
	follow(b, 0, Record{}, 0)
	calls(b, 0, Failure, 20)
	follow(b, second, Record{Epoch: 1, Moves: 1, State: Open, Wait: 30 * second, Opens: 1}, 0)
	if s := wantState(t, b, second, Open, false); !s.NextProbe.Equal(epoch.Add(31 * second)) {
		t.Errorf("open until %v, want the wait of the record", s.NextProbe)
	}
	if e := b.EvidenceAt(epoch.Add(second), false); e.Failure.Samples != 0 {
		t.Errorf("evidence %+v, of before the record", e)
	}
}

func TestOwnOpeningRejoinsAFleetThatIsHalfOpen(t *testing.T) {
	t.Parallel()
	b, _ := shared(t, Config{OpenWait: 5 * second})
	probing := Record{Epoch: 2, Moves: 2, State: HalfOpen}
	follow(b, 0, probing, 1)
	calls(b, 0, Failure, 2)
	wantState(t, b, 0, Open, true)
	if e := b.EvidenceAt(epoch, false); e.ProbesBad != 2 || e.Slots != 0 {
		t.Errorf("evidence %+v, want two bad probes and no slot", e)
	}
	ramp := Record{Epoch: 3, Moves: 3, State: HalfOpen, Ramping: true}
	for at := second / 2; at < 5*second; at += second / 2 {
		r := ramp
		r.Age = at - second/2
		follow(b, at, r, 0)
	}
	wantState(t, b, 4900*time.Millisecond, Open, true)
	follow(b, 5*second, ramp, 0)
	if s := wantState(t, b, 5*second, HalfOpen, false); s.Share != 0.02 {
		t.Errorf("it joins the ramp at %v, which is 4.5 s old", s.Share)
	}
}

func TestBreakerGoesOnAloneWhenTheWordEnds(t *testing.T) {
	t.Parallel()
	b, events := shared(t, Config{FirstProbes: 1, RampStart: 0.5, RampStep: second})
	follow(b, 0, Record{Epoch: 1, Moves: 1, State: Open, Wait: 10 * second, Opens: 1}, 0)
	wantState(t, b, 9900*time.Millisecond, Open, false)
	wantState(t, b, 10*second, HalfOpen, true)
	if e := (*events)[1]; e.Source != SourceLocal || e.Reason != ReasonWaitOver {
		t.Errorf("event %+v", e)
	}
	calls(b, 10*second, Success, 1) // its own probe
	if e := b.EvidenceAt(epoch.Add(10500*time.Millisecond), false); !e.Own || !e.Ramping || e.RampAge != second/2 || e.Epoch != 1 {
		t.Errorf("evidence %+v: how far it got must be told", e)
	}
	// Its ramp becomes the record's: nothing begins anew.
	follow(b, 10500*time.Millisecond, Record{Epoch: 2, Moves: 2, State: HalfOpen, Ramping: true, Age: second / 2}, 0)
	if s := wantState(t, b, 10500*time.Millisecond, HalfOpen, false); s.Generation != 2 {
		t.Errorf("generation %d, want 2", s.Generation)
	}
	wantState(t, b, 12*second, Closed, true) // the word ended again, at the top
}

func TestOldAndRepeatedRecordsChangeNothing(t *testing.T) {
	t.Parallel()
	b, events := shared(t, Config{})
	open := Record{Epoch: 5, Moves: 5, State: Open, Wait: 30 * second, By: "a"}
	follow(b, 0, open, 0)
	follow(b, second/2, Record{Epoch: 4, Moves: 4, By: "b"}, 0)
	open.Age = 20 * second // a store's clock that jumped
	follow(b, second/2, open, 0)
	if s := wantState(t, b, second/2, Open, false); !s.NextProbe.Equal(epoch.Add(30 * second)) {
		t.Errorf("open until %v", s.NextProbe)
	}
	b.AdoptAt(epoch.Add(second), Adoption{Record: Record{Epoch: 5, Moves: 4, By: "b"}, Replaced: true, Valid: second})
	wantState(t, b, second, Closed, false)
	if len(*events) != 2 {
		t.Errorf("events %+v", *events)
	}
}

func TestNobodyWaitsForARecordThatIsNotMoved(t *testing.T) {
	t.Parallel()
	b, _ := shared(t, Config{})
	open := Record{Epoch: 1, Moves: 1, State: Open, Wait: 3 * second}
	for at := time.Duration(0); at < 4*second; at += second / 2 {
		follow(b, at, open, 0)
	}
	wantState(t, b, 3900*time.Millisecond, Open, false)
	wantState(t, b, 4*second, HalfOpen, true)
}

func TestForceOfTheRecordStaysUntilItExpires(t *testing.T) {
	t.Parallel()
	b, _ := shared(t, Config{})
	forced := Record{Epoch: 1, Moves: 1, State: HalfOpen, Force: ForceOpen, ForceLeft: 10 * second}
	follow(b, 0, forced, 0)
	if s := wantState(t, b, 9*second, Open, false); s.Force != ForceOpen || s.Linked {
		t.Errorf("nobody renews the word, and it is %+v", s)
	}
	wantState(t, b, 10*second, HalfOpen, false)

	follow(b, 11*second, Record{Epoch: 2, Moves: 2, Force: ForceClosed, ForceLeft: 10 * second}, 0)
	if n := calls(b, 11*second, Failure, 50); n != 50 {
		t.Errorf("%d of 50 calls passed a breaker that is forced closed", n)
	}
	follow(b, 12*second, Record{Epoch: 3, Moves: 3}, 0)
	if s := wantState(t, b, 12*second, Closed, false); s.Force != ForceNone {
		t.Errorf("released, it is %+v", s)
	}
	calls(b, 12*second, Failure, 20)
	wantState(t, b, 12*second, Open, true)
}

func TestForceToObserveCountsAndRefusesNothing(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{ModeEnforce, ModeAlert, ModeObserve, ModeDisabled} {
		b, events := shared(t, Config{Mode: mode, OpenWait: 5 * second})
		if err := b.ForceAt(epoch, ForceObserve, 10*second); err != nil {
			t.Fatal(err)
		}
		if n := calls(b, second, Failure, 30); n != 30 {
			t.Errorf("%s: %d of 30 calls passed", mode, n)
		}
		s := b.SnapshotAt(epoch.Add(second))
		if s.State != Open || s.Force != ForceObserve || s.Totals.WouldRefuse != 10 {
			t.Errorf("%s: %+v", mode, s)
		}
		if len(*events) != 0 {
			t.Errorf("%s: it notified: %+v", mode, *events)
		}
		s = b.SnapshotAt(epoch.Add(10 * second))
		want := HalfOpen
		if mode == ModeDisabled {
			want = Closed
		}
		if s.Force != ForceNone || s.State != want {
			t.Errorf("%s: then it is %s, forced %s, want %s", mode, s.State, s.Force, want)
		}
	}
}

func TestForceToObserveLeavesTheStateOfTheRecord(t *testing.T) {
	t.Parallel()
	b, events := shared(t, Config{})
	open := Record{Epoch: 1, Moves: 1, State: Open, Wait: 30 * second}
	follow(b, 0, open, 0)
	open.Epoch, open.Age, open.Force, open.ForceLeft = 2, second, ForceObserve, 5*second
	follow(b, second, open, 0)
	if calls(b, second, Success, 5) != 5 {
		t.Error("a call was refused")
	}
	s := wantState(t, b, 6*second, Open, false)
	if s.Generation != 1 || len(*events) != 1 || !s.NextProbe.Equal(epoch.Add(30*second)) {
		t.Errorf("generation %d, %d events, open until %v", s.Generation, len(*events), s.NextProbe)
	}
	if calls(b, 6*second, Success, 1) != 0 {
		t.Error("a call passed after observing")
	}
}

func TestDisabledBreakerFollowsNobodyUntilItIsEnabled(t *testing.T) {
	t.Parallel()
	b, _ := shared(t, Config{Mode: ModeDisabled})
	open := Record{Epoch: 1, Moves: 1, State: Open, Wait: 30 * second}
	follow(b, 0, open, 0)
	wantState(t, b, 0, Closed, false)
	if err := b.SetModeAt(epoch, ModeEnforce); err != nil {
		t.Fatal(err)
	}
	follow(b, second, open, 0)
	wantState(t, b, second, Open, false)
}

func TestFloorOfTheRampFallsToOneWorkerAStep(t *testing.T) {
	t.Parallel()
	var admitted [3]int
	for worker := range admitted {
		b, _ := shared(t, Config{RampStart: 0.001, RampFactor: 1.01})
		for step := range 9 {
			at := time.Duration(step) * 3 * second
			b.AdoptAt(epoch.Add(at), Adoption{
				Record: Record{Epoch: 1, Moves: 1, State: HalfOpen, Ramping: true, Age: at}, Valid: 10 * second, Turn: worker, Of: 3,
			})
			admitted[worker] += calls(b, at, Success, 10)
		}
	}
	if admitted != [3]int{3, 3, 3} {
		t.Errorf("in nine steps the three workers admitted %v calls, want three each", admitted)
	}
}

// TestBreakerIsNeverStuckWhateverItAdopts gives a breaker random records, forces, calls and pauses, then leaves it alone
// with a service that is well.
func TestBreakerIsNeverStuckWhateverItAdopts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		b, _ := shared(t, Config{OpenWait: 2 * second, OpenWaitMax: 8 * second, ProbesInFlight: 1 + rnd.IntN(3), PermitDeadline: 2 * second})
		now := randomLife(t, b, rnd)
		var closed time.Duration
		for at := now; at < now+2*time.Minute; at += 50 * time.Millisecond {
			calls(b, at, Success, 1)
			if b.SnapshotAt(epoch.Add(at)).State == Closed {
				closed = at
				break
			}
		}
		// The longest force, the longest wait of a record, and the ramp.
		if limit := now + 60*second; closed == 0 || closed > limit {
			t.Errorf("seed %d: left alone at %v, closed at %v: %+v", seed, now, closed, b.SnapshotAt(epoch.Add(now+2*time.Minute)))
		}
	}
}

func randomLife(t *testing.T, b *Breaker, rnd *rand.Rand) time.Duration {
	t.Helper()
	var now time.Duration
	var kept []Permit
	for range 500 {
		at := epoch.Add(now)
		switch rnd.IntN(8) {
		case 0, 1:
			r := Record{
				Epoch: uint64(rnd.IntN(20)), Moves: uint64(rnd.IntN(20)), State: State(rnd.IntN(3)), Ramping: rnd.IntN(2) == 0,
				Age: time.Duration(rnd.Int64N(int64(40*second))) - 5*second, Wait: time.Duration(rnd.Int64N(int64(20 * second))), Opens: rnd.IntN(5),
				Force: Force(rnd.IntN(8) % 4), ForceLeft: time.Duration(rnd.Int64N(int64(10 * second))),
			}
			b.AdoptAt(at, Adoption{
				Record: r, Replaced: rnd.IntN(4) == 0, Valid: time.Duration(rnd.Int64N(int64(3 * second))), Slots: rnd.IntN(4) - 1,
				SlotsFor: time.Duration(rnd.Int64N(int64(3 * second))), Turn: rnd.IntN(3), Of: rnd.IntN(4),
			})
		case 2:
			now += time.Duration(rnd.Int64N(int64(2 * second)))
		case 3:
			if err := b.ForceAt(at, Force(rnd.IntN(4)), time.Duration(1+rnd.IntN(5))*second); err != nil {
				t.Fatal(err)
			}
		case 4:
			if p, ok := b.AllowAt(at); ok {
				kept = append(kept, p)
			}
		case 5:
			if len(kept) > 0 {
				b.DoneAt(at, kept[0], Result(rnd.IntN(4)))
				kept = kept[1:]
			}
		case 6:
			calls(b, now, Result(rnd.IntN(4)), 1+rnd.IntN(30))
		case 7:
			e := b.EvidenceAt(at, rnd.IntN(2) == 0)
			if e.Failure.Failures > e.Failure.Samples || e.Slots < e.Probing || e.Failure.Samples < 0 {
				t.Errorf("evidence %+v", e)
			}
		}
	}
	return now
}

func TestNamesSurviveTheirText(t *testing.T) {
	t.Parallel()
	for s := Closed; s <= HalfOpen; s++ {
		var got State
		if text, _ := s.MarshalText(); got.UnmarshalText(text) != nil || got != s {
			t.Errorf("state %s became %s", s, got)
		}
	}
	for f := ForceNone; f <= ForceObserve; f++ {
		var got Force
		if text, _ := f.MarshalText(); got.UnmarshalText(text) != nil || got != f {
			t.Errorf("force %s became %s", f, got)
		}
	}
	for r := ReasonNone; r <= ReasonQuorum; r++ {
		var got Reason
		if text, _ := r.MarshalText(); got.UnmarshalText(text) != nil || got != r {
			t.Errorf("reason %s became %s", r, got)
		}
	}
	if new(State).UnmarshalText([]byte("ajar")) == nil || new(Force).UnmarshalText([]byte("up")) == nil {
		t.Error("an unknown name was read")
	}
	r := ReasonForced
	if err := r.UnmarshalText([]byte("of-tomorrow")); err != nil || r != ReasonNone {
		t.Errorf("a reason of a later version became %s, %v", r, err)
	}
}

func TestAdoptAndEvidenceAllocateOnceOnly(t *testing.T) { //nolint:paralleltest // AllocsPerRun forbids it
	b, _ := shared(t, Config{})
	follow(b, 0, Record{}, 0)
	at := epoch
	if n := testing.AllocsPerRun(100, func() {
		at = at.Add(300 * time.Millisecond)
		b.AdoptAt(at, Adoption{Valid: second})
		b.EvidenceAt(at, false)
		if p, ok := b.AllowAt(at); ok {
			b.DoneAt(at, p, Success)
		}
	}); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
}
