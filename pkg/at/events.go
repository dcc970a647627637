package at

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
)

// Field selectors of what is left to do. A Pod that had ended before it was listed is looked for at the API server, if its
// At isn't DONE yet.
const (
	UnfinishedAts  = "status.over!=true"
	UnfinishedPods = "status.phase!=Succeeded,status.phase!=Failed"
)

// AtEvents lets the events of Ats pass that may have to be acted on. It keeps back
// the two that this Reconciler causes itself: its claim, after which a Pod is next,
// and an end after which nothing is.
//
// A deletion passes, so that the timer of an At that waits leaves the queue, but not that of one that was RUNNING: so
// one looks that was brought to its end here, and isn't watched any more.
func (r *Reconciler) AtEvents() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return !r.isOver(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !r.isOver(e.ObjectNew) && !r.isOurClaim(e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(e event.DeleteEvent) bool {
			r.notes.forget(e.Object.GetUID())
			at, ok := e.Object.(*cnatv1alpha1.At)
			return !ok || at.Status.Phase != cnatv1alpha1.AtRunning
		},
	}
}

// isOver says whether nothing will ever be left to do for an At.
func (r *Reconciler) isOver(obj client.Object) bool {
	at, ok := obj.(*cnatv1alpha1.At)
	if !ok || at.Status.Phase != cnatv1alpha1.AtDone || at.Spec.TTLSecondsAfterFinished != nil {
		return false
	}
	r.notes.forget(at.UID)
	return true
}

// isOurClaim says whether an event is that of a claim of this process, which goes
// on by itself: the reconcile that made it makes the Pod, or fails and is repeated.
func (r *Reconciler) isOurClaim(before, after client.Object) bool {
	old, ok := before.(*cnatv1alpha1.At)
	at, alsoOK := after.(*cnatv1alpha1.At)
	return ok && alsoOK &&
		old.Status.Phase != cnatv1alpha1.AtRunning && old.Status.Phase != cnatv1alpha1.AtDone && // else the cluster was restored
		at.Status.Phase == cnatv1alpha1.AtRunning &&
		old.Generation == at.Generation && at.DeletionTimestamp == nil &&
		r.notes.claimed(at)
}

// PodEvents lets the events of Pods pass that may have to be acted on: a Pod that
// has ended, is on its way out, or is gone. What happens on the way there changes
// nothing for its At, and a Pod that was there from the beginning was so for its At,
// which has an event of its own, too: none is reconciled before the caches of both
// are complete.
func PodEvents() predicate.Predicate {
	matters := func(obj client.Object) bool {
		pod, ok := obj.(*corev1.Pod)
		return !ok || pod.DeletionTimestamp != nil ||
			pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList && matters(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return matters(e.ObjectNew) },
	}
}
