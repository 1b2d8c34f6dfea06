// Package sim runs Spillway's pure parts (the gate, the ledger, the policy, the breaker, the store and the replay queue in memory) against a model
// of everything around them: a log with partitions and a consumer group, workers that crash and sleep, a store
// and a queue that fail before and after each effect, a downstream that applies what it is sent, sometimes late. After
// every step it checks the invariants I1 to I9 of the contract.
//
// One goroutine, one clock that only events move, one random source: a seed tells the whole story, and the same seed
// tells it again. [Run] is the way in.
//
// The one assumption about time: a call that was sent is applied within Policy.Grace of being sent, or never.
package sim
