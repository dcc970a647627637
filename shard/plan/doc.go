// Package plan decides which replica should hold which shard. It is pure: the same inputs give the same plan on every
// replica and in every order. So any replica may claim an orphan without asking the coordinator, and `tenure plan` can
// show what would happen. Package ownership and the command line call it. It imports keyspace, protocol and the
// standard library.
//
// # What a plan is
//
// [Plan] returns the assignees to change now. Its inputs are the shards as the records have them, and the live
// replicas. It only proposes: the ownership protocol ensures safety.
//
//  1. Candidates are the replicas that aren't leaving.
//
//  2. A shard stays where it is or where it is already moving, unless that replica is dead or leaving, or the shard is
//     pinned elsewhere.
//
//  3. Each candidate is granted its exact share (by weight), rounded down or up, so equal replicas are within one shard
//     of each other. Which shares are rounded up is chosen so that the fewest shards move.
//
//  4. What a candidate has beyond its grant, orphans, and the shards of leaving replicas go to the candidates that have
//     less than their grant. The number of moves is then the sum of the surpluses, and no plan that reaches the same
//     balance has fewer. Which shards move, and where to, is chosen to spread each cluster's shards.
//
//  5. A replica gets no shard of a cluster that it can't serve (see [UnfitFor]), and the shards of such a cluster that
//     it has go to a replica that can. If no replica can, the holder stays, and an orphan stays one. Shares are then
//     levelled among the replicas that can serve the same clusters, group by group: within one shard if all unfit
//     replicas are unfit for the same clusters. If no replica is unfit, this is rule 3.
//
// So a join moves the joiner's share and nothing else, a death moves the dead replica's shards and nothing else, and a
// plan for a settled fleet is empty.
//
// If an assignee dies or begins to leave before it takes over, the move is called off at once (From equals To):
// otherwise the holder would drain for a successor that won't come. A later plan may move the shard somewhere else.
//
// # Considerations
//
// Consistent hashing (Karger et al. 1997), rendezvous hashing (Thaler and Ravishankar 1998) and jump hash (Lamping and
// Veach 2014) answer "who has this key" without knowing who has it now. Here the records say who has it. With the
// present assignment as an input, exact balance and the fewest moves can be had together, which none of those offers
// (bench/algorithms compares them). The price is that the answer depends on history. So the records are the truth, and
// not this function.
//
// Rounding shares by quota instead of by strict largest remainder (Hamilton's method) costs nothing in balance and
// saves moves: a replica that has the odd shard may keep it, even where another one's remainder has become larger.
//
// The planner has no memory: it can't distinguish a replica that is slow to take over from one that never will. The
// coordinator uses timeouts for that.
//
// 80,000 shards over 1,000 replicas take tens of milliseconds (see the benchmarks).
package plan
