// Package adapt finds how many calls a service takes at once: a limit between two bounds that follows the service.
//
// It watches what more concurrency buys. With n calls in flight that take R each, a service gives n/R calls a second
// (Little's law), so that its throughput's elasticity in n is 1-e, where e = dlnR/dlnn is the latency's. While e is 0 a call
// more is a call more done; at 1 it only waits. The limit settles where e is 0.85, or where the latency is three times
// that of the unloaded service, whichever comes first. For c servers and a queue that is c; for a latency that rises by
// S/k with every call it is 2k, two thirds of the throughput there is; for a service that contention slows down it is 98 %
// of the peak.
//
// e is measured, not inferred: windows at the base and a fifth above it alternate, and each two that follow each other give
// one slope. The unloaded latency is measured as well: where it matters, a window now and then holds a quarter of the base,
// and the line through its latency and the full one is followed down to no load. So the service may become slower for good
// and the limit stays, while our own queueing never passes for its latency.
//
// Calls that the service dropped (it said that it has too much, or did not answer in time) shrink the limit whatever the
// latencies say, by at most three tenths a second.
//
// The limit grows only while nine tenths of it are in flight, and one step moves it by at most a factor of 1.42.
package adapt
