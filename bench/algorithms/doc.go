// Package algorithms sets the planner beside the assignment algorithms that other
// controllers use: how even they are, how much they move when a replica joins or
// leaves, and how long they take. It is pure: no cluster, no I/O but the text it
// is asked to write.
//
//	table, err := algorithms.Run(ctx, algorithms.DefaultConfig())
//	err = table.WriteText(os.Stdout)
//
// # What is compared
//
//   - planner: shard/plan, which knows where every shard is now.
//   - ring-100: consistent hashing with 100 tokens for each replica (Karger et al.,
//     "Consistent Hashing and Random Trees", STOC 1997), as kubernetes-controller-sharding uses.
//   - rendezvous-fnv: highest random weight (Thaler and Ravishankar, "Using
//     Name-Based Mappings to Increase Hit Rates", 1998), weighed by FNV-1a-64 of
//     "key|replica", as multicluster-runtime's sharded coordinator does.
//   - rendezvous-mixed: the same with a hash that avalanches. It shows which effects come from
//     the algorithm and which from the hash.
//   - modulo: the hash modulo the number of replicas, as Argo CD's legacy sharding.
//   - jump: Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", 2014.
//   - bounded-1.25: consistent hashing with bounded loads (Mirrokni, Thorup and
//     Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2016), over the same
//     ring, no replica above 1.25 times the mean; Argo CD offers a variant.
//
// All but the planner are written anew from these texts. Their inputs suit them:
// replicas keep their places in the list and a joiner comes last, which modulo and
// jump need. The planner alone is given the present assignment; the others have
// no use for it, and that is what is being compared.
//
// # What is measured
//
// Keys are shards, as the planner's are. Balance is the most loaded replica's number of
// shards over the mean; where there are fewer shards than replicas even the best
// is above 1, so the best that whole shards allow stands beside it. A join adds
// one replica; the least it has to move is the joiner's share, rounded down. A
// leave removes the replica in the middle of the list; the least is what that one
// held. An algorithm that moves fewer than the least on a join leaves the joiner
// short. Times are of one call that decides all shards, on the machine at hand, the
// median of the runs: read them as orders of magnitude.
//
// # Considerations
//
// Balance by number says nothing about shards of unequal cost, and the hash-based
// algorithms can be computed by a client that knows nothing but the list of
// replicas. That is a real advantage where no record of the assignment exists.
package algorithms
