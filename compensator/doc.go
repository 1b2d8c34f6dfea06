// Package compensator settles what nobody knows the outcome of: it looks orders up by their business number before
// anything is sent again.
//
// A [Scanner] takes PROCESSING orders that are due, in small claims with a lease, and does what their phase asks for:
//
//	UNKNOWN    permit ─▶ lookup ─▶ order.Policy.AfterLookup ─▶ settle ─▶ the replay queue, for a resend
//	REPLAYING  whose patience is over: if the replay queue has forgotten the order, it is put there again
//	IN_FLIGHT  with a lease that ran out: its owner died, so the claim makes it UNKNOWN
//
// # Promises
//
//   - Nothing is claimed that can't be looked up within half the lease, and no call is made within a transaction.
//   - What follows from a finding is order.Policy's to say. The scanner sends nothing.
//   - "Not found" is believed by the moment the lookup was begun, not by when its answer was read.
//   - A lookup that our own gate refused, or that our own end cut short, is not counted. While the lookup's breaker refuses,
//     the scanner slows down to one claim in MaxPause, and starts again with one order.
//   - An order that is put off gets a later due time, so that those due before it come first: nothing starves.
//   - A finding that can't be written is tried again until the lease is over; then the order is due again, and is looked
//     up again. Nothing is forgotten, nothing is sent twice.
//
// # Goroutines
//
// [Scanner.Run] owns all of them: one that claims and settles, one that waits for permits, one per lookup, one that
// keeps the grace period. It returns when they have ended. [New] starts none.
package compensator
