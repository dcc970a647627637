// Package witness judges the invariants I1, I2, I4, I5 and I7 from the API servers' audit logs alone. It uses nothing
// that a replica says about itself, except what each write has to carry in its User-Agent: shard, epoch and
// incarnation; and, to tell one move's writes from another's, of which clusters its Lease says that it can't serve
// them. Chaos, demo, bench and the integration tests call it. It imports package audit and no code of the subject's,
// except the names of the kinds of moves.
//
// [Read] finds and reads logs; [Judge] is the pure judgement. A cluster has the name of the folder that holds its log.
// Memory grows by a small record for each write, not with the size of the logs.
//
// # Missing evidence fails too
//
// A judgement on nothing proves nothing. So missing evidence is a violation, of the kinds whose invariant is
// [Evidence]: no judged writes, Ats, records or Leases (each by itself); writes of ours, by User-Agent or authenticated
// user, that don't say whose they are; Pods of no At; events without their body; files and lines that are missing or
// truncated. A line is missing if a write replaces a version that no line shows or, with [Facts].Whole, if the first
// line of an object doesn't create it. [Rules].Waived accepts a kind for a stated reason. [Rules].Unwitnessed declares
// a run in which there is nothing to judge; its report can't be published.
//
// [Facts].Restores declares that a cluster's history was replaced by a backup. From then on its objects count as
// others, and only what was granted after the restore must be above all earlier epochs. The first write to a record
// since then is judged by the version that it replaces, if earlier lines show that one. [Facts].Names declares a second
// name of a cluster: its shards share slots, and their epochs are compared, under both.
//
// # What counts
//
// A write is a mutating request that the server answered with 2xx and that was no dry run. A refused one (4xx) changed
// nothing and is counted as fenced at the server. One that ended with a server error or a timeout may have been
// committed: it is counted, never judged. Events (the kind) are ignored.
//
// # What is proof
//
// A log shows when a request arrived and when its answer was written. The commit lies between, so lines aren't in the
// order of commits, and the judge doesn't order two requests that were in flight together:
//
//   - A write of epoch e breaks I1 or I2 only if it arrived after a write of a higher epoch had been answered.
//   - Two writes to one object are also ordered by their resourceVersions, if the log has both answers.
//   - All other pairs are counted as concurrent. The count shows how much the log leaves open; it is no alarm.
//
// Epochs are compared only within a slot, also between shards that share one after splits and merges. Two Pods ran at
// the same time if both certainly existed at one moment: each was created before the first deletion of either arrived.
// A write is also checked against its shard's record: it fails if it came after the answer to a later grant or to its
// holder's release, before its own grant's arrival, from a replica that isn't the record's holder, or under an epoch
// that no version of the record grants. It is checked against the Lease of its incarnation: it fails if it came after
// the answer to the seal. So does a renewal of that Lease. A claim must have arrived after the seal that it rests on.
// If that seal got no answer, the Lease must not be renewed after the claim's. Who is given a shard must have a Lease
// by then, if the log goes back so far. Writes that were in flight while a record changed its holder can't be ordered
// by the record: they are counted, and their number is bounded.
//
// # What it can't see
//
//   - A write that waited on the wire, or in a proxy, looks like one that was sent late: it is reported. Package
//     ownership says what isn't guaranteed there.
//   - A write that was committed by an API server that was killed before it wrote the line.
//   - That a log lost its last half minute, or less. No later line replaces the versions that were written then, so
//     only the API server's silence tells, and a server may be silent for a while. [Facts].Versions tell, too.
//   - That all lines of an object are missing. Bench compares the logs of its own runs with what its watches saw DONE.
//   - At level Metadata: an At's due time and phase, resourceVersions, owners. Due times can be given as [Facts];
//     without them lost and early Ats are reported as unknown, never as zero. A Pod's owner is then taken from its
//     name, which begins with the At's. Ats, Shards, Leases and Deployments need level RequestResponse.
//   - To whose key a write goes whose line doesn't show the object, such as a deletion, or one of a Deployment's status
//     at level Metadata, unless an earlier line shows the object of that name.
//   - Which objects a deletecollection deleted: if in doubt every one in its namespace, so that no alarm rests on it.
//   - Whether a Pod that was deleted gracefully has already gone: the first request to delete it counts as its end.
//     Pods with the same name can't overlap, since the API server prevents that.
//   - Names that a server generates. A Pod of ours with such a name is reported as that.
//   - Whether a Pod that was made again had finished before it was deleted.
//   - Reconciles that wrote nothing.
//   - Whether a seal from before a restore is in the backup, unless its version is too high for that. In doubt it is.
//   - Clock differences: times of different API servers are compared as they are, within [Rules].Skew. Several API
//     servers of one cluster count as one clock.
//
// # Figures
//
// Lateness is from an At's due time (or creation, if later) until it was served, see [Served]. A handoff's gap is from
// the last write of the old tenure to the first of the new one: if no key was due, it only shows the load. What the
// report calls unserved is the part of the gap in which a key waited: an At that was due, or a Deployment that
// somebody changed and whose copies had to follow. The writes of a move are those to the record from the plan on,
// including reports of load, and replicas' writes that no move needs, until the next move. Such writes don't count
// before the record's first move since the log began or home was restored, nor while the record has no holder, and
// reports only count during a move. A plan that was changed before the handoff, or after its assignee had left or had
// said that it can't serve the cluster, is a move of its own, called off. Steady state is every second of a replica's
// life that is more than two seconds away from such a write, and from the creation or deletion of a Lease.
package witness
