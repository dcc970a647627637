package at

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/text"
)

// Reasons of conditions and of events.
const (
	ReasonInvalidSchedule = "InvalidSchedule"
	ReasonForeignPod      = "ForeignPod"
	ReasonPodRefused      = "PodRefused"
	ReasonPodGone         = "PodGone"
	ReasonPodTerminating  = "PodTerminating"
	ReasonMissed          = "MissedDeadline"
	ReasonSucceeded       = "PodSucceeded"
	ReasonPodFailed       = "PodFailed"
	ReasonRestored        = "Restored"
)

// warning is something that the At's owner should know. A normal life has none, since an event is an API write too.
type warning struct {
	Reason, Action, Message string
}

// edit is a copy of an At's status that is being changed.
type edit struct {
	at   *cnatv1alpha1.At
	next cnatv1alpha1.AtStatus
	now  time.Time
}

func editStatus(view view) *edit {
	return &edit{at: view.At, next: *view.At.Status.DeepCopy(), now: view.Now}
}

// changed returns the edited status, or nil if it is unchanged and needn't be written.
func (e *edit) changed() *cnatv1alpha1.AtStatus {
	if equality.Semantic.DeepEqual(e.next, e.at.Status) {
		return nil
	}
	return &e.next
}

// condition sets a condition. Its message may quote an API server, a webhook or a kubelet.
//
// Only Blocked is about one generation of the spec. An end stays true whatever is edited after it, and kubectl wait
// ignores a condition whose generation isn't the last one.
func (e *edit) condition(kind, reason, message string) {
	condition := metav1.Condition{
		Type:               kind,
		Status:             metav1.ConditionTrue,
		Reason:             reason,
		Message:            text.Line(message, text.Note),
		LastTransitionTime: metav1.NewTime(e.now),
	}
	if kind == cnatv1alpha1.ConditionBlocked {
		condition.ObservedGeneration = e.at.Generation
	}
	meta.SetStatusCondition(&e.next.Conditions, condition)
}

// blockOf returns the condition that shows what keeps an At from its next step; nil if there is none.
func blockOf(conditions []metav1.Condition) *metav1.Condition {
	return meta.FindStatusCondition(conditions, cnatv1alpha1.ConditionBlocked)
}

// blockWith returns that condition if it has this reason, whichever generation of the At it is about; otherwise nil.
func blockWith(at *cnatv1alpha1.At, reason string) *metav1.Condition {
	if shown := blockOf(at.Status.Conditions); shown != nil && shown.Reason == reason {
		return shown
	}
	return nil
}

// presentBlock is blockWith for conditions that are about the At's present generation.
func presentBlock(at *cnatv1alpha1.At, reason string) *metav1.Condition {
	if shown := blockWith(at, reason); shown != nil && shown.ObservedGeneration == at.Generation {
		return shown
	}
	return nil
}

func (e *edit) unblock() {
	meta.RemoveStatusCondition(&e.next.Conditions, cnatv1alpha1.ConditionBlocked)
	if len(e.next.Conditions) == 0 {
		e.next.Conditions = nil
	}
}

// claim makes the At RUNNING. The write is a compare-and-swap, so only one process succeeds, and only that one may make
// the Pod.
func (e *edit) claim(due time.Time) {
	e.unblock()
	e.next.Phase = cnatv1alpha1.AtRunning
	e.next.PodName = PodName(e.at)
	e.next.ScheduledTime = micro(due)
	e.next.StartTime = micro(e.now)
}

// claimAgain renews the claim of an At whose Pod is missing. "Making a Pod again" in the package comment says why this
// needs a write. A refusal stays shown, since it may happen again; the condition goes when the Pod is there. Unless the
// At has never started, the condition counts from this claim, so that [neverStarted] doesn't believe it.
func (e *edit) claimAgain(neverStarted bool) {
	shown := blockOf(e.next.Conditions)
	switch {
	case shown == nil || shown.Reason != ReasonPodRefused:
		e.unblock()
	case !neverStarted:
		shown.LastTransitionTime = metav1.NewTime(e.now)
	}
	e.next.PodName = PodName(e.at)
	e.next.StartTime = micro(e.now)
	e.next.Restarts++
}

// done ends the At's life.
func (e *edit) done(result cnatv1alpha1.AtResult) {
	e.unblock()
	e.next.Phase, e.next.Result = cnatv1alpha1.AtDone, result
	e.next.FinishTime = micro(e.now)
	// With a time to live, the deletion is left to do.
	e.next.Over = e.at.Spec.TTLSecondsAfterFinished == nil
}

// missed ends an At that never had a Pod.
func (e *edit) missed() decision {
	due, deadline, _ := deadlineOf(e.at)
	message := fmt.Sprintf("not started within %s of %s", deadline.Sub(due), due.Format(time.RFC3339Nano))
	if shown := blockOf(e.at.Status.Conditions); shown != nil && shown.ObservedGeneration == e.at.Generation {
		message += ": " + shown.Message
	}
	e.done(cnatv1alpha1.AtMissed)
	e.next.PodName, e.next.StartTime, e.next.ScheduledTime = "", nil, micro(due)
	e.condition(cnatv1alpha1.ConditionFailed, ReasonMissed, message)
	return decision{Status: e.changed(), Events: []warning{{ReasonMissed, "Miss", message}}}
}

func (e *edit) finish(pod *corev1.Pod, end ending) string {
	e.done(end.result)
	e.next.PodName = pod.Name
	e.next.ExitCode = end.exitCode
	// The node's clock is more exact than ours, since we may have looked late. It is used if it is plausible.
	if start := e.next.StartTime; !end.at.IsZero() && !end.at.After(e.now) &&
		(start == nil || !end.at.Before(start.Time)) {
		e.next.FinishTime = micro(end.at)
	}
	message := fmt.Sprintf("Pod %s %s", pod.Name, end.result)
	if end.exitCode != nil {
		message += fmt.Sprintf(" with exit code %d", *end.exitCode)
	}
	if end.result == cnatv1alpha1.AtSucceeded {
		e.condition(cnatv1alpha1.ConditionComplete, ReasonSucceeded, message)
		return message
	}
	if end.message != "" {
		message += ": " + end.message
	}
	e.condition(cnatv1alpha1.ConditionFailed, ReasonPodFailed, message)
	return message
}

// micro rounds a time as the API does. The API drops what is finer than a microsecond, so an unrounded time would make
// an unchanged status look changed.
func micro(t time.Time) *metav1.MicroTime {
	rounded := metav1.NewMicroTime(t.UTC().Truncate(time.Microsecond))
	return &rounded
}
