// Package console answers the questions of the person on call: what does the fleet do, who holds this object and why
// does nothing happen, and what would move if. `tenure status`, `tenure why` and `tenure plan` are its front, and the
// status page shows the same [Fleet].
//
// Every answer is made in three parts: gather (the only I/O: [Gatherer]), a pure core that judges what was gathered
// ([Assess], [Explain], [Foresee]), and rendering. JSON is the judged view as it is.
//
// # What is judged by what
//
// A replica never judges another one by the timestamps in its Lease, but only by changes it saw on its own clock. A
// command can't watch for a whole lease duration before it answers, so it shows when the Lease says that it was
// renewed, "by its own clock", and calls a replica quiet when that is longer ago than the Lease lasts. Where the clocks
// of two machines disagree that can be wrong, and nothing but what is shown depends on it. The status page does watch
// ([Snapshot].Seen), and so has no such doubt.
//
// # What it needs to read
//
// Leases, Shards and events in the namespace of the records: config/rbac/viewer_role.yaml. Secrets aren't needed. Who
// may read them has the clusters asked from where the command runs, with the replicas' credentials, and nothing of a
// Secret but its name reaches an answer; others get what the replicas say. What couldn't be read is said
// ([Fleet].Unread).
//
// Nothing here writes.
package console
