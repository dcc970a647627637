package at

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
)

const (
	// LabelAt is on every Pod made for an At. Its value is the At's name, or the Pod's name if the At's is too long for
	// a label.
	LabelAt = "cnat.programming-kubernetes.info/at"
	// CopiedPrefix is the prefix of those labels and annotations of an At that are copied to its Pod. They tell KWOK
	// how to simulate the Pod and mean nothing elsewhere.
	CopiedPrefix = "tenure.dev/kwok-"
	// ContainerName is the name of the container that runs the command. Webhooks may add others.
	ContainerName = "command"

	// maxLabel is the length of a DNS label, and of a label's value.
	maxLabel = 63
	// uidDigits is how much of a digest of the UID a Pod's name carries: 40 bits, to distinguish the few Ats that ever
	// have the same name in one namespace.
	uidDigits = 10
)

// PodName returns the name of an At's Pod. It is always the same for one At, so that the API server itself refuses a
// second Pod. An At that was deleted and created again gets another name, so that it doesn't meet the old one's Pod.
//
// The name is a DNS label whatever the At's name is (up to 253 characters, with dots), because it becomes the Pod's
// host name.
func PodName(at *cnatv1alpha1.At) string {
	digest := sha256.Sum256([]byte(at.UID))
	base := strings.ReplaceAll(at.Name, ".", "-")
	base = strings.TrimRight(base[:min(len(base), maxLabel-uidDigits-1)], "-")
	return base + "-" + hex.EncodeToString(digest[:])[:uidDigits]
}

// newPod returns the Pod that runs an At's command. The defaults apply to what the At leaves open.
func newPod(at *cnatv1alpha1.At, defaults PodDefaults) *corev1.Pod {
	name := PodName(at)
	labels := copied(at.Labels)
	labels[LabelAt] = at.Name
	if len(at.Name) > maxLabel {
		labels[LabelAt] = name
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   at.Namespace,
			Name:        name,
			Labels:      labels,
			Annotations: copied(at.Annotations),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: cnatv1alpha1.GroupVersion.String(),
				Kind:       "At",
				Name:       at.Name,
				UID:        at.UID,
				Controller: new(true),
				// Blocking the owner's deletion would need the right to update ats/finalizers and would gain nothing: a
				// Pod may outlive its At for the moment that the garbage collector takes.
				BlockOwnerDeletion: new(false),
			}},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:      corev1.RestartPolicyNever,
			ServiceAccountName: defaults.serviceAccount(&at.Spec),
			// A command gets no token unless the At asks for it.
			AutomountServiceAccountToken: new(at.Spec.AutomountServiceAccountToken),
			ActiveDeadlineSeconds:        defaults.activeDeadline(&at.Spec),
			Containers: []corev1.Container{{
				Name:            ContainerName,
				Image:           at.Spec.Image,
				Command:         []string{"/bin/sh", "-c", unexpanded(at.Spec.Command)},
				Resources:       defaults.resources(&at.Spec),
				SecurityContext: defaults.securityContext(&at.Spec),
			}},
		},
	}
}

// unexpanded returns what a kubelet makes the command of: it reads $(NAME) in a container's command as a variable, and
// $$ as one $.
func unexpanded(command string) string { return strings.ReplaceAll(command, "$", "$$") }

func copied(from map[string]string) map[string]string {
	to := map[string]string{}
	for key, value := range from {
		if strings.HasPrefix(key, CopiedPrefix) {
			to[key] = value
		}
	}
	return to
}

// isOurs reports whether a Pod was made for this very At. The name alone proves nothing.
func isOurs(pod *corev1.Pod, at *cnatv1alpha1.At) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.UID == at.UID
}

// ending is how a Pod's command ended.
type ending struct {
	result   cnatv1alpha1.AtResult
	exitCode *int32
	// at is when it ended; zero if the Pod doesn't say.
	at      time.Time
	message string
}

// endingOf returns how a Pod ended, if it did.
//
// A kubelet marks a Pod that was deleted while it ran as Failed, and so does the Pod garbage collector with one whose
// node is gone, just before it deletes it. That isn't an end of the command but a deletion before its end.
func endingOf(pod *corev1.Pod) (ending, bool) {
	end := ending{}
	for _, container := range pod.Status.ContainerStatuses {
		if terminated := container.State.Terminated; container.Name == ContainerName && terminated != nil {
			end.exitCode = new(terminated.ExitCode)
			end.at = terminated.FinishedAt.Time
			end.message = terminated.Reason
		}
	}
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		end.result = cnatv1alpha1.AtSucceeded
		return end, true
	case corev1.PodFailed:
		if pod.DeletionTimestamp != nil && !endedBefore(end, deletionRequested(pod)) || lostItsNode(pod) && end.at.IsZero() {
			return ending{}, false
		}
		end.result = cnatv1alpha1.AtFailed
		if pod.Status.Message != "" || pod.Status.Reason != "" {
			end.message = strings.TrimSpace(pod.Status.Reason + " " + pod.Status.Message)
		}
		return end, true
	default:
		return ending{}, false
	}
}

// Ended reports whether a Pod's end is that of its At.
func Ended(pod *corev1.Pod) bool {
	_, ended := endingOf(pod)
	return ended
}

// lostItsNode reports whether the Pod garbage collector ended a Pod, which it deletes next.
func lostItsNode(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "DeletionByPodGC"
	})
}

func endedBefore(end ending, limit time.Time) bool {
	return !end.at.IsZero() && end.at.Before(limit)
}

// deletionRequested returns when the Pod's deletion was requested: the API server sets deletionTimestamp to the end of
// the grace period.
func deletionRequested(pod *corev1.Pod) time.Time {
	grace := time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second
	return pod.DeletionTimestamp.Add(-grace)
}
