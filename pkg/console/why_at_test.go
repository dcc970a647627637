package console

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/at"
	"github.com/tenure-dev/tenure/test/must"
)

// begun asks about an At that began an hour ago, with a Pod whose command runs.
func begun() Question {
	q := question()
	q.At.Spec.Schedule = now.Add(-time.Hour).Format(time.RFC3339)
	q.At.Status.Phase, q.At.Status.PodName = cnatv1alpha1.AtRunning, "p"
	q.At.Status.StartTime = &metav1.MicroTime{Time: now.Add(-time.Hour)}
	q.Pod = podOf(q.At, corev1.PodStatus{Phase: corev1.PodRunning,
		ContainerStatuses: []corev1.ContainerStatus{{Name: at.ContainerName, State: runs()}}})
	return q
}

func podOf(obj *cnatv1alpha1.At, status corev1.PodStatus) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", OwnerReferences: []metav1.OwnerReference{{UID: obj.UID,
		Controller: new(true)}}}, Status: status}
}

func runs() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
}

func waits(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func endedAgo(ago time.Duration) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(now.Add(-ago)),
		ExitCode: 137}}
}

func TestWhySaysWhatKeepsAnAtFromItsEnd(t *testing.T) {
	deletedAgo := func(ago time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(-ago))) }
	missing := func(q *Question) { q.Pod, q.PodMissing = nil, true }
	proxy := func(q *Question, name string) {
		q.Pod.Status.ContainerStatuses = append(q.Pod.Status.ContainerStatuses,
			corev1.ContainerStatus{Name: name, State: runs()})
	}
	deleted := func(q *Question, ago time.Duration) {
		q.At.DeletionTimestamp, q.At.Finalizers = deletedAgo(ago), []string{"example.com/x"}
	}
	const held = "deleted: it stays until its finalizers are taken off: example.com/x"
	for name, c := range map[string]struct {
		change  func(*Question)
		verdict string // "": as explains has it
		broken  []string
	}{
		"its Pod runs": {func(*Question) {}, "r1 has it; its Pod runs", nil},
		"it is being deleted, and its Pod is gone": {func(q *Question) { missing(q); deleted(q, time.Second) },
			"r1 has it; it is being deleted, so it starts nothing", nil},
		"it is held, and its Pod is gone": {func(q *Question) { missing(q); deleted(q, time.Hour) }, "", []string{held}},
		"it is held, and its Pod runs":    {func(q *Question) { deleted(q, time.Hour) }, "", []string{held}},
		"it is held, and done": {func(q *Question) { deleted(q, time.Hour); q.At.Status.Phase = cnatv1alpha1.AtDone }, "",
			[]string{held}},
		"it has no Pod": {missing, "", []string{"pod: the At has begun, and its Pod isn't there"}},
		"it has no Pod yet": {func(q *Question) { missing(q); q.At.Status.StartTime.Time = now.Add(-time.Second) },
			"r1 has it; it has begun; no Pod of it is to be seen", nil},
		"its Pod can't be read": {func(q *Question) { q.Pod = nil }, "r1 has it; it has begun; no Pod of it is to be seen",
			nil},
		"it has no Pod while it is suspended": {func(q *Question) { missing(q); q.At.Spec.Suspend = true },
			"r1 has it; it has begun and is suspended; no Pod of it is to be seen", nil},
		"its command has ended, and a proxy runs on": {
			func(q *Question) { q.Pod.Status.ContainerStatuses[0].State = endedAgo(time.Hour); proxy(q, "proxy") }, "",
			[]string{"pod: its command has ended, and the Pod doesn't end: it has proxy too"}},
		"its command ended just now, and a proxy takes its time to end": {func(q *Question) {
			q.Pod.Status.ContainerStatuses[0].State = endedAgo(stuckAfter - time.Second)
			proxy(q, "proxy")
		}, "r1 has it; its Pod runs", nil},
		"its command has ended, and its Pod, with a proxy, is being deleted": {func(q *Question) {
			q.Pod.Status.ContainerStatuses[0].State = endedAgo(time.Hour)
			q.Pod.DeletionTimestamp = deletedAgo(0)
			proxy(q, "proxy")
		}, "r1 has it; its Pod is being deleted; another is made when it is gone", nil},
		"its command has ended, and a native sidecar runs on": {func(q *Question) { // a kubelet ends that
			q.Pod.Status.ContainerStatuses[0].State = endedAgo(time.Hour)
			q.Pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "sidecar", State: runs()}}
		}, "r1 has it; its Pod runs", nil},
		"a native sidecar crashes beside its command": {func(q *Question) { // which runs, and ends, all the same
			q.Pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "sidecar",
				State: waits("CrashLoopBackOff", "back-off 5m0s")}}
		}, "r1 has it; its Pod runs", nil},
		"an added container's image isn't there": {func(q *Question) {
			q.Pod.Status.Phase = corev1.PodPending
			q.Pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init",
				State: waits("ImagePullBackOff", "not found")}}
		}, "", []string{"pod: container init doesn't start: ImagePullBackOff: not found"}},
		"the Pod is another's, and can't start": {func(q *Question) {
			q.Pod.OwnerReferences[0].UID, q.Pod.Status.Phase = "another", corev1.PodPending
			q.Pod.Status.ContainerStatuses[0].State = waits("ImagePullBackOff", "not found")
			q.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
		}, "r1 has it; it has begun; no Pod of it is to be seen", nil},
		"the Pod is another's, and has ended": {func(q *Question) {
			q.Pod.OwnerReferences[0].UID, q.Pod.Status.Phase = "another", corev1.PodFailed
			q.Pod.Status.ContainerStatuses[0].State = endedAgo(time.Hour)
		}, "r1 has it; it has begun; no Pod of it is to be seen", nil},
		"its Pod never started, and is being deleted": {func(q *Question) {
			q.Pod.Status.Phase, q.Pod.DeletionTimestamp = corev1.PodPending, deletedAgo(0)
			q.Pod.Status.ContainerStatuses[0].State = waits("ImagePullBackOff", "not found")
			q.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
		}, "r1 has it; its Pod is being deleted; another is made when it is gone", nil},
		"its Pod was deleted while it ran": {func(q *Question) {
			q.Pod.DeletionTimestamp, q.Pod.Status.Phase = deletedAgo(time.Minute), corev1.PodFailed
			q.Pod.Status.ContainerStatuses[0].State = endedAgo(30 * time.Second)
		}, "r1 has it; its Pod is being deleted; another is made when it is gone", nil},
		"its Pod was deleted while it ran, and it is suspended": {func(q *Question) {
			q.Pod.DeletionTimestamp, q.At.Spec.Suspend = deletedAgo(0), true
		}, "r1 has it; its Pod is being deleted", nil},
		"its Pod was deleted after it had failed": {func(q *Question) {
			q.Pod.DeletionTimestamp, q.Pod.Status.Phase = deletedAgo(time.Second), corev1.PodFailed
			q.Pod.Status.ContainerStatuses[0].State = endedAgo(time.Minute)
		}, "", []string{"ended: its status doesn't say so"}},
	} {
		t.Run(name, func(t *testing.T) {
			q := begun()
			c.change(&q)
			explains(t, q, c.verdict, c.broken)
		})
	}
}

