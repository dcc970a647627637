package integration

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
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
	"github.com/tenure-dev/tenure/test/lab/rights"
	"github.com/tenure-dev/tenure/test/must"
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
		created := newAt(t, c, "fails", func(a *cnatv1alpha1.At) {
			a.Labels = map[string]string{at.CopiedPrefix + "fail": "true"}
		})
		status := wantResult(t, c, created, cnatv1alpha1.AtFailed)
		if status.ExitCode == nil || *status.ExitCode != 1 {
			t.Errorf("exit code = %v, want 1", status.ExitCode)
		}
		labtest.Until(t, "an event tells of it", func() bool {
			events := &corev1.EventList{}
			if err := c.List(t.Context(), events, client.InNamespace("default")); err != nil {
				return false
			}
			return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
				return e.InvolvedObject.UID == created.UID && e.Reason == at.ReasonPodFailed
			})
		})
	})
	t.Run("a schedule in lower case runs, and its At can be changed then", func(t *testing.T) {
		created := newAt(t, c, "lower-case", func(a *cnatv1alpha1.At) { a.Spec.Schedule = "2020-12-31t23:59:59z" })
		wantResult(t, c, created, cnatv1alpha1.AtSucceeded)
		label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"a"}}}`))
		must.Succeed(t, c.Patch(t.Context(), created, label))
	})
	t.Run("a Pod deleted before its end is made again", func(t *testing.T) { deletedPod(t, c) })
	t.Run("a guarded namespace takes the Pods", func(t *testing.T) { guardedNamespace(t, c) })
	t.Run("a time to live takes At and Pod away", func(t *testing.T) {
		ttl := int32(0)
		created := newAt(t, c, "short-lived", func(a *cnatv1alpha1.At) { a.Spec.TTLSecondsAfterFinished = &ttl })
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: at.PodName(created)}}
		labtest.Until(t, "the Pod was there", func() bool { // by the log: it may be gone before it is looked for
			return len(labtest.Audited(t, plane, func(e *audit.Event) bool {
				return e.What() == "create pods" && e.Name == pod.Name && e.Wrote()
			})) > 0
		})
		for _, obj := range []client.Object{created, pod} {
			labtest.Until(t, fmt.Sprintf("%T is gone", obj), func() bool {
				return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj))
			})
		}
	})
	t.Run("Ats run in namespaces where the role is bound", func(t *testing.T) { boundNamespaces(t, plane, c) })
}

// guardedNamespace enforces restricted Pod Security, and a quota that refuses Pods without requests and limits.
func guardedNamespace(t *testing.T, c client.Client) {
	const name = "guarded"
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		"pod-security.kubernetes.io/enforce": "restricted",
	}}}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "all"},
		Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{
				corev1.ResourceRequestsCPU: resource.MustParse("1"), corev1.ResourceRequestsMemory: resource.MustParse("1Gi"),
				corev1.ResourceLimitsCPU: resource.MustParse("10"), corev1.ResourceLimitsMemory: resource.MustParse("10Gi"),
			},
		}}
	for _, obj := range []client.Object{ns, quota} {
		must.Succeed(t, c.Create(t.Context(), obj))
	}
	labtest.Until(t, "the quota holds and service accounts are there", func() bool {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(quota), quota)
		return err == nil && len(quota.Status.Hard) > 0 &&
			c.Get(t.Context(), client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{}) == nil
	})
	must.Succeed(t, c.Create(t.Context(), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "chosen"},
	}))
	inside := func(change func(*cnatv1alpha1.AtSpec)) func(*cnatv1alpha1.At) {
		return func(a *cnatv1alpha1.At) { a.Namespace = name; change(&a.Spec) }
	}
	plain := newAt(t, c, "plain", inside(func(*cnatv1alpha1.AtSpec) {}))
	chosen := newAt(t, c, "chosen", inside(func(s *cnatv1alpha1.AtSpec) {
		s.ServiceAccountName, s.AutomountServiceAccountToken, s.ActiveDeadlineSeconds = "chosen", true, new(int64(60))
		s.Resources = &cnatv1alpha1.AtResources{Requests: corev1.ResourceList{
			corev1.ResourceMemory: resource.MustParse("512Mi"),
		}}
		s.SecurityContext = &cnatv1alpha1.AtSecurityContext{RunAsUser: new(int64(1000))}
	}))
	refused := newAt(t, c, "refused", inside(func(s *cnatv1alpha1.AtSpec) {
		s.SecurityContext = &cnatv1alpha1.AtSecurityContext{Privileged: new(true), AllowPrivilegeEscalation: new(true)}
	}))
	wantResult(t, c, plain, cnatv1alpha1.AtSucceeded)
	wantResult(t, c, chosen, cnatv1alpha1.AtSucceeded)
	pod := &corev1.Pod{}
	must.Succeed(t, c.Get(t.Context(), client.ObjectKey{Namespace: name, Name: at.PodName(chosen)}, pod))
	container := pod.Spec.Containers[0]
	if memory := container.Resources.Limits[corev1.ResourceMemory]; pod.Spec.ServiceAccountName != "chosen" ||
		len(container.VolumeMounts) != 1 ||
		*pod.Spec.ActiveDeadlineSeconds != 60 || *container.SecurityContext.RunAsUser != 1000 || memory.String() != "512Mi" {
		t.Errorf("the At's own wishes weren't heard: %+v", pod.Spec)
	}
	labtest.Until(t, "the At that wants too much says why it doesn't run", func() bool {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(refused), refused); err != nil {
			return false
		}
		blocked := meta.FindStatusCondition(refused.Status.Conditions, cnatv1alpha1.ConditionBlocked)
		return blocked != nil && blocked.Reason == at.ReasonPodRefused &&
			strings.Contains(blocked.Message, "violates PodSecurity")
	})
}

// boundNamespaces takes the right to run Ats away from the service account, and gives it back in one namespace.
func boundNamespaces(t *testing.T, plane *localplane.Plane, c client.Client) {
	all := &rbacv1.ClusterRoleBinding{}
	must.Succeed(t, c.Get(t.Context(), client.ObjectKey{Name: "tenure-ats-run"}, all))
	one := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: all.Name}, RoleRef: all.RoleRef, Subjects: all.Subjects,
	}
	for _, err := range []error{
		c.Create(t.Context(), one), c.Delete(t.Context(), all), lab.AddNamespace(t.Context(), c, rights.Unbound),
	} {
		must.Succeed(t, err)
	}
	labtest.Eventually(t, "the API server has heard of it", func() error {
		return labtest.Allowed(t.Context(), c, false, rights.User, "create", "pods", rights.Unbound)
	})
	refused := newAt(t, c, "refused", func(a *cnatv1alpha1.At) { a.Namespace = rights.Unbound })
	labtest.Until(t, "it has been tried where the role isn't bound", func() bool {
		return len(labtest.Audited(t, plane, func(e *audit.Event) bool {
			return e.User == rights.User && e.Namespace == rights.Unbound && e.Mutating() && e.Code == http.StatusForbidden
		})) > 0
	})
	for i := range 5 {
		wantResult(t, c, newAt(t, c, fmt.Sprintf("bound-%d", i), nil), cnatv1alpha1.AtSucceeded)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(refused), refused); err != nil ||
		refused.Status.Phase != cnatv1alpha1.AtPending {
		t.Errorf("where the role isn't bound: %s, %v", refused.Status.Phase, err)
	}
	pods := &corev1.PodList{}
	if err := c.List(t.Context(), pods, client.InNamespace(rights.Unbound)); err != nil || len(pods.Items) > 0 {
		t.Errorf("where the role isn't bound: %d Pods, %v", len(pods.Items), err)
	}
}

// asReplica is the client configuration of the service account that config/ installs.
func asReplica(t *testing.T, plane *localplane.Plane) *rest.Config {
	t.Helper()
	path, err := plane.ServiceAccountKubeconfig(t.Context(), lab.Namespace, lab.Account)
	must.Succeed(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	must.Succeed(t, err)
	config.QPS = -1 // The API server's own fairness is limit enough.
	return config
}

func runAtController(t *testing.T, plane *localplane.Plane) {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	manager, err := mcmanager.New(asReplica(t, plane), nil, mcmanager.Options{Scheme: lab.Scheme(),
		Metrics: metricsserver.Options{BindAddress: "0"}})
	must.Succeed(t, err)
	reconciler, err := at.NewReconciler(at.Config{Clusters: manager, Clock: clock.RealClock{}})
	must.Succeed(t, err)
	skipName := true
	err = mcbuilder.ControllerManagedBy(manager).
		For(&cnatv1alpha1.At{}, mcbuilder.WithPredicates(reconciler.AtEvents())).
		Owns(&corev1.Pod{}, mcbuilder.WithPredicates(at.PodEvents())).
		WithOptions(controller.TypedOptions[mcreconcile.Request]{RateLimiter: at.NewRateLimiter(), MaxConcurrentReconciles: 4,
			SkipNameValidation: &skipName}).
		Complete(reconciler)
	must.Succeed(t, err)
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
	must.Succeed(t, c.Create(t.Context(), created))
	return created
}

func wantResult(t *testing.T, c client.Client, created *cnatv1alpha1.At,
	want cnatv1alpha1.AtResult) cnatv1alpha1.AtStatus {
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
			t.Errorf("%s started at %v for %v, %d restarts", created.Name, status.StartTime,
				status.ScheduledTime, status.Restarts)
		}
	}
	// Long enough for a write that has no place here to be made.
	time.Sleep(2 * time.Second)
	writes := writesIn(t, plane, func(e *audit.Event) bool { return e.User == lab.AccountUser })
	want := map[string]int{"update ats/status": 2 * len(all), "create pods": len(all)}
	if fmt.Sprint(writes) != fmt.Sprint(want) {
		t.Errorf("writes of %d lives: %v, want %v", len(all), writes, want)
	}
}

// writesIn counts the mutating requests of a kind that an API server answered, refused ones included.
func writesIn(t *testing.T, plane *localplane.Plane, is func(*audit.Event) bool) map[string]int {
	t.Helper()
	writes := map[string]int{}
	for _, e := range labtest.Audited(t, plane, func(e *audit.Event) bool {
		return e.Ended() && e.Mutating() && is(e)
	}) {
		writes[e.What()]++
	}
	return writes
}

func deletedPod(t *testing.T, c client.Client) {
	created := newAt(t, c, "deleted-pod", func(a *cnatv1alpha1.At) {
		a.Annotations = map[string]string{at.CopiedPrefix + "duration": "30s"} // it mustn't end before it is deleted
	})
	pod := &corev1.Pod{}
	key := client.ObjectKey{Namespace: "default", Name: at.PodName(created)}
	labtest.Until(t, "the Pod runs", func() bool {
		return c.Get(t.Context(), key, pod) == nil && pod.Status.Phase == corev1.PodRunning
	})
	first := pod.UID
	shorter := client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"1s"}}}`, at.CopiedPrefix+"duration"))
	must.Succeed(t, c.Patch(t.Context(), created.DeepCopy(), shorter))
	must.Succeed(t, c.Delete(t.Context(), pod))
	status := wantResult(t, c, created, cnatv1alpha1.AtSucceeded)
	if err := c.Get(t.Context(), key, pod); err != nil || pod.UID == first || status.Restarts != 1 {
		t.Errorf("Pod %s after %s, %d restarts, %v; want another Pod after one restart", pod.UID, first, status.Restarts, err)
	}
}
