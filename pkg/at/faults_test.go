package at

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// bench is a Reconciler on a fake API server whose writes can be made to fail.
type bench struct {
	cluster.Cluster
	client   client.WithWatch
	recorder *events.FakeRecorder
	clock    *clocktesting.FakeClock
	subject  *Reconciler
	// sent counts writes sent, tried those of a kind, committed those the server did.
	sent, committed int
	tried           map[string]int
	// fault says what becomes of a write; nil: all succeed.
	fault func(kind string, commit func() error) error
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, cnatv1alpha1.AddToScheme} {
		must.Succeed(t, add(scheme))
	}
	b := &bench{recorder: events.NewFakeRecorder(100), clock: clocktesting.NewFakeClock(due),
		tried: map[string]int{}}
	b.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&cnatv1alpha1.At{}, &corev1.Pod{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, options ...client.CreateOption) error {
				return b.write("create", func() error { return c.Create(ctx, obj, options...) })
			},
			SubResourceUpdate: func(ctx context.Context, c client.Client, name string, obj client.Object,
				options ...client.SubResourceUpdateOption) error {
				return b.write("status", func() error { return c.SubResource(name).Update(ctx, obj, options...) })
			},
			Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, options ...client.DeleteOption) error {
				return b.write("delete", func() error { return c.Delete(ctx, obj, options...) })
			},
		}).Build()
	b.restart(t)
	return b
}

func (b *bench) restart(t *testing.T) {
	t.Helper()
	subject, err := NewReconciler(Config{Clusters: b, Clock: b.clock})
	must.Succeed(t, err)
	b.subject = subject
}

func (b *bench) GetCluster(context.Context, multicluster.ClusterName) (cluster.Cluster, error) {
	return b, nil
}
func (b *bench) GetClient() client.Client                       { return b.client }
func (b *bench) GetAPIReader() client.Reader                    { return b.client }
func (b *bench) GetEventRecorder(string) recorder.EventRecorder { return b.recorder }

func (b *bench) write(kind string, commit func() error) error {
	b.sent++
	b.tried[kind]++
	counted := func() error {
		err := commit()
		if err == nil {
			b.committed++
		}
		return err
	}
	if b.fault == nil {
		return counted()
	}
	return b.fault(kind, counted)
}

func (b *bench) reconcile() (ctrl.Result, error) {
	return b.subject.Reconcile(context.Background(), testRequest)
}

// blockedBy is the reason of the At's condition Blocked, "" if it isn't blocked.
func (b *bench) blockedBy(t *testing.T) string {
	t.Helper()
	return reasonOf(b.at(t).Status, cnatv1alpha1.ConditionBlocked)
}

// wantDone checks that the At is DONE, after so many renewed claims, and that nothing blocks it.
func (b *bench) wantDone(t *testing.T, restarts int32) {
	t.Helper()
	if status := b.at(t).Status; status.Phase != cnatv1alpha1.AtDone || status.Restarts != restarts ||
		reasonOf(status, cnatv1alpha1.ConditionBlocked) != "" {
		t.Errorf("in the end %+v, want DONE after %d renewed claims, and unblocked", status, restarts)
	}
}

// refusePods makes the API server answer to each Pod with this error.
func refusePods(err error) func(string, func() error) error {
	return func(kind string, commit func() error) error {
		if kind == "create" {
			return err
		}
		return commit()
	}
}

func (b *bench) at(t *testing.T) *cnatv1alpha1.At {
	t.Helper()
	at := &cnatv1alpha1.At{}
	must.Succeed(t, b.client.Get(context.Background(), testRequest.NamespacedName, at))
	return at
}

// live plays the API server's and the kubelet's part until the At is DONE: events
// and retries bring the key back, the Pod ends once it is left in peace.
func (b *bench) live(t *testing.T) {
	t.Helper()
	for range 30 {
		result, err := b.reconcile()
		if errors.Is(err, errCrash) {
			b.restart(t)
			continue
		}
		if err != nil || !result.IsZero() {
			b.clock.Step(cacheGrace)
		}
		if err != nil {
			continue
		}
		pods := &corev1.PodList{}
		must.Succeed(t, b.client.List(context.Background(), pods))
		for _, pod := range pods.Items {
			if pod.Status.Phase == "" {
				pod.Status.Phase = corev1.PodSucceeded
				must.Succeed(t, b.client.SubResource("status").Patch(context.Background(), &pod, client.Merge))
			}
		}
	}
}

