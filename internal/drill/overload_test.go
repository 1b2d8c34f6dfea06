package drill

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"spillway/internal/testkit"
	"spillway/internal/wallet"
	"spillway/order"
)

// TestAKillWithAThousandCallsInFlightCallsNoFinishedOrderAgain kills the command once thousands of orders are done and
// a thousand calls are in flight, most of the done ones above the committed offsets. What is done stays done; what was in
// flight had arrived, and is found.
func TestAKillWithAThousandCallsInFlightCallsNoFinishedOrderAgain(t *testing.T) {
	t.Parallel()
	const orders, permits = 6000, 1000
	dsn := testkit.Postgres(t)
	r := newRig(t, world{postgres: dsn, partitions: 12, route: fmt.Sprintf("    permits: {limit: %d}\n", permits), env: callsOf(4 * time.Second)})
	r.wallet.SetMode(wallet.Healthy(1500 * time.Millisecond))
	r.produce(orders)
	p := r.command()
	var flying int64
	testkit.Eventually(t, time.Minute, func() (bool, string) {
		counts := r.wallet.Counts()
		flying = counts.InFlight
		return counts.Posts >= orders/3 && flying >= permits*98/100, fmt.Sprintf("%+v", counts)
	})
	p.Kill()
	done := finished(t, dsn)
	committed := sum(r.broker.CommittedOffsets(t, "g-"+r.topic, r.topic))
	t.Logf("killed with %d calls in flight, %d orders done, %d records committed", flying, len(done), committed)
	if len(done) == 0 {
		t.Fatal("nothing was done yet: the drill shows nothing")
	}
	posts := map[string]int{}
	for _, number := range done {
		entry, _ := r.wallet.Entry(number)
		posts[number] = entry.Posts
	}
	r.wallet.SetMode(wallet.Healthy(50 * time.Millisecond))
	next := r.command()
	r.awaitFinal(orders, 2*time.Minute)
	r.awaitCommitted(20 * time.Second)
	r.conserved(orders)
	for _, number := range done {
		if entry, _ := r.wallet.Entry(number); posts[number] != 1 || entry.Posts != 1 {
			t.Errorf("order %s was done before the kill after %d calls, and has %d now", number, posts[number], entry.Posts)
		}
	}
	if most := r.wallet.Counts().MaxFlight; most > 2*permits { // those of the killed worker were still being answered
		t.Errorf("%d calls at once with %d permits", most, permits)
	}
	next.Kill()
}

// finished is the orders that are SUCCEEDED, once no session of a killed worker is left that could still commit.
func finished(t *testing.T, dsn string) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		var left int
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND application_name = 'spillway' AND state <> 'idle'`).Scan(&left); err != nil {
			t.Fatal(err)
		}
		return left == 0, fmt.Sprintf("%d sessions at work", left)
	})
	rows, err := conn.Query(t.Context(), "SELECT number FROM orders WHERE state = $1", order.Succeeded)
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return numbers
}

// TestAnOverloadedWorkerStaysWithinItsPermitsAndInItsGroup offers the command far more than the wallet takes, after a
// calm beginning, and looks at what the wallet gets, at the memory and at the group. The honest figures come from
// "make bench-overload"; the bounds here hold on a machine that is busy with other tests.
func TestAnOverloadedWorkerStaysWithinItsPermitsAndInItsGroup(t *testing.T) {
	t.Parallel()
	const backlog, permits, calm = 20_000, 20, 400
	r := newRig(t, world{partitions: 12, route: fmt.Sprintf("    permits: {limit: %d}\n", permits), env: callsOf(4 * time.Second)})
	r.wallet.SetMode(wallet.Healthy(20 * time.Millisecond))
	p := r.command()
	addr := r.addr(p)
	r.produce(calm)
	r.awaitFinal(calm, time.Minute)
	generations := r.metric(addr, "spillway_kafka_generations_total")
	quiet := resident(t, p.PID())
	r.produce(backlog)
	testkit.Eventually(t, 30*time.Second, func() (bool, string) {
		return r.wallet.Counts().InFlight == permits, fmt.Sprintf("%+v", r.wallet.Counts())
	})
	began, before, peak := time.Now(), r.wallet.Counts().Posts, 0
	for time.Since(began) < 8*time.Second {
		peak = max(peak, resident(t, p.PID()))
		<-time.After(50 * time.Millisecond)
	}
	counts := r.wallet.Counts()
	rate := float64(counts.Posts-before) / time.Since(began).Seconds()
	t.Logf("%.0f calls/s of at most %d, at most %d in flight, memory %d MiB before and %d MiB at most",
		rate, permits*50, counts.MaxFlight, quiet>>20, peak>>20)
	if counts.MaxFlight > permits {
		t.Errorf("%d calls in flight with %d permits", counts.MaxFlight, permits)
	}
	if rate < permits*50/3 {
		t.Errorf("%.0f calls/s get through, want a third of %d at the least", rate, permits*50)
	}
	if peak > 100<<20 {
		t.Errorf("resident memory %d MiB, want at most 100", peak>>20)
	}
	if now := r.metric(addr, "spillway_kafka_generations_total"); now != generations {
		t.Errorf("%v generations under the overload, want none", now-generations)
	}
	if queued := r.metric(addr, "spillway_held_bytes"); queued > 64<<20 {
		t.Errorf("%v bytes held", queued)
	}
	p.Kill()
}
