package redis_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"spillway/breaker"
	"spillway/breaker/fleet"
	"spillway/internal/redis"
	"spillway/internal/testkit"
)

// payKey has what must not end the hash tag of a key.
func payKey() breaker.Key { return breaker.Key{Service: "pay{1}", Endpoint: "submit"} }

func exchange(t *testing.T, s *redis.Breakers, worker string, reports ...fleet.Report) []fleet.View {
	t.Helper()
	views, err := s.Exchange(t.Context(), worker, reports)
	if err != nil {
		t.Fatal(err)
	}
	return views
}

func moveOne(t *testing.T, s *redis.Breakers, m fleet.Move) bool {
	t.Helper()
	done, err := s.Move(t.Context(), []fleet.Move{m})
	if err != nil {
		t.Fatal(err)
	}
	return done[0]
}

func statementOf(slots int, wants bool) fleet.Report {
	return fleet.Report{
		Key: payKey(), Evidence: breaker.Evidence{Slots: slots}, Wants: wants, Limit: 1,
		Lease: time.Minute, Deadline: time.Minute,
	}
}

func TestRecordMovesOnlyFromTheEpochExpected(t *testing.T) {
	t.Parallel()
	onEach(t, 1000, func(r rig) {
		t, s := r.t, r.client.Breakers()
		v := exchange(t, s, "a", statementOf(0, false))[0]
		if !reflect.DeepEqual(v.Record, breaker.Record{}) {
			t.Errorf("nobody moved it, but it is %+v", v.Record)
		}
		next := breaker.Record{
			Epoch: 1, Moves: 1, State: breaker.Open, Age: 5 * time.Second, Wait: 30 * time.Second, Opens: 3, By: "a",
			Force: breaker.ForceObserve, ForceLeft: time.Minute,
			Why: breaker.Grounds{Reason: breaker.ReasonFailureRate, Window: 10 * time.Second, Samples: 20, Failures: 19, Slow: 1, Rate: .95, Bound: .9, Threshold: .5},
		}
		if !moveOne(t, s, fleet.Move{Key: payKey(), Expect: 0, Record: next}) {
			t.Fatal("the first move was refused")
		}
		if moveOne(t, s, fleet.Move{Key: payKey(), Expect: 0, Record: breaker.Record{Epoch: 1, By: "b"}}) {
			t.Error("a second move from the same epoch was taken")
		}
		v = exchange(t, s, "b", statementOf(0, false))[0]
		if d := v.Record.Age - next.Age; d < 0 || d > 5*time.Second {
			t.Errorf("age %v, want %v and a little", v.Record.Age, next.Age)
		}
		if d := next.ForceLeft - v.Record.ForceLeft; d < 0 || d > 5*time.Second {
			t.Errorf("the force has %v left, want a little less than %v", v.Record.ForceLeft, next.ForceLeft)
		}
		v.Record.Age, v.Record.ForceLeft = next.Age, next.ForceLeft
		if v.Record != next {
			t.Errorf("record\n%+v, want\n%+v", v.Record, next)
		}
		looked, err := s.Look(t.Context(), []breaker.Key{payKey()})
		if err != nil || looked[0].Record.Epoch != 1 || len(looked[0].Members) != 2 {
			t.Errorf("look: %+v, %v", looked, err)
		}
	})
}

