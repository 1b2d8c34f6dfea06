package order

import "context"

// Handler delivers orders to a downstream service. Spillway's HTTP downstream is one; people who embed Spillway
// write their own. Both methods are called concurrently, at most permits at a time, and must return soon after
// ctx ends. A panic is taken as [OutcomeUnknown] (or [VerdictNone]).
type Handler interface {
	// Submit sends the order once and says what happened. It must not send it a second time by itself, and it must
	// say OutcomeUnknown whenever the order may have been applied: a timeout, a cut connection, a 500. The order's
	// Number is the idempotency key; the bytes sent must be the same at every attempt.
	Submit(ctx context.Context, o *Order) Answer

	// Lookup asks by business number what became of an order, without changing anything.
	Lookup(ctx context.Context, o *Order) Finding
}
