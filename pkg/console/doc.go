// Package console answers the questions of the person on call: what the fleet does, who holds an object and why
// nothing happens to it, and what would move after a change. `tenure status`, `tenure why` and `tenure plan` are
// its front, and the status page shows the same [Fleet].
//
// Every answer is made in three parts: gather (the only I/O: [Gatherer]), a pure core that judges what was gathered
// ([Assess], [Explain], [Foresee]), and rendering. JSON is the judged view as it is.
//
// # What is judged by what
//
// A replica never judges another one by the timestamps in its Lease, but only by changes it saw on its own clock. A
// command can't watch for a whole lease duration before it answers, so it shows when the Lease says that it was
// renewed, "by its own clock". That time tells nothing of a replica if it is longer ago than the Lease lasts, or as far
// in the future: the clocks of two machines may disagree. Then the command watches for a third of a lease duration, in
// which a live replica renews, and calls a replica quiet that doesn't. The status page watches all the time
// ([Snapshot].Seen). What replicas say in events is ordered by the clock of the home cluster. Its age is this machine's
// time minus that one, so it is wrong by as much as the two clocks differ.
//
// # What it needs to read
//
// Leases, Shards and events in the namespace of the records: config/rbac/viewer_role.yaml. Secrets aren't needed.
// If the caller may read them, the clusters are asked from where the command runs, with the replicas' credentials.
// Otherwise the answer relies on what replicas report. Of a Secret, only its name reaches an answer. [Fleet].Unread
// lists what couldn't be read.
//
// Nothing here writes.
package console