func TestEveryWorkerSeesTheStatementsOfAll(t *testing.T) {
	t.Parallel()
	onEach(t, 1000, func(r rig) {
		t, s := r.t, r.client.Breakers()
		e := breaker.Evidence{
			Epoch: 7, State: breaker.HalfOpen, Ramping: true, RampAge: 3 * time.Second, Own: true, Force: breaker.ForceClosed,
			Failure: breaker.Window{Samples: 1, Failures: 2, Slow: 3}, Slow: breaker.Window{Samples: 4, Failures: 5, Slow: 6},
			Successes: 7, Half: breaker.Window{Samples: 8, Failures: 9, Slow: 10}, ProbesGood: 11, ProbesBad: 12, Slots: 0, Probing: 14,
		}
		exchange(t, s, "a", fleet.Report{Key: payKey(), Evidence: e, Lease: time.Minute})
		other := breaker.Key{Service: "other", Endpoint: "submit"}
		views := exchange(t, s, "b", fleet.Report{Key: other, Lease: time.Minute}, fleet.Report{Key: payKey(), Lease: time.Minute})
		if len(views[0].Members) != 1 || len(views[1].Members) != 2 {
			t.Fatalf("members %+v", views)
		}
		if got := views[1].Members[0]; got.Worker != "a" || got.Evidence != e || got.Seen > 10*time.Second {
			t.Errorf("a stated\n%+v, b sees\n%+v", e, got)
		}
		exchange(t, s, "a", fleet.Report{Key: payKey(), Gone: true})
		if v := exchange(t, s, "b", fleet.Report{Key: payKey(), Lease: time.Minute})[0]; len(v.Members) != 1 {
			t.Errorf("a is gone, but b sees %+v", v.Members)
		}
	})
}

func TestSlotsOfAllWorkersStayWithinTheLimit(t *testing.T) {
	t.Parallel()
	onEach(t, 1000, func(r rig) {
		t, s := r.t, r.client.Breakers()
		want := func(worker string, r fleet.Report, slots int, why string) {
			t.Helper()
			if v := exchange(t, s, worker, r)[0]; v.Slots != slots {
				t.Errorf("%s: %d slots, want %d", why, v.Slots, slots)
			}
		}
		brief := statementOf(0, true)
		brief.Lease, brief.Deadline = 20*time.Millisecond, 50*time.Millisecond
		began := time.Now()
		want("a", brief, 0, "a server that has just begun cannot know whose slots are out")
		testkit.Eventually(t, 5*time.Second, func() (bool, string) {
			return exchange(t, s, "a", brief)[0].Slots == 1, "nobody ever gets a slot"
		})
		if took := time.Since(began); took < 65*time.Millisecond {
			t.Errorf("the first slot was given after %v", took)
		}
		want("a", statementOf(0, false), 0, "given back, not asked for")
		r.shell.HSet(t.Context(), "{"+r.prefix+":breaker:pay(1)/submit}:members", "", "1") // it began long ago
		want("a", statementOf(0, true), 1, "the first to ask")
		want("b", statementOf(0, true), 0, "none is left")
		want("a", statementOf(1, true), 1, "more than the limit")
		want("a", statementOf(0, false), 0, "given back")
		want("b", statementOf(0, true), 1, "free again")
		gone := statementOf(0, false)
		gone.Gone = true
		exchange(t, s, "b", gone)
		silent := statementOf(0, true)
		silent.Lease, silent.Deadline = 20*time.Millisecond, 50*time.Millisecond
		want("c", silent, 1, "its holder ended")
		began = time.Now()
		asking := silent
		testkit.Eventually(t, 5*time.Second, func() (bool, string) {
			return exchange(t, s, "d", asking)[0].Slots == 1, "the slot of a silent worker never comes back"
		})
		if took := time.Since(began); took < 50*time.Millisecond {
			t.Errorf("the slot came back after %v, before its last probe could have ended", took)
		}
	})
}

