// Package witness judges the invariants I1, I2, I4, I5 and I7 from the API servers' audit logs alone. Nothing that a
// replica says about itself is used, except what it has to send with each write: the shard, the epoch and the
// incarnation in the User-Agent.
//
// [Read] finds and reads logs; [Judge] is the pure judgement. A cluster is named by the folder that its log lies in.
// Memory grows by a small record for each write, not with the size of the logs.
//
// # What is missing fails too
//
// A judgement on nothing proves nothing. So missing evidence is a violation, of the kinds whose invariant is
// [Evidence]:
// no judged writes, Ats, records or Leases (each for itself); writes of ours, by User-Agent or authenticated user, that
// don't say whose they are; Pods of no At; events without their body; files and lines that are missing or cut short. A
// missing line is found where a write replaces a version that no line tells of. [Rules].Waived accepts a kind for a
// reason; [Rules].Unwitnessed declares a run of which nothing is to be judged, and can't be published.
//
// A cluster whose history was replaced by a backup is told by [Facts].Restores: its objects are others from then on,
// and
// only what was granted anew must have risen above all epochs before.
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
// is held against its shard's record too: after a later grant's answer, before its own grant's arrival, by someone
// else than the record's holder, or under an epoch that no version of it gave to anybody; and against the Lease of its
// incarnation: after the answer to the seal. A claim must have arrived after the seal that it rests on. Writes that
// were in flight while a record changed its holder can't be ordered by it: they are counted, and bounded.
//
// # What it can't see
//
//   - A write that waited on the wire, or in a proxy, looks like one that was sent late: it is reported. Package
//     ownership says what is not guaranteed there.
//   - A write that was committed by an API server that was killed before it wrote the line.
//   - At level Metadata: an At's due time and phase, resourceVersions, owners. Due times can be given
//     as [Facts]; without them lost and early Ats are reported as unknown, never as zero. A Pod's owner is then taken
//     from its name, which begins with the At's. Ats, Shards, Leases and Deployments need level RequestResponse.
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
// is from the last write of the old tenure to the first of the new one: where no key was due it measures the load. Its
// unserved time is the part of the gap in which a key waited: an At that was due, or a Deployment that somebody
// changed and
// whose copies had to follow. The writes of a move are those to the record from the plan on, reports of load among
// them; a plan that was changed before anything was handed off, or after its assignee had left, is a move of its own,
// called off. Steady state is all
// seconds of a replica's life that are more than two
// seconds away from such a write, and from a Lease that was created or deleted.
package witness
