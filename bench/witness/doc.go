// Package witness judges the invariants I1, I2, I4, I5 and I7 from the API servers' audit logs alone. Nothing that a
// replica says about itself is used, except what it has to send with each write: the shard, the epoch and the
// incarnation in the User-Agent.
//
// [Read] finds and reads logs; [Judge] is the pure judgement. A cluster is named by the folder that its log lies in.
//
// # What counts
//
// A write is a mutating request that the server answered with 2xx, and no dry run. A refused one (4xx) changed
// nothing and is counted as fenced at the server. What ended with a server error or a timeout may have been
// committed: it is counted, never judged. Events (the kind) are left out.
//
// # What is proof
//
// A log tells when a request arrived and when its answer was written. The commit lies between, so lines are not in
// the order of the commits, and the judge takes no two requests that were in flight together for ordered:
//
//   - A write of epoch e breaks I1 or I2 only if it arrived after a write of a higher epoch had been answered.
//   - Two writes to one object are also ordered by their resourceVersions, where the log holds both answers.
//   - All other pairs are counted as concurrent. The count says how much the log leaves open; it is no alarm.
//
// Epochs are compared within a slot only: between shards that share one, over splits and merges too. Two Pods are
// two at a time if both surely existed at one moment: each created before either's first deletion arrived. A write
// is held against its shard's record too: after a later grant's answer, before its own grant's arrival, or by someone
// else than the record's holder.
//
// # What it can't see
//
//   - A write that waited on the wire, or in a proxy, looks like one that was sent late: it is reported. Package
//     ownership says what is not guaranteed there.
//   - A write that was committed by an API server that was killed before it wrote the line.
//   - At level Metadata: an At's due time and phase, resourceVersions, owners. Due times can be given
//     as [Facts]; without them lost and early Ats are reported as unknown, never as zero. A Pod's owner is then taken
//     from its name, which begins with the At's. Pods after DONE need ats/status at level RequestResponse, handoffs
//     need shards.tenure.dev at it.
//   - Which objects a deletecollection met: in doubt each one of its namespace, so that no alarm rests on it.
//   - Whether a Pod that was deleted gracefully has already gone: the first request to delete it counts as its end.
//     Pods with the same name can't overlap, the API server sees to that.
//   - The names that a server generates. A Pod of ours with one is reported as such.
//   - Whether a Pod that was made again had finished before it was deleted.
//   - Reconciles that wrote nothing.
//   - Times across API servers are compared as they are: [Rules].Skew grants a difference of their clocks.
//   - Several API servers of one cluster count as one clock.
//
// # Figures
//
// Lateness is from an At's due time (or creation, if later) to the answer to the first write for it. A handoff's gap
// is from the last write of the old tenure to the first of the new one: where no key was due it measures the load. The
// writes of a move are those that changed the record's assignee, warm, holder, epoch or phase since the last change of
// holder; reports of load are not among them. Steady state is all seconds of a replica's life that are more than two
// seconds away from such a write, and from a Lease that was created or deleted.
package witness
