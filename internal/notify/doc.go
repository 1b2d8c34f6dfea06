// Package notify tells people of the moves of breakers: it writes them into a record (a table) and sends them to
// webhooks.
//
// [Notifier.Notify] never waits: each target has a mailbox of at most 256 events and a goroutine of its own, owned by
// [Notifier.Run], so that a target that is slow or away holds up neither calls nor other targets. A full mailbox loses its
// oldest event, and counts it.
//
// Webhooks get at most one message in their minimum interval. What moved meanwhile goes into one message: the latest move
// of each breaker, and the number of those left out. A message that could not be delivered is tried again, with growing
// waits, a bounded number of times. Addresses and secrets stand in no error and no log line.
package notify