func TestEveryWriteMayFailAndTheEndIsTheSame(t *testing.T) {
	undisturbed := newBench(t, anAt())
	undisturbed.live(t)
	want := undisturbed.at(t)
	if undisturbed.sent != 3 || want.Status.Phase != cnatv1alpha1.AtDone {
		t.Fatalf("undisturbed: %d writes, phase %s, want 3 and DONE", undisturbed.sent, want.Status.Phase)
	}
	if len(undisturbed.recorder.Events) > 0 {
		t.Errorf("a normal life has the event %q", <-undisturbed.recorder.Events)
	}

	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "ats"}, "example-at", errors.New("changed"))
	for name, fault := range map[string]func(commit func() error) error{
		"error before the write": func(func() error) error { return apierrors.NewInternalError(errTimeout) },
		"reply lost":             func(commit func() error) error { _ = commit(); return errTimeout },
		"conflict":               func(func() error) error { return conflict },
		"refused": func(func() error) error {
			return apierrors.NewForbidden(schema.GroupResource{}, "x", errTimeout)
		},
		"killed before": func(func() error) error { return errCrash },
		"killed after":  func(commit func() error) error { _ = commit(); return errCrash },
	} {
		for site := 1; site <= 3; site++ {
			t.Run(fmt.Sprintf("%s at write %d", name, site), func(t *testing.T) {
				b := newBench(t, anAt())
				b.fault = func(_ string, commit func() error) error {
					if b.sent == site {
						return fault(commit)
					}
					return commit()
				}
				b.live(t)
				ignored := cmp.Options{
					// Times and the count of renewed claims tell of the fault.
					cmpopts.IgnoreFields(cnatv1alpha1.AtStatus{}, "StartTime", "FinishTime", "Restarts"),
					cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ResourceVersion"),
					cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime"),
				}
				expect.Equal(t, "the end, as if undisturbed", want, b.at(t), ignored)
				pods := &corev1.PodList{}
				if err := b.client.List(context.Background(), pods); err != nil || len(pods.Items) != 1 {
					t.Errorf("%d Pods, %v, want 1", len(pods.Items), err)
				}
				// One more than three: a claim renewed, or a refusal shown.
				if b.committed > 4 {
					t.Errorf("%d writes were committed", b.committed)
				}
			})
		}
	}
}

func TestAForeignPodIsNeitherAdoptedNorDeleted(t *testing.T) {
	pod := aPod(foreign)
	b := newBench(t, anAt(), pod)
	for range 3 {
		result, err := b.reconcile()
		if err != nil || result.RequeueAfter != shortestBackoff {
			t.Fatalf("Reconcile = %v, %v, want a retry", result, err)
		}
	}
	got := &corev1.Pod{}
	if err := b.client.Get(context.Background(), client.ObjectKeyFromObject(pod), got); err != nil ||
		len(got.OwnerReferences) > 0 {
		t.Errorf("the Pod is now %v, %v", got.OwnerReferences, err)
	}
	if b.sent != 1 || b.blockedBy(t) != ReasonForeignPod {
		t.Errorf("%d writes, conditions %v, want one that shows the block", b.sent, b.at(t).Status.Conditions)
	}
	if len(b.recorder.Events) != 1 {
		t.Errorf("%d events, want 1", len(b.recorder.Events))
	}
	must.Succeed(t, b.client.Delete(context.Background(), got))
	b.live(t)
	b.wantDone(t, 0)
}

func TestARefusedPodIsShownOnceAndRetriedWithoutFurtherStatusWrites(t *testing.T) {
	b := newBench(t, anAt())
	b.fault = func(kind string, commit func() error) error {
		quota := apierrors.NewForbidden(corev1.Resource("pods"), "x", fmt.Errorf("quota: %d", b.sent))
		return refusePods(quota)(kind, commit)
	}
	for range 5 {
		mustFail(t, b)
		b.clock.Step(cacheGrace)
	}
	if statuses := b.tried["status"]; statuses != 2 || b.blockedBy(t) != ReasonPodRefused {
		t.Errorf("%d status writes, want the claim and the block", statuses)
	}
	b.fault = nil
	b.live(t)
	b.wantDone(t, 0)
}

