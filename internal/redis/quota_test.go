package redis_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"spillway/internal/quota"
	"spillway/internal/redis"
	"spillway/internal/testkit"
)

// onClock is the script with the server's clock and run in its arguments.
func onClock(t *testing.T) *goredis.Script {
	t.Helper()
	text, err := os.ReadFile("scripts/quota_exchange.lua")
	if err != nil {
		t.Fatal(err)
	}
	s := string(text)
	for _, r := range []struct{ from, to string }{
		{"redis.call('TIME')", "{ math.floor(ARGV[14] / 1000), (ARGV[14] % 1000) * 1000 }"},
		{"redis.call('INFO', 'server')", "'run_id:' .. ARGV[15]"},
	} {
		if strings.Count(s, r.from) != 1 {
			t.Fatalf("the script has %s %d times", r.from, strings.Count(s, r.from))
		}
		s = strings.Replace(s, r.from, r.to, 1)
	}
	return goredis.NewScript(s)
}

// TestTheScriptDoesWhatTheTableDoes drives both with the same random reports, clocks that leap, servers that start anew and
// tables that are lost, and compares every answer.
func TestTheScriptDoesWhatTheTableDoes(t *testing.T) {
	t.Parallel()
	url, script := testkit.Redis(t), onClock(t)
	opts, err := goredis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	db := goredis.NewClient(opts)
	t.Cleanup(func() { _ = db.Close() })
	prefix := testkit.Prefix(t)
	for seed := range uint64(12) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		key := fmt.Sprintf("{%s:%d}", prefix, seed)
		var table quota.Table
		seqs := map[string]uint64{}
		clock, run := int64(1_700_000_000_000), "a0"
		workers := 1 + rnd.IntN(14)
		for step := range 400 {
			clock += rnd.Int64N(700)
			switch rnd.IntN(60) {
			case 0:
				clock += rnd.Int64N(7_200_000) - 3_600_000
			case 1:
				run = fmt.Sprintf("a%d", step)
			case 2:
				table = quota.Table{}
				if err := db.Del(t.Context(), key).Err(); err != nil {
					t.Fatal(err)
				}
			}
			name := fmt.Sprintf("worker-%d", rnd.IntN(workers))
			seqs[name]++
			r := quota.Report{
				Key: "k", Seq: seqs[name], Held: rnd.Int64N(20), Want: rnd.Int64N(30), Most: rnd.Int64N(40), Cap: 10 + rnd.Int64N(2)*rnd.Int64N(90),
				Hold: 5*time.Second + time.Duration(rnd.Int64N(5000))*time.Millisecond, Gone: rnd.IntN(12) == 0,
			}
			if r.Gone && rnd.IntN(2) == 0 {
				r.Held = 0
			}
			if rnd.IntN(20) == 0 {
				r.Seq -= min(r.Seq, 2)
			}
			want := table.Exchange(time.Duration(clock)*time.Millisecond, run, name, r)
			gone := 0
			if r.Gone {
				gone = 1
			}
			v, err := script.Run(t.Context(), db, []string{key}, name, r.Seq, r.Held, r.Want, r.Most, r.Cap, r.Hold.Milliseconds(), gone,
				quota.Step.Milliseconds(), quota.Pass.Milliseconds(), quota.Turn.Milliseconds(), quota.MaxCap, 60_000, clock, run).Int64Slice()
			if err != nil {
				t.Fatal(err)
			}
			got := quota.Answer{Stale: v[0] == 1, Grant: v[1], Cap: v[2], Allotted: v[3], Workers: int(v[4]), Unsure: v[5] == 1}
			if want.Stale {
				want = quota.Answer{Stale: true, Cap: got.Cap, Allotted: got.Allotted, Workers: got.Workers, Unsure: got.Unsure}
			}
			if got != want {
				t.Fatalf("seed %d, step %d: %s reports %+v, the script answers %+v, the table %+v", seed, step, name, r, got, want)
			}
		}
		if err := db.Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAQuotaIsKeptByARealServer(t *testing.T) {
	t.Parallel()
	client, err := redis.Open(redis.Config{URL: testkit.Redis(t), Prefix: strings.NewReplacer("{", "", "}", "").Replace(testkit.Prefix(t))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	ask := func(worker string, r quota.Report) quota.Answer {
		t.Helper()
		answers, err := client.Quotas().Exchange(t.Context(), worker, []quota.Report{r, {Key: "other{2}", Seq: r.Seq, Cap: 5, Hold: time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		return answers[0]
	}
	report := func(seq uint64, held int64) quota.Report {
		return quota.Report{Key: "pay{1}", Seq: seq, Held: held, Want: 10, Most: 10, Cap: 10, Hold: 600 * time.Millisecond}
	}
	if a := ask("a", report(1, 0)); !a.Unsure || a.Grant != 0 {
		t.Fatalf("a table that nobody knows answers %+v", a)
	}
	if a := ask("b", report(1, 4)); !a.Unsure || a.Grant != 4 || a.Allotted != 4 {
		t.Fatalf("a holder is answered %+v", a)
	}
	time.Sleep(300 * time.Millisecond)
	if a := ask("b", report(2, 4)); !a.Unsure || a.Grant != 4 {
		t.Fatalf("half a hold later a holder is answered %+v", a)
	}
	time.Sleep(400 * time.Millisecond)
	if a := ask("a", report(2, 0)); a.Unsure || a.Grant != 5 || a.Workers != 2 {
		t.Fatalf("once all holders must have spoken: %+v", a)
	}
	if a := ask("b", report(3, 4)); a.Grant != 5 || a.Allotted != 10 {
		t.Fatalf("the other's half: %+v", a)
	}
	if a := ask("b", report(3, 4)); !a.Stale {
		t.Fatalf("the same report again: %+v", a)
	}
	gone := report(4, 0)
	gone.Gone = true
	if a := ask("b", gone); a.Grant != 0 || a.Workers != 1 || a.Allotted != 5 {
		t.Fatalf("after a clean end: %+v", a)
	}
	time.Sleep(600 * time.Millisecond)
	if a := ask("a", report(3, 5)); a.Grant != 10 {
		t.Fatalf("alone: %+v", a)
	}
}
