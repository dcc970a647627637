// Package at brings Ats from PENDING through RUNNING to DONE: it runs one Pod for each, once its time has come.
//
// It is a plain multicluster-runtime reconciler. What sharding needs (the slot label on Pods, the epoch in the status,
// the fence) is added by the client of the cluster it is given. All that it knows of shards is how their names end, so
// that the shards of a cluster share that cluster's budgets of events and tries.
//
//	r, err := at.NewReconciler(at.Config{Clusters: manager, Clock: clock.RealClock{}})
//	...
//	mcbuilder.ControllerManagedBy(manager).
//		For(&cnatv1alpha1.At{}, mcbuilder.WithPredicates(r.AtEvents())).
//		Owns(&corev1.Pod{}, mcbuilder.WithPredicates(at.PodEvents())).
//		WithOptions(controller.TypedOptions[mcreconcile.Request]{RateLimiter: at.NewRateLimiter()}).
//		Complete(r)
//
// The predicates save more than half of the reconciles, and may be left out. No other predicate may filter status
// changes: when its cache lags, the reconciler relies on the event of its own write.
//
// An At that is DONE and has no time to live is over (status.over): nothing is left to do. So caches may leave out such
// Ats ([UnfinishedAts]), and Pods that had ended before they were listed ([UnfinishedPods]) or some time ago
// ([FinishedPod]).
//
// Caches may drop the fields that only serve to make a Pod: [Trim] is a transform for that. They should where many
// people may create Ats, since a command may have 128 KiB, and annotations more. [Pack] makes Ats that wait smaller
// still.
//
// # Parts
//
// The decision (decide.go) is pure: it takes the At, its Pod and the time, and returns what to do. The [Reconciler]
// gathers and acts. Reads come from the cache. Only when the cache can't be relied on are At and Pod read from the API
// server.
//
// # The Pod
//
// A user who may create an At in a namespace can thereby run a Pod there, with an image, a service account and a
// security context of their choice; an At can't be used to give fewer rights than that. [PodDefaults] fill in what
// an At leaves open. Unless configured otherwise they pass the Pod Security level "restricted" and quotas on cpu
// and memory. If a namespace refuses a Pod all the same, the condition Blocked shows it.
//
// # The writes in the life of an At
//
// PENDING is the CRD's default and costs no write. Then, in this order:
//
//	W1  status: PENDING -> RUNNING, with podName, scheduledTime, startTime   the claim
//	W2  create the Pod
//	W3  status: RUNNING -> DONE, with result, exitCode, finishTime
//
// A missed deadline is one write (PENDING -> DONE, or RUNNING -> DONE if the Pod was refused, or its name taken, until
// then) and no Pod. Making a Pod again costs a renewed claim (W1': status, restarts + 1) and W2. Deletion after
// ttlSecondsAfterFinished is one more. A normal life has no events; events are for what the owner should know. A
// reconcile with nothing to do writes nothing.
//
// W1, W1' and W3 carry the resourceVersion of the At that the decision was made on. The deletion carries UID and
// resourceVersion. W2 has the name derived from the At's name and UID, so the API server refuses a second Pod beside
// the first.
//
// # Why there is never a second Pod
//
// Any process below may be paused or killed between any two steps, and any reply may be lost. A cache may show any
// earlier state, and At and Pod as they were at different times.
//
//  1. A claim before a Pod. W2 is only sent after a W1 or W1' of the same process was committed. W1 is a
//     compare-and-swap from PENDING and phases only go forward (the CRD refuses the rest), so W1 is committed once in
//     the life of an At. A cache that still shows PENDING makes W1 conflict, whether the At is RUNNING by now, or DONE,
//     or DONE with its Pod deleted, or gone.
//  2. The process ends between W1 and W2. The next one sees RUNNING and no Pod. It can't know whether W2 was sent, so
//     it looks: it reads the At, then the Pod, from the API server. If there is a Pod, it is the Pod.
//  3. The cache shows RUNNING and no Pod, but the At is DONE and its Pod gone. The look shows DONE, and nothing is
//     made.
//  4. Making a Pod again. The look shows RUNNING and no Pod: it was deleted before its end was recorded, or never made.
//     An earlier holder may have seen its end and have its W3 still on the way. So the claim is renewed first: W1' is a
//     compare-and-swap on the At just read. Either W3 comes first, and W1' conflicts and the next look shows DONE; or
//     W1' comes first, and W3 conflicts. Two processes that both want to make it again both need W1', and one gets it.
//     As the At is read before the Pod, a W1' that succeeds proves that it was still RUNNING when the Pod was seen to
//     be missing. After a W1' a cache may still show the end of the Pod from before, so then W3 needs a look, too.
//  5. The reply of W1 or W1' is lost. The process remembers what it sent; if a look shows exactly that claim (start
//     time and count), it is its own, no Pod was asked for under it, and W2 may follow without W1'. What W1' would have
//     proved by its success, one more read does: that the At hadn't changed when the Pod was seen to be missing. A
//     process that remembers nothing renews the claim. So a lost reply costs a read and a crash costs a write.
//  6. The reply of W2 is lost. The process remembers nothing about the claim any more and goes on as in 2. If W2 was
//     committed, the look finds the Pod.
//  7. W2 meets a Pod of that name: a look shows whose it is. Ours: as in 2. Anybody else's: it is neither adopted nor
//     deleted; condition, event, backoff. Under the first claim, nobody else can have asked for a Pod, so once the name
//     is free W2 follows without W1'.
//  8. The Pod is on its way out. A name is free again only once the Pod is gone, so two are never there at a time. A
//     Failed that a kubelet reports for a Pod that was deleted while it ran isn't an end of the command; exit code 0
//     is. If a Pod stays for minutes after its grace period, the condition Blocked shows that.
//  9. W3 is written twice, or late. It is a compare-and-swap from RUNNING; the second conflicts. After DONE no W1'
//     succeeds, hence no W2 is sent.
//  10. The At is deleted at any point. W1, W1' and W3 conflict or find nothing. A W2 that comes after makes a Pod whose
//     owner is gone, and the garbage collector deletes it. An At created anew has another UID, hence another Pod name.
//     While a finalizer of others holds the At, only its status is written.
//
// No Pod is made early: W1 is only decided on when this process's clock has reached the schedule, and W2 comes after
// W1.
//
// # What is not guaranteed
//
//   - A W2 may be in flight when its sender stops, and reach the API server only after another process has made the
//     Pod, the Pod has ended AND has been deleted. It then runs the command a second time, since a create has no
//     precondition on another object. While the Pod exists, the same W2 is refused.
//   - A Pod that ended and was deleted before anyone saw its end looks like one deleted before it ended, and is made
//     again.
//   - startingDeadlineSeconds is judged at the claim, and before each try after a Pod that was refused, or whose name
//     was taken. The next holder knows of a refusal by the condition Blocked. So if a later try of the previous holder
//     did make a Pod, and that is gone before the condition is taken back, or comes only after the deadline was judged,
//     the At is Missed although its command ran. A Pod made again may start after the deadline. So may the Pod of an At
//     whose holder ended between the claim and the refusal, or while a stranger's Pod had the name.
//   - A workload cluster that is restored from a backup has lost what came after the backup. An At whose claim or end
//     isn't in the backup runs again, since nothing shows that it had run. An At that was made later is gone.
//     An At that is RUNNING in the backup may be brought to the end that a cache still shows, which it really had. If
//     the same process starts an At for the second time, an event ([ReasonRestored]) says so.
//   - Whether a command ended before its Pod was deleted or evicted is told by two clocks, in whole seconds: its node's
//     and the API server's. If the node's is behind, a command that was stopped by the deletion may count as one that
//     failed before, and isn't run again. If it is ahead, one that had failed may be run again.
//   - The schedule is compared with the wall clock of the replica. A timer that is running isn't woken by a step of
//     that clock: a step forward makes the start late by up to the step. A step back never makes it early.
//
// # Queue
//
// A conflict is no error: the key is queued again after a delay, or at once by the event of the change that caused it.
// Errors back off as [NewRateLimiter] says. An At whose Pod is refused, or whose Pod's name is taken, is looked at
// again at its deadline, even if its backoff is longer. An invalid schedule isn't tried again until the At changes.
//
// # Floods
//
// Thousands of Ats that can't be served cost two writes each, the claim and the condition that says why, and little
// else. If a Pod is then refused for another cause, one more write shows that, a few times in a row and every five
// minutes. Of the events of one reason in a namespace only a few are sent, and the next one says how many were left
// out. Pods that are refused are tried again a bounded number of times a second in each namespace.
//
// In a namespace that is being deleted, an At that is due waits, and no error, condition or event says so. A replica
// that takes such an At over can't tell, and reports once that its Pod is gone.
package at