func TestARefusedPodIsMissedAfterItsDeadline(t *testing.T) {
	quota := apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New("exceeded quota"))
	t.Run("after a minute", func(t *testing.T) { isMissed(t, quota, false, func(*bench) {}) })
	t.Run("its cluster is away for long", func(t *testing.T) {
		isMissed(t, quota, false, func(b *bench) {
			b.clock.Step(2 * noteLife)
			b.subject.notes.unsure("another", b.clock.Now())
		})
	})
	t.Run("somebody labels it", func(t *testing.T) { isMissed(t, quota, true, func(*bench) {}) })
	t.Run("a webhook can't be called", func(t *testing.T) { // objects are admitted before they are stored
		isMissed(t, apierrors.NewInternalError(errors.New(`failed calling webhook "x": exceeded quota of calls`)), false,
			func(*bench) {})
	})
}

// Whoever looks at the At sees why it neither ends nor gets on.
func TestAPodThatDoesNotGoIsShownAndMadeAgainOnceItIsGone(t *testing.T) {
	pod := aPod(podDeleted(due.Add(-30 * time.Second)))
	pod.Finalizers = []string{"example.com/hold"}
	b := newBench(t, anAt(running), pod)
	for range 2 {
		result, err := b.reconcile()
		must.Succeed(t, err)
		b.clock.Step(result.RequeueAfter)
	}
	if got := b.blockedBy(t); got != ReasonPodTerminating {
		t.Fatalf("after %v it is blocked by %q", b.clock.Since(due), got)
	}
	if got := <-b.recorder.Events; !strings.Contains(got, pod.Name) || !strings.Contains(got, ReasonPodTerminating) {
		t.Errorf("told %q", got)
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	must.Succeed(t, b.client.Patch(t.Context(), pod, patch))
	b.live(t)
	b.wantDone(t, 1)
}

// isMissed plays an At whose Pod is refused. Somebody may label it before that is shown. Other things happen before its
// key is due again.
func isMissed(t *testing.T, refusal error, labels bool, meanwhile func(*bench)) {
	b := newBench(t, anAt(deadline(60)))
	b.fault = func(kind string, commit func() error) error {
		if kind == "create" {
			if at := b.at(t); labels {
				patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"seen":"yes"}}}`))
				if err := b.client.Patch(t.Context(), at, patch); err != nil {
					t.Error(err)
				}
			}
			return refusal
		}
		return commit()
	}
	mustReconcile(t, b)
	b.clock.Step(time.Minute + 1)
	meanwhile(b)
	mustReconcile(t, b)
	status, refused := b.at(t).Status, b.tried["create"]
	if status.Result != cnatv1alpha1.AtMissed || status.PodName != "" || refused != 1 {
		t.Fatalf("after %d tries %+v, want Missed after one, and no Pod", refused, status)
	}
	failed := status.Conditions[0]
	if failed.Reason != ReasonMissed || !labels && !strings.Contains(failed.Message, "exceeded quota") {
		t.Errorf("%+v doesn't say why", failed)
	}
}

// The key comes back as its queue brings it back.
func TestNoWaitOutlastsTheDeadline(t *testing.T) {
	quota := refusePods(apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New("exceeded quota")))
	for name, c := range map[string]struct {
		objects   []client.Object
		fault     func(string, func() error) error
		meanwhile func(*bench)
	}{
		"a stranger's Pod is in the way": {objects: []client.Object{aPod(foreign)}},
		"its Pod is refused":             {fault: quota},
		"many Pods are refused": {fault: quota, meanwhile: func(b *bench) {
			refusals := b.subject.budgetsOf(string(testRequest.ClusterName)).refusals
			for !refusals.Spent(testRequest.Namespace, b.clock.Now()) {
				refusals.Take(testRequest.Namespace, b.clock.Now())
			}
		}},
		"its namespace is being deleted": {fault: refusePods(terminating())},
	} {
		for _, seconds := range []int64{0, 15, 100, 1500} {
			t.Run(fmt.Sprint(name, ", seconds: ", seconds), func(t *testing.T) {
				b := newBench(t, append(c.objects, anAt(deadline(seconds)))...)
				b.fault, b.recorder = c.fault, &events.FakeRecorder{}
				queue := NewRateLimiter()
				for tries := 0; b.at(t).Status.Phase != cnatv1alpha1.AtDone && tries < 200; tries++ {
					if c.meanwhile != nil {
						c.meanwhile(b)
					}
					result, err := b.reconcile()
					if err != nil || result == retryLater {
						result.RequeueAfter = queue.When(testRequest)
					} else {
						queue.Forget(testRequest)
					}
					b.clock.Step(result.RequeueAfter)
				}
				late := b.clock.Since(due) - time.Duration(seconds)*time.Second
				if got := b.at(t).Status.Result; got != cnatv1alpha1.AtMissed || late != 1 {
					t.Errorf("%q %v after its deadline, want Missed at once", got, late)
				}
			})
		}
	}
}

func TestAServerThatIsBusyIsTriedMoreAndMoreRarelyThoughThereIsADeadline(t *testing.T) {
	b := newBench(t, anAt(deadline(60)))
	b.fault = refusePods(apierrors.NewTooManyRequests("busy", 1))
	mustFail(t, b)
	b.fault = refusePods(apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New("exceeded quota")))
	mustReconcile(t, b)
	for _, passing := range []error{apierrors.NewTooManyRequests("busy", 1), apierrors.NewUnauthorized("expired"),
		errors.New("connection lost")} {
		b.fault = refusePods(passing)
		mustFail(t, b)
	}
}

// terminating is how an API server refuses what is made in a namespace that is being deleted.
func terminating() error {
	err := apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New("namespace default is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

func TestAnAtWaitsQuietlyInANamespaceThatIsBeingDeleted(t *testing.T) {
	b := newBench(t, anAt())
	b.fault = refusePods(terminating())
	for range 5 {
		result, err := b.reconcile()
		if err != nil || result.RequeueAfter != longestBackoff {
			t.Fatalf("Reconcile = %v, %v, want another look after %v", result, err, longestBackoff)
		}
		b.clock.Step(result.RequeueAfter)
	}
	if b.committed != 1 || b.blockedBy(t) != "" || len(b.recorder.Events) > 0 {
		t.Errorf("%d writes, blocked by %q, %d events, want its claim alone", b.committed, b.blockedBy(t),
			len(b.recorder.Events))
	}
	b.fault = nil
	b.live(t)
	b.wantDone(t, 0)
}

func TestARefusalForAnotherCauseIsShownInItsTurn(t *testing.T) {
	b := newBench(t, anAt())
	causes := []string{"exceeded quota: cpu", "violates PodSecurity"}
	b.fault = func(kind string, commit func() error) error {
		if kind == "create" {
			cause := causes[(b.tried[kind]-1)%len(causes)]
			return apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New(cause))
		}
		return commit()
	}
	for try := range 20 {
		mustFail(t, b)
		if got := b.at(t).Status.Conditions[0].Message; try < 2 && !strings.Contains(got, causes[try]) {
			t.Errorf("try %d: %q, want it to quote %q", try, got, causes[try])
		}
		b.clock.Step(cacheGrace)
	}
	if want := 2 + causeBudget.Burst; b.tried["status"] != want || len(b.recorder.Events) != want-1 {
		t.Errorf("%d status writes and %d events for two causes in turn, want %d and %d", b.tried["status"],
			len(b.recorder.Events), want, want-1)
	}
	b.clock.Step(causeBudget.Every)
	causes = []string{"the last cause"}
	if _, err := b.reconcile(); err == nil || !strings.Contains(b.at(t).Status.Conditions[0].Message, causes[0]) {
		t.Errorf("later: %v, shown %q", err, b.at(t).Status.Conditions[0].Message)
	}
}

// A webhook chooses the code of its answer.
func TestADenialByAWebhookIsShownWhateverItsCode(t *testing.T) {
	for code, reason := range map[int32]metav1.StatusReason{
		400: "", 403: metav1.StatusReasonForbidden, 408: metav1.StatusReasonTimeout, 409: metav1.StatusReasonConflict,
		410: metav1.StatusReasonAlreadyExists, 429: metav1.StatusReasonTooManyRequests, 500: "", 503: "",
	} {
		b := newBench(t, anAt())
		b.fault = refusePods(&apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason,
			Message: `admission webhook "x" denied the request: the image isn't signed`}})
		mustFail(t, b)
		if got := b.blockedBy(t); got != ReasonPodRefused {
			t.Errorf("code %d: blocked by %q", code, got)
		}
	}
}

