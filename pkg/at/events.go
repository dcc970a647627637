package at

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
)

// Field selectors for unfinished objects. If a Pod had ended before it was listed and its At isn't DONE yet, the Pod is
// read from the API server.
const (
	UnfinishedAts  = "status.over!=true"
	UnfinishedPods = "status.phase!=Succeeded,status.phase!=Failed"
)

// FinishedPod reports whether a Pod has ended. A cache need not keep such a Pod for long: like one that had ended
// before it was listed, it is read from the API server if its At isn't DONE yet.
func FinishedPod(obj client.Object) bool {
	pod, ok := obj.(*corev1.Pod)
	return ok && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
}

// AtEvents passes the events of Ats that may need action. It suppresses two that this Reconciler causes itself: its
// claim, after which it makes the Pod or tries again later, and an end after which nothing is left to do.
//
// A deletion passes, so that the timer of a waiting At leaves the queue, and the delay of one whose Pod was refused: an
// At of the same name may be made next. Other deletions of RUNNING Ats don't: in a cache of unfinished Ats, an At that
// this process brought to its end looks deleted.
func (r *Reconciler) AtEvents() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return !r.forgetIfOver(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !r.forgetIfOver(e.ObjectNew) && !r.isOurClaim(e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(e event.DeleteEvent) bool {
			r.notes.forget(e.Object.GetUID())
			at, ok := e.Object.(*cnatv1alpha1.At)
			return !ok || at.Status.Phase != cnatv1alpha1.AtRunning ||
				blockOf(at.Status.Conditions) != nil
		},
	}
}

// forgetIfOver reports whether nothing will ever be left to do for an At. If so, it drops what this process remembers
// of it. A source may ask about the same At again and again.
func (r *Reconciler) forgetIfOver(obj client.Object) bool {
	at, ok := obj.(*cnatv1alpha1.At)
	if !ok || at.Status.Phase != cnatv1alpha1.AtDone || at.Spec.TTLSecondsAfterFinished != nil {
		return false
	}
	r.notes.forget(at.UID)
	return true
}

// isOurClaim reports whether an event is that of a claim by this process, the first or a renewed one. It needs no
// reconcile: the one that made the claim makes the Pod, or fails and is repeated, after a delay that such an event
// would cut short.
func (r *Reconciler) isOurClaim(before, after client.Object) bool {
	old, ok := before.(*cnatv1alpha1.At)
	at, alsoOK := after.(*cnatv1alpha1.At)
	if !ok || !alsoOK || at.Status.Phase != cnatv1alpha1.AtRunning {
		return false
	}
	switch old.Status.Phase {
	case cnatv1alpha1.AtDone: // the cluster was restored
		return false
	case cnatv1alpha1.AtRunning:
		if at.Status.Restarts != old.Status.Restarts+1 {
			return false
		}
	}
	return old.Generation == at.Generation && at.DeletionTimestamp == nil && r.notes.claimed(at)
}

// PodEvents passes the events of Pods that may need action: a Pod that has ended, is being deleted, is gone, or has
// lost its owner. Other changes mean nothing for its At. A Pod of the initial list needs none either, since its At has
// an event of its own, and no At is reconciled before both caches are complete.
func PodEvents() predicate.Predicate {
	matters := func(obj client.Object) bool {
		_, ok := obj.(*corev1.Pod)
		return !ok || obj.GetDeletionTimestamp() != nil || FinishedPod(obj)
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList && matters(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			was, is := metav1.GetControllerOfNoCopy(e.ObjectOld), metav1.GetControllerOfNoCopy(e.ObjectNew)
			lost := was != nil && (is == nil || is.UID != was.UID)
			return lost || matters(e.ObjectNew)
		},
	}
}
