package heap

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"spillway/internal/testkit"
)

// testWait is plenty for a child that only collects.
const testWait = 30 * time.Second

func TestMain(m *testing.M) {
	testkit.Main(m, map[string]func() int{"floor": underFloor})
}

func TestPercentageBringsTheHeapToTheFloorAndNeverBelowTheUsual(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	for _, c := range []struct {
		name                 string
		floor, live, scanned uint64
		want                 int
	}{
		{"nothing collected yet", 32 * mb, 0, 0, 100},
		{"a small heap", 32 * mb, 4 * mb, 4 * mb, 700},
		{"with stacks and globals", 32 * mb, 4 * mb, 7 * mb, 400},
		{"so small that the runtime's own least size holds", 32 * mb, 1 * mb, 1 * mb, 800},
		{"half of the floor", 32 * mb, 16 * mb, 16 * mb, 100},
		{"more than half", 32 * mb, 20 * mb, 20 * mb, 100},
		{"above the floor", 32 * mb, 40 * mb, 40 * mb, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := percentage(c.floor, c.live, c.scanned); got != c.want {
				t.Errorf("percentage(%d, %d, %d) = %d, want %d", c.floor, c.live, c.scanned, got, c.want)
			}
		})
	}
}

// The floor is the process's, so it is tried in one of its own.
func TestHeapGrowsToTheFloorAndWithALargeHeapAsEver(t *testing.T) {
	t.Parallel()
	p := testkit.Child(t, "floor", "GOGC=")
	if code := p.Wait(testWait); code != 0 {
		t.Errorf("exit code %d:\n%s", code, p.Output())
	}
}

// underFloor lets a heap grow below the floor and above it, and looks where the runtime wants to collect.
func underFloor() int {
	const mb = 1 << 20
	SetFloor(64 * mb)
	small := make([]byte, 2*mb)
	if !goals("with a small heap", 50*mb, 78*mb) {
		return 1
	}
	if !withLarge() || !goals("with a small heap again", 50*mb, 78*mb) {
		return 1
	}
	runtime.KeepAlive(small)
	return 0
}

func withLarge() bool {
	const mb = 1 << 20
	large := make([]byte, 100*mb)
	ok := goals("with 100 MiB live", 190*mb, 230*mb)
	runtime.KeepAlive(large)
	return ok
}

// goals collects until the size at which the runtime collects next is between two bounds. A cleanup runs some time
// after its collection, and what it sets shows in the next.
func goals(when string, least, most uint64) bool {
	goal := uint64(0)
	for range 200 {
		runtime.GC()
		<-time.After(time.Millisecond)
		s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		metrics.Read(s)
		if goal = s[0].Value.Uint64(); goal >= least && goal <= most {
			return true
		}
	}
	println(when, "the heap is let grow to", goal, "bytes")
	return false
}
