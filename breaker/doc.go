// Package breaker is a circuit breaker for calls that must not be made twice and must not be made in vain.
//
// A caller asks with Allow, makes the call, and reports with Done what it showed:
//
//	permit, ok := b.Allow()
//	if !ok {
//		return errRefused
//	}
//	err := call()
//	b.Done(permit, resultOf(err))
//
// [New] with a zero [Config] is a good start; the package's example is a whole caller. A [Set] holds a breaker for each
// (service, endpoint). ModeObserve counts what would be refused and refuses nothing, until the numbers of Snapshot have
// shown what the thresholds do. The listener given to New is told every move with its evidence; Force is for operators.
// Whoever has the time already uses AllowAt and DoneAt, which spare the clock. The package imports the standard library
// only.
//
// # The states
//
//	         a rule of the windows, or too many failures in a row
//	closed ───────────────────────────────────────────────────────▶ open
//	  ▲                                                              │ ▲
//	  │ top of the ramp, or enough successes       the wait is over  │ │ two bad first probes in a row,
//	  └───────────────────────── half-open ◀─────────────────────────┘ │ or a rule of the ramp
//	                                 └──────────────────────────────────┘
//
// Closed, results go into one-second buckets. Failures and slow calls each have a window, a threshold and a minimum of
// their own, and a number of failures in a row opens the breaker whatever the windows hold: in a row as they are reported,
// or in the order the calls were admitted, where good answers of older calls do not count. Open, calls are refused for
// a wait with jitter that grows while openings follow each other. Half-open, a few first probes go one after the
// other; then a share of the calls passes that starts at 1 % and doubles every three seconds, at least one call a
// step; at the top the breaker closes.
//
// # What it promises
//
//   - It is never stuck. Open ends with its wait, shared or not, and a force with its expiry; a probe that is never reported is counted
//     failed at Config.PermitDeadline and its slot is free again; a probe reported as Ignored frees its slot at once.
//     Nothing but a call, a report or a snapshot is needed to move it: there is no timer to lose.
//   - Each state has a generation, carried by its permits. The result of a call that began in an earlier generation is
//     counted in Totals and decides nothing.
//   - Allow and Done start no goroutine, allocate nothing and do no I/O. Refusing costs a few atomic operations; in a rush
//     of refusals most do not even read the clock (see Allow for what that means).
//   - Every move is told to a listener with the rule, the counts it saw and the threshold, outside the lock.
//
// # What it does not do
//
// It makes no calls, retries nothing, and limits no rate and no concurrency. It does not know what a result means: the
// caller classifies. A failure is not counted as slow however long it took.
//
// It shares its state with nobody by itself. Adopt gives it a state shared with others, Evidence tells what it has seen
// for them, and package breaker/fleet does both through a store, in the background.
package breaker
