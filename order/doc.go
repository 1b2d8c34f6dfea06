// Package order holds the nouns every part of Spillway speaks in: the [Message] that came from Kafka, the [Order]
// it became, its [State] and [Phase], the [Outcome] of an attempt and its [Reason], the [Handler] that delivers
// it, and the [Policy] that decides what follows from an outcome.
//
// Everything here is a value or a pure function: no clock, no goroutine, no I/O. Times are passed in.
//
//	PROCESSING ──▶ SUCCEEDED (final)
//	    │  ▲  └──▶ FAILED    (final)
//	    ▼  │
//	   DEAD: a person or the admin command moves it back to PROCESSING, or to DISCARDED (final)
//
// While an order is PROCESSING its [Phase] says who is due to act on it: an attempt is in flight (IN_FLIGHT), it
// waits in the replay queue (REPLAYING), or nobody knows what the last attempt did and the compensator will look
// it up (UNKNOWN).
package order
