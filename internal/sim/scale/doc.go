// Package scale runs the controllers of a whole fleet ([consumer.Gate], one for each worker) against a model of what is around
// them, to show that a thousand of them are stable together: brokers with a round trip and long polls, a topic of ten
// thousand partitions with skew and bursts, an admission that takes a statement's time, a cap of permits over the fleet
// that is dealt out anew each second, and one downstream that serves so many calls at once and lets the others wait.
//
// One goroutine, one clock that only events move, one random source: a seed tells the whole story. Records are counted
// and not kept; nothing fails but workers, which join and leave. That nothing is lost is the business of package sim.
package scale
