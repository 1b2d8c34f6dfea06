// Package kafka is the worker's only way to Kafka: it implements [consumer.Group] and [consumer.Session].
//
// Membership is kafka-go's ConsumerGroup, one group per topic. Fetching is ours: one loop per broker sends one request
// at a time for the partitions that the [consumer.Feed] granted bytes to, over kafka-go's Transport, which dials,
// authenticates and routes. A paused partition is simply not asked for, so a worker that pauses everything sends no
// fetch and stays a member.
//
// What it promises:
//   - Every record of the log is handed over once per generation, in offset order per partition, or the partition is
//     reported as failing. Data that the log no longer has is reported as a gap. Nothing is skipped in silence.
//   - Batches are checked against their CRC-32C. Control records and, under read_committed, aborted records are left
//     out. Offsets that compaction removed are stepped over.
//   - Heartbeats go on while a revoked generation drains, so that its last commit is accepted.
//   - Partitions stay with the members that hold them as far as even shares allow, when others come and go.
//   - A commit never moves a partition's offset backwards and is refused once the group has moved on.
//
// What it does not do: it does not produce, it does not decide what to pause, and it does not remember offsets beside
// the group's own.
//
// [Group.Run] owns all goroutines and has ended them when it returns.
package kafka
