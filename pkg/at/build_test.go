package at

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
)

// due is when the Ats of the tests are due.
var due = time.Date(2026, 4, 12, 10, 12, 0, 0, time.UTC)

const (
	testUID  = types.UID("1e0b3c2a-0000-4000-8000-000000000001")
	otherUID = types.UID("1e0b3c2a-0000-4000-8000-000000000002")
)

// anAt is a PENDING At, changed by the options.
func anAt(options ...func(*cnatv1alpha1.At)) *cnatv1alpha1.At {
	at := &cnatv1alpha1.At{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "example-at", UID: testUID, Generation: 1},
		Spec: cnatv1alpha1.AtSpec{Schedule: due.Format(time.RFC3339Nano),
			Command: "echo hello world!", Image: "busybox"},
		Status: cnatv1alpha1.AtStatus{Phase: cnatv1alpha1.AtPending},
	}
	for _, option := range options {
		option(at)
	}
	return at
}

func running(at *cnatv1alpha1.At) {
	at.Status.Phase = cnatv1alpha1.AtRunning
	at.Status.PodName = PodName(at)
	at.Status.ScheduledTime = micro(due)
	at.Status.StartTime = micro(due)
}

// unclaimed is an At whose phase somebody wrote.
func unclaimed(at *cnatv1alpha1.At) { at.Status.StartTime = nil }

func restarted(at *cnatv1alpha1.At) {
	running(at)
	at.Status.Restarts = 1
}

// startedAt is an At that was claimed at a time.
func startedAt(start time.Time) func(*cnatv1alpha1.At) {
	return func(at *cnatv1alpha1.At) { at.Status.StartTime = micro(start) }
}

func done(at *cnatv1alpha1.At) {
	running(at)
	at.Status.Phase = cnatv1alpha1.AtDone
	at.Status.Result = cnatv1alpha1.AtSucceeded
	at.Status.FinishTime = micro(due.Add(time.Second))
}

func suspended(at *cnatv1alpha1.At) { at.Spec.Suspend = true }

func deleting(at *cnatv1alpha1.At) { at.DeletionTimestamp = new(metav1.NewTime(due)) }

func schedule(text string) func(*cnatv1alpha1.At) {
	return func(at *cnatv1alpha1.At) { at.Spec.Schedule = text }
}

func deadline(seconds int64) func(*cnatv1alpha1.At) {
	return func(at *cnatv1alpha1.At) { at.Spec.StartingDeadlineSeconds = &seconds }
}

func ttl(seconds int32) func(*cnatv1alpha1.At) {
	return func(at *cnatv1alpha1.At) { at.Spec.TTLSecondsAfterFinished = &seconds }
}

func blockedBy(reason string) func(*cnatv1alpha1.At) {
	return func(at *cnatv1alpha1.At) {
		at.Status.Conditions = []metav1.Condition{{
			Type: cnatv1alpha1.ConditionBlocked, Status: metav1.ConditionTrue, Reason: reason,
			ObservedGeneration: at.Generation, LastTransitionTime: metav1.NewTime(due),
		}}
	}
}

// aPod is the running Pod of anAt, changed by the options.
func aPod(options ...func(*corev1.Pod)) *corev1.Pod {
	pod := newPod(anAt(), RestrictedPods())
	pod.CreationTimestamp = metav1.NewTime(due)
	pod.Status.Phase = corev1.PodRunning
	for _, option := range options {
		option(pod)
	}
	return pod
}

func foreign(pod *corev1.Pod) { pod.OwnerReferences = nil }

func ofAnotherAt(pod *corev1.Pod) { pod.OwnerReferences[0].UID = otherUID }

func ended(phase corev1.PodPhase, code int32, at time.Time) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Phase = phase
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: ContainerName,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: code, FinishedAt: metav1.NewTime(at), Reason: "Error",
			}},
		}}
	}
}

// podDeleted marks a Pod as deleted at a time, with 30 s of grace.
func podDeleted(at time.Time) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.DeletionGracePeriodSeconds = new(int64(30))
		pod.DeletionTimestamp = new(metav1.NewTime(at.Add(30 * time.Second)))
	}
}

// disrupted has a Pod fail for a reason that isn't its command's.
func disrupted(reason string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodFailed
		pod.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: reason},
			{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason},
		}
	}
}

// reasonOf is that of a condition that is true, "" if it isn't.
func reasonOf(status cnatv1alpha1.AtStatus, kind string) string {
	if !meta.IsStatusConditionTrue(status.Conditions, kind) {
		return ""
	}
	return meta.FindStatusCondition(status.Conditions, kind).Reason
}
