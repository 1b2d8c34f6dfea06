// Package fleet lets the breakers of several workers share one state through a store such as Redis.
//
// Each worker runs one [Sharer]. A few times a second it makes one exchange for all its breakers: it states what they
// have seen, and learns the record and what the others have seen. Calls never wait for it: between exchanges a breaker
// follows the record by its own clock, and what Allow and Done cost does not change.
//
// # Who opens what
//
// Each breaker still opens by its own rules, for itself alone. The record opens, and with it every breaker, when
//
//   - the results of all workers together reach a threshold, by their Wilson lower bound, and those of the others,
//     without the worker that saw most of it, do too as far as there are any; or
//   - at least two workers and at least half of those alive have opened by themselves, or all of them have.
//
// So one worker with a bad network opens only itself; its opening stands until its own wait is over. Any worker may move
// the record, by compare-and-set on its epoch, and all decide by the same function of the record and the statements, so
// it does not matter which one does.
//
// # Recovery
//
// The wait of the record has no jitter: it spreads over nobody, since the first probes are counted over the fleet. The
// right to run one is a slot, leased to a worker that has had to refuse a call, and given back when another one needs it;
// each time a worker gives a slot back unused it keeps the next one twice as long, so that rare calls are met too. The
// slots of all workers together never exceed Config.ProbesInFlight. Enough good probes of all workers begin the ramp, whose share is
// a function of the time since then; bad ones from two workers, or the ones above, reopen. The call that each step of
// the ramp is owed falls to one worker at a time.
//
// # Time
//
// The store's clock alone dates the record, and it leaves the store as an age. A worker adds to that age by its
// monotonic clock for as long as it knows the record, so neither its wall clock nor a jump of the store's moves a wait.
// A worker that learns the record only after the store's clock has jumped takes the age that the clock gives it.
// (A store's clock that jumps ahead ends the leases of slots early: one slot may then be out twice, for one lease.)
// A worker that starts adopts what it finds: a restart neither resets nor lengthens a wait.
//
// # Without the store
//
// A record's word ends with its lease. Then each breaker goes on alone from the state it has, with its own rules, its
// own probes and its own ramp; a force stays until it expires. The limit on first probes then holds for each
// worker. When the store is back:
//
//   - A record with a higher epoch than a worker's is adopted.
//   - A record with a lower epoch (the store lost data, or never had any) is replaced with the worker's, with its age as
//     the worker has counted it on. Of several workers the one with the highest epoch wins, whoever comes first.
//   - Two records of the same epoch and different origin: the store's is adopted.
//   - At the same epoch, a worker that went further alone says so: its ramp, or its closed state, becomes the record if
//     the record is open with its wait over, or half-open. The furthest wins. An opening a worker made alone stands for
//     itself.
//
// # Orders
//
// [Give] forces a breaker open, closed or to observe for the whole fleet, or releases it. The order is part of the
// record: it outlives restarts, and every order is kept with its operator, reason and expiry ([Store.Audit]).
//
// # What it does not do
//
// It opens no connections and starts no goroutines: [Sharer.Run] works in the goroutine that calls it.
package fleet
