package testkit

import (
	"testing"
	"time"
)

// Eventually polls cond until it holds. After the timeout the test fails with what cond said last. Call it from the
// test's goroutine.
func Eventually(t testing.TB, timeout time.Duration, cond func() (ok bool, why string)) {
	t.Helper()
	const every = 20 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for end := time.Now().Add(timeout); ; <-tick.C {
		ok, why := cond()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", timeout, why)
		}
	}
}
