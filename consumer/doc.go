// Package consumer takes partitions to attempts to offsets: the live lane of a route.
//
// Each record goes through the same stops, and each stop has a bound:
//
//	slot ─▶ fetch ─▶ open ─▶ admit ─▶ permit ─▶ attempt ─▶ settle ─▶ close ─▶ commit
//	Gate    Feed     Ledger   Store              Attempter  Store     Ledger   Session
//
// [Gate] and [Ledger] are pure: what may be fetched next, and what may be committed. [Lane] is the shell around them.
//
// # Promises
//
//   - Nothing is read that there is no room for. A partition that may not be served is left out of the next fetch; the
//     member stays in the group.
//   - An offset is committed only when every record before it is final, or durably in Postgres with somebody due to act
//     on it, or durably a dead letter. A spilled order counts once the replay queue took it.
//   - An order is sent only under a lease that outlives the call, and only with its attempt counted.
//   - While Postgres is away, intake holds and nothing is committed; while Redis is away, nothing that was spilled is.
//   - At the end of a generation calls under way are finished within Config.Drain, and what can't be is cancelled and
//     settled as such. What was admitted and never sent is handed back: whoever reads its record next takes it up.
//   - With an ordering, the records of a key, or of a partition, are sent one at a time in the order of their offsets.
//
// # What it does not do
//
// It tries again nothing but what never left this machine, once and under a budget (the rest is the replay queue's), and
// looks nothing up (the compensator does). An order that left the lane no longer holds up its key. It knows no driver:
// [Group], [Store], [Attempter] and [Replay] are the seams.
//
// # Goroutines
//
// [Lane.Run] owns all of them: per generation two admitters (one with an ordering), a dispatcher, two settlers, a spiller, a
// renewer, a committer, a watcher, and one per permit in use, which goes from one order to the next. It returns when they have
// ended, but for an attempt that ignores its context: that one is left behind with its permit. New starts none. Level may
// be called from any goroutine at any time.
package consumer