func TestWhyNamesTheWayOutOfWhateverBlocksAnAt(t *testing.T) {
	seen := map[string]bool{}
	for _, reason := range []string{at.ReasonInvalidSchedule, at.ReasonPodRefused, at.ReasonForeignPod,
		at.ReasonPodTerminating, "FromALaterVersion"} {
		q := begun()
		q.At.Status.Conditions = []metav1.Condition{{Type: cnatv1alpha1.ConditionBlocked, Reason: reason, Message: "m"}}
		for _, l := range Explain(q).Links {
			if l.Name == "blocked" && l.Do != "" {
				seen[l.Do] = true
			}
		}
	}
	if len(seen) != 5 {
		t.Errorf("%d ways out of five reasons: %v", len(seen), seen)
	}
}

func TestAPodIsMissingOnlyIfTheClusterSaysSo(t *testing.T) {
	scheme := runtime.NewScheme()
	must.Succeed(t, errors.Join(corev1.AddToScheme(scheme), cnatv1alpha1.AddToScheme(scheme)))
	for name, c := range map[string]struct {
		fails   error
		missing bool
	}{"not there": {nil, true}, "not readable": {errors.New("forbidden"), false}} {
		q := begun()
		there := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(q.At).Build(),
			interceptor.Funcs{Get: func(ctx context.Context, to client.WithWatch, key client.ObjectKey, o client.Object,
				opts ...client.GetOption) error {
				if _, pod := o.(*corev1.Pod); pod && c.fails != nil {
					return c.fails
				}
				return to.Get(ctx, key, o, opts...)
			}})
		q.Pod = nil
		if err := q.read(t.Context(), there); err != nil || q.PodMissing != c.missing || q.Pod != nil {
			t.Errorf("%s: missing is %v, %v", name, q.PodMissing, err)
		}
	}
}
