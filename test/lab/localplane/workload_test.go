package localplane

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

func TestPodsEndAsTheirLabelsAndAnnotationsAsk(t *testing.T) {
	for _, test := range []struct {
		name        string
		policy      corev1.RestartPolicy
		labels      map[string]string
		annotations map[string]string
		want        corev1.PodPhase
		wantExit    []int32
		wantReady   corev1.ConditionStatus
		atLeast     time.Duration
	}{
		{name: "a Pod that runs once succeeds", policy: corev1.RestartPolicyNever,
			want: corev1.PodSucceeded, wantExit: []int32{0}, wantReady: corev1.ConditionFalse, atLeast: 400 * time.Millisecond},
		{name: "a Pod that restarts on failure succeeds too", policy: corev1.RestartPolicyOnFailure,
			want: corev1.PodSucceeded, wantExit: []int32{0}, wantReady: corev1.ConditionFalse},
		{name: "a Pod that asks for failure fails with exit code 1", policy: corev1.RestartPolicyNever,
			labels: map[string]string{"tenure.dev/kwok-fail": "true"},
			want:   corev1.PodFailed, wantExit: []int32{1}, wantReady: corev1.ConditionFalse},
		{name: "a Pod runs as long as its annotation says", policy: corev1.RestartPolicyNever,
			annotations: map[string]string{"tenure.dev/kwok-duration": "3s"},
			want:        corev1.PodSucceeded, wantExit: []int32{0}, wantReady: corev1.ConditionFalse,
			atLeast: 2500 * time.Millisecond},
		{name: "a failing Pod does so too", policy: corev1.RestartPolicyNever,
			labels:      map[string]string{"tenure.dev/kwok-fail": "true"},
			annotations: map[string]string{"tenure.dev/kwok-duration": "2s"},
			want:        corev1.PodFailed, wantExit: []int32{1}, wantReady: corev1.ConditionFalse,
			atLeast: 1500 * time.Millisecond},
		{name: "a Pod that always restarts runs and is ready", policy: corev1.RestartPolicyAlways,
			want: corev1.PodRunning, wantReady: corev1.ConditionTrue},
	} {
		t.Run(test.name, func(t *testing.T) {
			plane := shared.Cluster("west")
			ctx, client := testContext(t), clientOf(t, plane)
			pods := client.CoreV1().Pods(namespace(t, plane))
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: test.labels, Annotations: test.annotations},
				Spec: corev1.PodSpec{RestartPolicy: test.policy, Containers: []corev1.Container{
					{Name: "c", Image: "busybox", Command: []string{"true"}},
				}},
			}
			began := time.Now()
			_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
			must.Succeed(t, err)
			eventually(t, "the Pod is "+string(test.want), func() (err error) {
				if pod, err = pods.Get(ctx, "p", metav1.GetOptions{}); err == nil && pod.Status.Phase != test.want {
					err = fmt.Errorf("it is %s", pod.Status.Phase)
				}
				return err
			})
			if took := time.Since(began); took < test.atLeast {
				t.Errorf("the Pod ended after %s, before the %s it was to run", took, test.atLeast)
			}
			var exits []int32
			for _, container := range pod.Status.ContainerStatuses {
				if ended := container.State.Terminated; ended != nil {
					exits = append(exits, ended.ExitCode)
				}
			}
			expect.Equal(t, "exit codes", test.wantExit, exits)
			if got := readiness(pod); got != test.wantReady {
				t.Errorf("condition Ready is %q, want %q", got, test.wantReady)
			}
			if pod.Status.StartTime == nil || pod.Status.PodIP == "" {
				t.Errorf("a Pod that ran has a start time and an address, got %v and %q", pod.Status.StartTime, pod.Status.PodIP)
			}
		})
	}
}

func readiness(pod *corev1.Pod) corev1.ConditionStatus {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status
		}
	}
	return ""
}

func TestAWorkloadClusterHasTheNodesItWasAskedFor(t *testing.T) {
	for name, want := range map[string]int{"home": 0, "west": fakeNodes} {
		nodes, err := clientOf(t, shared.Cluster(name)).CoreV1().Nodes().List(testContext(t), metav1.ListOptions{})
		must.Succeed(t, err)
		if len(nodes.Items) != want {
			t.Errorf("cluster %s has %d nodes, want %d", name, len(nodes.Items), want)
		}
		for _, node := range nodes.Items {
			if !nodeReady(node) {
				t.Errorf("node %s is not ready", node.Name)
			}
		}
	}
}
