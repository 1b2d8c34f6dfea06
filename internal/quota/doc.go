// Package quota divides what a fleet of workers shares, permits or a rate, so that the sum of what they hold never exceeds
// the cap. Each worker has an amount under a lease, written in a table that all of them reach (in Redis), and exchanges one
// message about a second with it, in the background: no call ever waits for the table.
//
// # The protocol
//
// A worker states what it may be holding now: the larger of what it was allotted and what is in use. The table takes that
// for its amount, which is a release where it was more, divides the cap by what everybody wants, and raises the worker's
// amount towards its part by no more than is free. To lower it the table only tells the worker, and believes it when the
// worker states that it holds less.
//
// A worker may begin a call until one lease after the moment before it sent its last statement that was answered. The table
// keeps its amount for that long, and for the longest call, and for one step of the table's clock: only then may others have
// it. So it does not matter whether a worker that is not heard of was killed, stopped, or cut off.
//
// The table's clock is its own: it adds up the server's, at most one step between two statements, so that a server's clock
// that is set forward frees nothing early and one that is set back does no harm.
//
// A server that has no table, or one of an earlier run of the server (restarted, or another replica), cannot know what is
// held. For as long as the longest amount could be held it takes statements and raises nobody.
//
// Statements are numbered: one that was overtaken on its way is not taken.
//
// # What it does not do
//
// A call is counted until its deadline and a margin; a handler that goes on after that, in a worker that was cut off or
// killed, is not seen. Between the look at the lease and the first byte sent the process may be stopped: no check on this
// side can see that. And workers with different caps are told the smallest; while one that knows of a smaller cap joins,
// the others still hold what the larger allowed, until they have released it.
package quota
