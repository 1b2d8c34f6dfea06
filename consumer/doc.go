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
//   - At the end of a generation what was admitted is finished within Config.Drain; what can't be is cancelled and
//     settled as such.
//
// # What it does not do
//
// It keeps no order among records, retries nothing by itself (the replay queue does), and looks nothing up (the
// compensator does). It knows no driver: [Group], [Store], [Attempter] and [Replay] are the seams.
//
// # Goroutines
//
// [Lane.Run] owns all of them and returns when they have ended: per generation two admitters, a dispatcher, two settlers,
// a spiller, a renewer, a committer, and one goroutine per attempt, at most as many as there are permits. New starts
// none. Level may be called from any goroutine at any time.
package consumer
