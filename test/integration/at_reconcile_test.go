package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tenure-dev/tenure/bench/audit"
	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/at"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// TestAtReconciler runs the At reconciler, without sharding, as the service account
// of config/workload on a real API server with a real garbage collector.
func TestAtReconciler(t *testing.T) {
	plane := labtest.Workload(t, "west")
	c := labtest.Client(t, plane)
	runAtController(t, plane)

	t.Run("Ats run once, on time, in three writes and with no event", func(t *testing.T) { normalLife(t, plane, c) })
	t.Run("the longest name works", func(t *testing.T) {
		created := newAt(t, c, strings.Repeat("a.b-", 63)+"z", nil)
		wantResult(t, c, created, cnatv1alpha1.AtSucceeded)
	})
	t.Run("a Pod that fails ends its At with the exit code", func(t *testing.T) {
		created := newAt(t, c, "fails", func(a *cnatv1alpha1.At) { a.Labels = map[string]string{at.CopiedPrefix + "fail": "true"} })
		status := wantResult(t, c, created, cnatv1alpha1.AtFailed)
		if status.ExitCode == nil || *status.ExitCode != 1 {
			t.Errorf("exit code = %v, want 1", status.ExitCode)
		}
		labtest.Until(t, "an event tells of it", func() bool {
			events := &corev1.EventList{}
			if err := c.List(t.Context(), events, client.InNamespace("default")); err != nil {
				return false
			}
			for _, event := range events.Items {
				if event.InvolvedObject.UID == created.UID && event.Reason == at.ReasonPodFailed {
					return true
				}
			}
			return false
		})
	})
	t.Run("a Pod deleted before its end is made again", func(t *testing.T) { deletedPod(t, c) })
	t.Run("a time to live takes At and Pod away", func(t *testing.T) {
		ttl := int32(0)
		created := newAt(t, c, "short-lived", func(a *cnatv1alpha1.At) { a.Spec.TTLSecondsAfterFinished = &ttl })
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: at.PodName(created)}}
		labtest.Until(t, "the Pod was there", func() bool { return c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod) == nil })
		for _, obj := range []client.Object{created, pod} {
			labtest.Until(t, fmt.Sprintf("%T is gone", obj), func() bool {
				return client.IgnoreNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)) == nil &&
					c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj) != nil
			})
		}
	})
}

func runAtController(t *testing.T, plane *localplane.Plane) {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	path, err := plane.ServiceAccountKubeconfig(t.Context(), "tenure-system", "tenure")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1 // The API server's own fairness is limit enough.
	manager, err := mcmanager.New(config, nil, mcmanager.Options{Scheme: lab.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	reconciler, err := at.NewReconciler(at.Config{Clusters: manager, Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	skipName := true
	err = mcbuilder.ControllerManagedBy(manager).
		For(&cnatv1alpha1.At{}, mcbuilder.WithPredicates(reconciler.AtEvents())).
		Owns(&corev1.Pod{}, mcbuilder.WithPredicates(at.PodEvents())).
		WithOptions(controller.TypedOptions[mcreconcile.Request]{RateLimiter: at.NewRateLimiter(), MaxConcurrentReconciles: 4, SkipNameValidation: &skipName}).
		Complete(reconciler)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended with %v", err)
		}
	})
}

func newAt(t *testing.T, c client.Client, name string, change func(*cnatv1alpha1.At)) *cnatv1alpha1.At {
	t.Helper()
	created := &cnatv1alpha1.At{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	created.Spec.Schedule, created.Spec.Command = "2019-04-12T10:12:00Z", "echo hello"
	if change != nil {
		change(created)
	}
	if err := c.Create(t.Context(), created); err != nil {
		t.Fatal(err)
	}
	return created
}

func wantResult(t *testing.T, c client.Client, created *cnatv1alpha1.At, want cnatv1alpha1.AtResult) cnatv1alpha1.AtStatus {
	t.Helper()
	now := &cnatv1alpha1.At{}
	labtest.Until(t, created.Name+" is DONE", func() bool {
		return c.Get(t.Context(), client.ObjectKeyFromObject(created), now) == nil && now.Status.Phase == cnatv1alpha1.AtDone
	})
	if now.Status.Result != want {
		t.Errorf("%s: result %q, want %q; %+v", created.Name, now.Status.Result, want, now.Status)
	}
	return now.Status
}

func normalLife(t *testing.T, plane *localplane.Plane, c client.Client) {
	var all []*cnatv1alpha1.At
	start := time.Now()
	for i := range 40 {
		due := start.Add(time.Duration(i%5) * 700 * time.Millisecond)
		all = append(all, newAt(t, c, fmt.Sprintf("normal-%d", i), func(a *cnatv1alpha1.At) {
			a.Spec.Schedule = due.UTC().Format(time.RFC3339Nano)
		}))
	}
	for _, created := range all {
		status := wantResult(t, c, created, cnatv1alpha1.AtSucceeded)
		if status.StartTime.Time.Before(status.ScheduledTime.Time) || status.Restarts != 0 {
			t.Errorf("%s started at %v for %v, %d restarts", created.Name, status.StartTime, status.ScheduledTime, status.Restarts)
		}
	}
	// Long enough for a write that has no place here to be made.
	time.Sleep(2 * time.Second)
	writes := auditedWrites(t, plane, "system:serviceaccount:tenure-system:tenure")
	want := map[string]int{"update ats/status": 2 * len(all), "create pods": len(all)}
	if fmt.Sprint(writes) != fmt.Sprint(want) {
		t.Errorf("writes of %d lives: %v, want %v", len(all), writes, want)
	}
}

// auditedWrites counts the mutating requests of a user, refused ones included.
func auditedWrites(t *testing.T, plane *localplane.Plane, user string) map[string]int {
	t.Helper()
	writes := map[string]int{}
	for event, err := range audit.Events(plane.AuditLog()) {
		if err != nil {
			t.Fatal(err)
		}
		if event.User == user && event.Ended() && event.Mutating() {
			writes[event.What()]++
		}
	}
	return writes
}

func deletedPod(t *testing.T, c client.Client) {
	created := newAt(t, c, "deleted-pod", func(a *cnatv1alpha1.At) {
		a.Annotations = map[string]string{at.CopiedPrefix + "duration": "3s"}
	})
	pod := &corev1.Pod{}
	key := client.ObjectKey{Namespace: "default", Name: at.PodName(created)}
	labtest.Until(t, "the Pod runs", func() bool {
		return c.Get(t.Context(), key, pod) == nil && pod.Status.Phase == corev1.PodRunning
	})
	first := pod.UID
	if err := c.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	status := wantResult(t, c, created, cnatv1alpha1.AtSucceeded)
	if err := c.Get(t.Context(), key, pod); err != nil || pod.UID == first || status.Restarts != 1 {
		t.Errorf("Pod %s after %s, %d restarts, %v; want another Pod after one restart", pod.UID, first, status.Restarts, err)
	}
}
