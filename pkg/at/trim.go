package at

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/text"
)

// Trim is a transform for the caches of Ats and their Pods. It keeps what decisions and predicates look at, and
// leaves objects of every other kind as they are. It drops what is only needed to make a Pod, above all the command,
// and fields of any size that the At's owner may fill, such as annotations. When the Pod is made they are known all the
// same: the API server answers a claim with the whole At.
//
// An At without a command came from such a cache, since the API server refuses an empty command.
func Trim(object any) (any, error) {
	switch object := object.(type) {
	case *cnatv1alpha1.At:
		trimAt(object)
	case *corev1.Pod:
		trimPod(object)
	}
	return object, nil
}

// isTrimmed reports whether an At lacks the fields that its Pod is made of.
func isTrimmed(at *cnatv1alpha1.At) bool { return at.Spec.Command == "" }

func trimAt(at *cnatv1alpha1.At) {
	at.ObjectMeta = trimmed(&at.ObjectMeta)
	at.Spec = cnatv1alpha1.AtSpec{
		Schedule:                at.Spec.Schedule,
		StartingDeadlineSeconds: at.Spec.StartingDeadlineSeconds,
		Suspend:                 at.Spec.Suspend,
		TTLSecondsAfterFinished: at.Spec.TTLSecondsAfterFinished,
	}
}

// trimPod keeps the Pod's owner and how it ended.
func trimPod(pod *corev1.Pod) {
	owner, status := metav1.GetControllerOf(pod), pod.Status
	pod.ObjectMeta = trimmed(&pod.ObjectMeta)
	if owner != nil {
		pod.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	pod.Spec = corev1.PodSpec{}
	pod.Status = corev1.PodStatus{
		Phase: status.Phase, Reason: text.Line(status.Reason, text.Cell), Message: text.Line(status.Message, text.Note),
	}
	for _, c := range status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			pod.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status,
				Reason: text.Line(c.Reason, text.Cell)}}
		}
	}
	for i := range status.ContainerStatuses {
		if c := &status.ContainerStatuses[i]; c.Name == ContainerName {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: c.Name, State: endOf(c.State)}}
		}
	}
}

// endOf returns the part of a container's state that matters here.
func endOf(state corev1.ContainerState) corev1.ContainerState {
	if state.Terminated == nil {
		return corev1.ContainerState{}
	}
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: state.Terminated.ExitCode, FinishedAt: state.Terminated.FinishedAt,
		Reason: text.Line(state.Terminated.Reason, text.Cell),
	}}
}

// trimmed returns the metadata that identifies an object and its version.
func trimmed(from *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: from.Namespace, Name: from.Name, UID: from.UID,
		ResourceVersion: from.ResourceVersion, Generation: from.Generation,
		CreationTimestamp: from.CreationTimestamp, DeletionTimestamp: from.DeletionTimestamp,
		DeletionGracePeriodSeconds: from.DeletionGracePeriodSeconds,
	}
}
