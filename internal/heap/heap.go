// Package heap keeps the garbage collector of a process from running over a heap that is too small to be worth it, and
// so keeps the process's memory from following its load.
//
// The runtime collects when the heap has doubled. A worker with nothing to do keeps some 4 MB, so that it would collect
// every 4 MB, several times a second under a calm load; with a backlog it keeps three times as much, and its memory would
// be three times as much too. With a floor both let the heap grow to the same size.
package heap

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// usual is the runtime's own percentage, below which nothing here goes.
const usual = 100

// SetFloor lets the heap grow to bytes before it is collected, as long as what is live is less than half of that; above
// it the runtime's own rule holds again. It is for the process, so only a main may call it, once, and not where GOGC is
// set: then the person who runs the process has decided. GOMEMLIMIT holds as ever.
//
// It starts no goroutine: the percentage is set anew after each collection, by the runtime's own cleanups.
func SetFloor(bytes uint64) {
	f := &floor{bytes: bytes, percent: usual, sample: []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}}
	f.collected(nil)
}

// floor is used by one cleanup at a time: each is armed by the one before.
type floor struct {
	bytes   uint64
	percent int
	sample  []metrics.Sample
}

// mark is an object that the next collection frees. It is not so small that the allocator lets it share a block.
type mark struct{ _ [32]byte }

// collected sees to the percentage after a collection and arms itself for the next one.
func (f *floor) collected(*mark) {
	metrics.Read(f.sample)
	live := f.sample[0].Value.Uint64()
	percent := percentage(f.bytes, live, live+f.sample[1].Value.Uint64()+f.sample[2].Value.Uint64())
	// Setting it stops the world for some microseconds: not for the sake of a tenth.
	if percent == usual && f.percent != usual || percent*10 < f.percent*9 || percent*10 > f.percent*11 {
		f.percent = percent
		debug.SetGCPercent(percent)
	}
	runtime.AddCleanup(new(mark), f.collected, nil)
}

// least is where the runtime collects at the earliest with a percentage of 100: it lets a heap that has less than half of
// it grow so far, and by as much more as the percentage is higher.
const least = 4 << 20

// percentage is the GOGC with which the heap grows to floor: the runtime's goal is what is live, and of all that it has
// to scan (live, stacks and globals) that many hundredths more.
func percentage(floor, live, scanned uint64) int {
	if live == 0 || live >= floor {
		return usual // nothing was collected yet, or there is no room below the floor
	}
	want := min((floor-live)*100/scanned, floor*100/least)
	return max(usual, int(want)) //nolint:gosec // a floor of exabytes would be needed
}
