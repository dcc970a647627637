// Package fairqueue is a workqueue for controllers of many clusters. A slow cluster doesn't delay the other
// clusters, and a namespace with many keys doesn't delay the other namespaces. Any controller of controller-runtime
// or multicluster-runtime can use it through its option NewQueue.
//
// A controller's workers are shared by all its clusters. In a queue with one order for all keys, a cluster that
// answers late comes to hold every worker, and a namespace with ten thousand keys makes all others wait behind
// them. Here each free worker takes the next key in three steps:
//
//  1. Clusters take turns. A cluster whose keys have [Options.PerCluster] workers already gets no more, except as step
//     2 says. Once only a quarter of the workers or less is free, a cluster gets another one only if it has less than
//     an equal share; a cluster that is alone is exempt. In the last sixteenth the share shrinks with each worker
//     taken. So some workers are left for a cluster that has none, even if many other clusters keep theirs for long,
//     as long as there are more workers than such clusters. The price is that up to a quarter of the workers is idle
//     while keys wait, if many clusters want less than an equal share and a few want more.
//  2. Within a cluster, namespaces take turns: first those that have a key of priority 0 or more. One turn in eight is
//     for the others, so that changes that never end don't hold them up for ever. A namespace whose keys take long,
//     for instance because of a webhook of its own, can hold PerCluster workers of its cluster. So a cluster may have
//     a quarter of PerCluster more, at least one if there are as many workers, but only for namespaces of which no
//     worker has a key. To find one costs at most as many steps as the cluster has workers. If as many namespaces are
//     slow as there are such workers, too, the next one waits.
//  3. Within a namespace, the key with the highest priority is taken; among equals, the one that has been ready for
//     longest. Keys that are due and keys that changed have equal priority, so a flood of changes can't hold up
//     keys that are due. Keys that are added at low priority come last. controller-runtime's own sources do so with
//     the objects that a new watch begins with; those of multicluster-runtime don't.
//
// Deficit round-robin is for packets of unequal length. Turns here need no deficits: a slow key costs a worker, and
// workers are counted. For the same reason no limit has to adapt to latency. Such a limit would take workers from a
// slow cluster that no other cluster wants. [Options.Workers] should be several times PerCluster, since a waiting
// worker costs only a few KiB. By default PerCluster is three quarters of Workers.
//
// Otherwise a queue does what [priorityqueue.PriorityQueue] does: a key is in it once and with one worker at a
// time, is ready at the earliest and at the highest priority of all its additions, and counts in the metrics
// workqueue_*.
//
// See "Efficient Fair Queuing Using Deficit Round-Robin" by Shreedhar and Varghese (1995) for turns, and KEP-1040
// (API priority and fairness) for the same idea in API servers.
package fairqueue