func TestOrdersAreAuditedAndOutliveWorkers(t *testing.T) {
	t.Parallel()
	onEach(t, 1000, func(r rig) {
		t, s := r.t, r.client.Breakers()
		ctx := t.Context()
		give := func(force breaker.Force, reason string) (breaker.Record, error) {
			return fleet.Give(ctx, s, fleet.Order{Key: payKey(), Force: force, For: time.Hour, Operator: "kim", Reason: reason})
		}
		if _, err := give(breaker.ForceNone, "nothing there"); err == nil {
			t.Error("released what was not forced")
		}
		for i, force := range []breaker.Force{breaker.ForceOpen, breaker.ForceObserve, breaker.ForceClosed, breaker.ForceNone} {
			r, err := give(force, fmt.Sprint("because ", i))
			if err != nil || r.Force != force {
				t.Fatalf("%s: %+v, %v", force, r, err)
			}
		}
		notes, err := s.Audit(ctx, payKey(), 3)
		if err != nil || len(notes) != 3 {
			t.Fatalf("audit: %+v, %v", notes, err)
		}
		got := notes[1]
		if time.Since(got.At).Abs() > time.Minute {
			t.Errorf("the order was given at %v", got.At)
		}
		got.At = time.Time{}
		if want := (fleet.Note{Force: breaker.ForceClosed, For: time.Hour, Operator: "kim", Reason: "because 2", Epoch: 3}); got != want {
			t.Errorf("audit says %+v, want %+v", got, want)
		}
		for i := range 110 {
			if _, err := give(breaker.ForceOpen, fmt.Sprint("again ", i)); err != nil {
				t.Fatal(err)
			}
		}
		if notes, err = s.Audit(ctx, payKey(), 1000); err != nil || len(notes) != 100 {
			t.Errorf("audit keeps %d orders (%v), want 100", len(notes), err)
		}
	})
}

func TestBreakersLeaveAFixedNumberOfKeys(t *testing.T) {
	t.Parallel()
	onEach(t, 1000, func(r rig) {
		t, s := r.t, r.client.Breakers()
		for range 5 {
			exchange(t, s, "a", statementOf(0, false))
			if _, err := fleet.Give(t.Context(), s, fleet.Order{Key: payKey(), Force: breaker.ForceOpen, For: time.Hour, Operator: "kim", Reason: "x"}); err != nil {
				t.Fatal(err)
			}
			exchange(t, s, "a", statementOf(0, false))
		}
		keys, err := r.shell.Keys(t.Context(), "{"+r.prefix+":breaker:*").Result()
		if err != nil || len(keys) != 3 {
			t.Fatalf("keys %v, %v", keys, err)
		}
		for _, key := range keys {
			if !strings.HasPrefix(key, "{"+r.prefix+":breaker:pay(1)/submit}:") {
				t.Errorf("key %s", key)
			}
			if strings.HasSuffix(key, ":audit") {
				continue // 100 lines at most
			}
			if ttl := r.shell.TTL(t.Context(), key).Val(); ttl <= 0 {
				t.Errorf("%s lives for %v", key, ttl)
			}
		}
	})
}

func TestUnreadableRecordCountsAsClosedAndIsMended(t *testing.T) {
	t.Parallel()
	onEach(t, 1000, func(r rig) {
		t, s := r.t, r.client.Breakers()
		key := "{" + r.prefix + ":breaker:pay(1)/submit}:"
		r.shell.HSet(t.Context(), key+"record", "epoch", "9", "since", "1", "ends", "1", "body", "{")
		r.shell.HSet(t.Context(), key+"members", "x", "nonsense", "y", fmt.Sprintf("%d 0 0 0 [", time.Now().UnixMilli()))
		v := exchange(t, s, "a", statementOf(0, false))[0]
		if v.Record.Epoch != 9 || v.Record.State != breaker.Closed || len(v.Members) != 2 {
			t.Errorf("view %+v", v)
		}
		if !moveOne(t, s, fleet.Move{Key: payKey(), Expect: 9, Record: breaker.Record{Epoch: 10, State: breaker.Open, By: "a"}}) {
			t.Error("it cannot be mended")
		}
	})
}

func TestExchangeIsOneRoundTripWhateverTheTraffic(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client, err := redis.Open(redis.Config{URL: "redis://" + server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	s := client.Breakers()
	exchange(t, s, "a", statementOf(0, false)) // gives the server the script
	count := func(samples int) int {
		before := server.CommandCount()
		r := statementOf(0, false)
		r.Evidence.Failure.Samples = samples
		exchange(t, s, "a", r)
		return server.CommandCount() - before
	}
	if idle, busy := count(0), count(1_000_000); idle != busy {
		t.Errorf("%d commands without calls, %d with a million", idle, busy)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Exchange(ctx, "a", []fleet.Report{statementOf(0, false)}); err == nil {
		t.Error("an exchange went on after its context ended")
	}
}
