// Package sim runs Spillway's pure parts (the gate, the ledger, the policy, the breaker) and the store in memory
// against a model of everything around them: a log with partitions and a consumer group, a replay queue, workers that
// crash and sleep, all of them failing before and after each effect, and a downstream that applies what it is sent,
// sometimes late. After every step it checks the invariants I1 to I9 of the contract.
//
// One goroutine, one clock that only events move, one random source: a seed tells the whole story, and the same seed
// tells it again. [Run] is the way in. The loops of the lane, the replay engine and the scanner are told here a second
// time, as events; where the real ones change what they do, these must follow.
//
// The one assumption about time: a call that was sent is applied within Policy.Grace of being sent, or never.
package sim
