// Package replay tries orders again that a downstream could not take at once.
//
// The queue (a [Queue], in Redis) is only a way to get an order to a worker soon; the row in Postgres says what is true.
// So a queue that loses an item loses no order: the scanner finds rows that wait for a replay and asks [Engine.Has].
// And a queue that hands out an item twice sends nothing twice: an order is begun by a guarded update of its row, and
// whoever comes second finds that the row has moved on and drops the item.
//
// One claim's way, in [Engine.Run]:
//
//	claim ─▶ begin (Postgres) ─▶ in line ─▶ attempt ─▶ settle (Postgres) ─▶ finish (Redis)
//
// A worker that dies in between leaves a claim whose lease runs out. The items return to the queue; those whose rows were
// begun meanwhile are dropped there, and the scanner looks their outcome up.
//
// # Promises
//
//   - Nothing is claimed while the breaker is open, and no more than is called soon: what is called in the time that two
//     claims take, so that a permit need not wait for Redis and Postgres. At most eight orders are in line for each call
//     under way.
//   - A recovering breaker lets a share of the permits be in flight, and the replay takes what others leave of it.
//   - After a start or a recovery the replay's own bound is one call in flight; it doubles with each [Config].Step while
//     answers are good.
//   - An entry that cannot be read becomes a dead letter with its bytes, and leaves the queue only after that.
//   - While Redis or Postgres is away it is tried at most once a second (Redis for taking and for adding each), and one
//     line says so at each change.
//
// # What it does not do
//
// It decides nothing about orders: what follows from an answer is order.Policy's. It keeps no order of items: the queue
// is roughly first in, first out, and a delayed item comes when it is due.
//
// # Goroutines
//
// [Engine.Run] owns all of them: one that takes claims, one that starts calls, one per claim under way, one per attempt, one
// that watches depth and health. It returns when they have ended. [New] starts none; Push, Has, Depths and Healthy may be called from
// any goroutine, before, while and after Run runs.
package replay
