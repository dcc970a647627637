// Package fairqueue is a workqueue for controllers of many clusters, in which no cluster suffers for a neighbour, and
// no namespace for how much another one has to do. Any controller of controller-runtime or multicluster-runtime can be
// given one by its option NewQueue.
//
// A controller's workers are shared by all its clusters. In a queue with one order for all keys, a cluster that answers
// late comes to hold every worker, and a namespace with ten thousand keys makes all others wait behind them. Here each
// worker that is free takes the next key in three steps:
//
//  1. Clusters take turns. One whose keys are with [Options.PerCluster] workers already is passed over: however slow it
//     is, it holds no more than these. Once only a quarter of the workers or less is free, a cluster gets another one
//     only if it has less than an equal share. In the last sixteenth this bound falls with each worker taken, so that
//     some are left for a cluster that has none, however many others keep theirs for long, as long as there are more
//     workers than such clusters. One cluster alone gets all.
//  2. Within a cluster, namespaces take turns. One whose keys take long, such as by a webhook of its own, can hold all
//     workers of its cluster.
//  3. Within a namespace, the key with the highest priority is taken, and of equal ones the key that has been ready for
//     longest. Keys that are due and keys that changed are equal, so that a flood of changes can't hold up what is due;
//     what controller-runtime adds at low priority, such as the objects that a new watch begins with, comes last.
//
// Turns need no deficits, as packets of unequal length do: what a slow key costs is a worker, and these are counted. A
// limit that adapts to latency isn't needed for the same reason, and would take from a slow cluster what nobody else
// wants; [Options.Workers] should be several times PerCluster, because a worker that waits costs a few KiB only.
//
// Otherwise a queue does what [priorityqueue.PriorityQueue] does: a key is in it once and with one worker at a time, is
// ready at the earliest and at the highest priority of all its additions, and counts in the metrics workqueue_*.
//
// See "Efficient Fair Queuing Using Deficit Round-Robin" by Shreedhar and Varghese (1995) for turns, and KEP-1040 (API
// priority and fairness) for the same idea in API servers.
package fairqueue
