// Package breakersim replays the calls of a trace through a circuit breaker and says when it would have opened, why, and
// what that would have saved and cost. Thresholds can be set from history instead of by feeling.
//
// It reads the trace once, call by call, whatever its length: memory grows with the calls in flight at one moment and with
// nothing else, and both are bounded. Several settings are tried in the same pass.
//
// A replay believes that a call's outcome does not depend on the calls before it. In truth a service that is spared
// recovers sooner, so what a replay says of the time spent open is on the safe side.
package breakersim