// An API without the subresource status answers as if the At were gone, and a webhook may deny with the code of a
// conflict.
func TestAStatusThatCannotBeWrittenIsAnErrorUnlessTheAtIsGone(t *testing.T) {
	ats := schema.GroupResource{Group: cnatv1alpha1.GroupVersion.Group, Resource: "ats"}
	for _, c := range []struct {
		name   string
		answer error
		gone   bool
		quiet  bool
	}{
		{"it is there", apierrors.NewNotFound(ats, testRequest.Name), false, false},
		{"it is gone", apierrors.NewNotFound(ats, testRequest.Name), true, true},
		{"no such path", apierrors.NewGenericServerResponse(404, "put", ats, testRequest.Name, "404 page not found", 0, true),
			true, false},
		{"written by others", apierrors.NewConflict(ats, testRequest.Name, nil), false, true},
		{"denied", &apierrors.StatusError{ErrStatus: metav1.Status{Code: 409, Reason: metav1.StatusReasonConflict,
			Message: `admission webhook "x" denied the request: no`}}, false, false},
	} {
		b := newBench(t, anAt())
		b.fault = func(kind string, commit func() error) error {
			if kind == "delete" {
				return commit()
			}
			if c.gone {
				must.Succeed(t, b.client.Delete(t.Context(), anAt()))
			}
			return c.answer
		}
		if _, err := b.reconcile(); (err == nil) != c.quiet {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestADeletionThatAWebhookDeniesIsAnErrorWhateverItsCode(t *testing.T) {
	for code, reason := range map[int32]metav1.StatusReason{
		404: metav1.StatusReasonNotFound, 409: metav1.StatusReasonConflict,
	} {
		b := newBench(t, anAt())
		b.fault = func(string, func() error) error {
			return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason,
				Message: `admission webhook "x" denied the request: no`}}
		}
		if _, _, err := (&actor{cluster: b}).delete(t.Context(), b.at(t)); err == nil {
			t.Errorf("code %d is no error", code)
		}
	}
}

func TestAnErrorOfTheServersOwnIsShownOnceItRepeats(t *testing.T) {
	b := newBench(t, anAt())
	b.fault = refusePods(apierrors.NewInternalError(errors.New("etcd has no leader")))
	for try := range 5 {
		mustFail(t, b)
		if got := b.blockedBy(t); (got == ReasonPodRefused) != (try > 0) {
			t.Errorf("try %d: blocked by %q", try, got)
		}
		if all := b.at(t).Status.Conditions; try > 0 && !strings.Contains(all[0].Message, "etcd has no leader") {
			t.Errorf("try %d: %q doesn't quote the server", try, all[0].Message)
		}
		b.clock.Step(cacheGrace)
	}
	if b.committed != 6 {
		t.Errorf("%d writes, want five claims and one that shows it", b.committed)
	}
	b.fault = nil
	b.live(t)
	b.wantDone(t, 5)
}

func TestAnAtThatABackupBringsBackRunsAgainAndItsOwnerIsTold(t *testing.T) {
	b := newBench(t, anAt())
	b.live(t)
	restore := func() {
		at := b.at(t)
		at.Status = cnatv1alpha1.AtStatus{}
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name = at.Namespace, PodName(at)
		must.Succeed(t, errors.Join(b.client.Delete(t.Context(), pod), b.client.Status().Update(t.Context(), at)))
	}
	for _, told := range []int{1, 0} { // a process that didn't start it can't know
		restore()
		b.live(t)
		b.wantDone(t, 0)
		if got := len(b.recorder.Events); got != told {
			t.Errorf("%d events, want %d", got, told)
		}
		for range told {
			if event := <-b.recorder.Events; !strings.Contains(event, ReasonRestored) {
				t.Errorf("told %q", event)
			}
		}
		b.restart(t)
	}
}

func TestTheTimeToLiveDeletesTheAt(t *testing.T) {
	b := newBench(t, anAt(ttl(60)))
	b.live(t)
	b.clock.Step(time.Hour)
	mustReconcile(t, b)
	if err := b.client.Get(t.Context(), testRequest.NamespacedName, &cnatv1alpha1.At{}); !apierrors.IsNotFound(err) {
		t.Errorf("reading the At: %v, want not found", err)
	}
}
