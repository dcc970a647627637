// Package fairqueue is a workqueue for controllers of many clusters. A slow cluster doesn't delay the other
// clusters, and a namespace with many keys doesn't delay the other namespaces. Any controller of controller-runtime
// or multicluster-runtime can use it through its option NewQueue.
//
// A controller's workers are shared by all its clusters. In a queue with one order for all keys, a cluster that
// answers late comes to hold every worker, and a namespace with ten thousand keys makes all others wait behind
// them. Here each free worker takes the next key by these rules:
//
//  1. Clusters take turns.
//  2. A cluster has at most [Options.PerCluster] workers, and a few more for idle namespaces (rule 5).
//  3. The last quarter of the workers is a reserve: a cluster gets one of them only if it has less than an equal share,
//     which is Workers / active clusters. In the last sixteenth the share shrinks with each worker taken. So some
//     workers are left for a cluster that has none, even if many others keep theirs for long, as long as there are more
//     workers than such clusters. The price is that up to a quarter of the workers is idle while keys wait, if many
//     clusters want less than an equal share and a few want more. A cluster that is alone is exempt.
//  4. Within a cluster, namespaces take turns, first those that have a key of priority 0 or more. One turn in eight is
//     for the others, so that changes that never end don't hold them up for ever.
//  5. A namespace is idle while it has a ready key and no worker. For idle namespaces a cluster gets up to
//     max(1, PerCluster/4) more workers, but never the last one of all. So a namespace whose keys take long, for
//     instance because of a webhook of its own, doesn't delay the others by holding PerCluster workers. If as many
//     namespaces are slow as there are such workers, too, the next one waits. To find an idle namespace costs at most
//     as many steps as the cluster has workers.
//  6. Within a namespace, the key with the highest priority is taken; among equals, the one that has been ready for
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
