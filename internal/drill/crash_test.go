package drill

import (
	"fmt"
	"testing"
	"time"

	"spillway/consumer"
	"spillway/internal/wallet"
)

// TestKillBetweenAnyTwoStepsLosesNothingAndAppliesNothingTwice kills the worker with SIGKILL at each stop of a
// record's way, at the first record and in the middle of a stream, and starts another.
func TestKillBetweenAnyTwoStepsLosesNothingAndAppliesNothingTwice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		step consumer.Step
		nth  int
		mode wallet.Mode
	}{
		{consumer.StepFetched, 1, wallet.Healthy(time.Millisecond)},
		{consumer.StepAdmitted, 1, wallet.Healthy(time.Millisecond)},
		{consumer.StepAdmitted, 150, wallet.Healthy(time.Millisecond)},
		{consumer.StepSent, 1, wallet.Healthy(time.Millisecond)},
		{consumer.StepSent, 150, wallet.Healthy(time.Millisecond)},
		{consumer.StepSettled, 1, wallet.Healthy(time.Millisecond)},
		{consumer.StepSettled, 150, wallet.Healthy(time.Millisecond)},
		{consumer.StepSettled, 60, wallet.Failing(503)}, // REPLAYING in Postgres, not yet in the queue
		{consumer.StepPushed, 1, wallet.Failing(503)},
		{consumer.StepPushed, 100, wallet.Failing(503)},
		{consumer.StepCommit, 1, wallet.Healthy(time.Millisecond)},
		{consumer.StepCommit, 1, wallet.Failing(503)},
	} {
		t.Run(fmt.Sprintf("%s %d %s", c.step, c.nth, c.mode.Name), func(t *testing.T) {
			t.Parallel()
			const orders = 300
			r := newRig(t, world{})
			r.wallet.SetMode(c.mode)
			r.produce(orders)
			p := r.work(fmt.Sprintf("DRILL_CRASH=%s:%d", c.step, c.nth))
			if code := p.Wait(40 * time.Second); code != -1 {
				t.Fatalf("the worker ended with %d instead of being killed:\n%s", code, tail(p.Output()))
			}
			r.wallet.SetMode(wallet.Healthy(time.Millisecond))
			next := r.work()
			r.awaitFinal(orders, time.Minute)
			r.awaitCommitted(20 * time.Second)
			r.conserved(orders)
			next.Kill()
		})
	}
}
