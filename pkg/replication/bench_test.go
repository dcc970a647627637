package replication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/clustername"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

var (
	errCrash   = errors.New("the process ends here")
	errTimeout = context.DeadlineExceeded
)

// fakeScheme has only what is needed: the fake client does work for every kind it knows.
var (
	fakeScheme    = newFakeScheme()
	fakeConverter = applyconfigurations.NewTypeConverter(fakeScheme)
)

func newFakeScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	if err := errors.Join(appsv1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		panic(err) // A programming error: registering these types can't fail.
	}
	return scheme
}

// bench is a Reconciler with a fake home cluster and two fake targets, whose writes can be made to fail.
type bench struct {
	*testing.T
	clusters map[multicluster.ClusterName]*fakeCluster
	down     map[multicluster.ClusterName]time.Time // since when
	// hidden is a cluster that isn't listed, though it can be found and used; "" is none.
	hidden multicluster.ClusterName
	// atsOnly is a cluster that keeps no copies, and unlooked one of which that isn't known; "" is none.
	atsOnly, unlooked multicluster.ClusterName

	aliases  map[multicluster.ClusterName]multicluster.ClusterName
	recorder *copyRecorder
	clock    *clocktesting.FakeClock
	subject  *Reconciler
	// sent counts writes sent by the subject, refused those that a target was told to refuse, and written names those that
	// were committed.
	sent    int
	refused int
	written []string
	// fault says what becomes of the n-th write sent, from 1; nil: all succeed.
	fault func(n int, commit func() error) error
	// putOff says whether work on a target is put off; nil: on none.
	putOff func(multicluster.ClusterName) (wait time.Duration, trial bool)
	asked  time.Duration // what each target asks for
	// acting is set while the subject acts; what the test itself writes isn't counted.
	acting bool
	// crashed is set by a fault that ends the process.
	crashed bool
}

type fakeCluster struct {
	cluster.Cluster
	bench  *bench
	name   multicluster.ClusterName
	client client.WithWatch
	// mutate plays an admission webhook.
	mutate func(*appsv1.Deployment)
	// shown is what the cache shows while stale is set; nil: nothing.
	shown *appsv1.Deployment
	stale bool
	// frozen makes it answer nothing.
	frozen atomic.Bool
	// unfilled says that its cache is never filled.
	unfilled bool
	// slow is how long a live read takes.
	slow time.Duration
	// webhook is how long its webhooks take for an apply.
	webhook time.Duration
	// late is the error of an apply whose time is over before; nil: that of the context.
	late error
	// reads counts live reads of Deployments.
	reads int
	// refuses is the answer to every live read and write; nil: it serves them.
	refuses error
	// refusesApply is the answer to applies alone, refusesDelete that to deletions, and refusesCreate that to what the
	// subject creates.
	refusesApply, refusesDelete, refusesCreate error
	// transport is that of the connection; nil: it has none of its own.
	transport http.RoundTripper
	config    rest.Config
	// spaces counts live reads of Namespaces.
	spaces int
}

// GetConfig returns one of its own each time where there is a transport, as the shards' clusters over one connection
// have.
func (c *fakeCluster) GetConfig() *rest.Config {
	if c.transport == nil {
		return &c.config
	}
	return &rest.Config{Transport: c.transport}
}

func (c *fakeCluster) GetClient() client.Client                       { return cached{c.client, c} }
func (c *fakeCluster) GetAPIReader() client.Reader                    { return live{c.client, c} }
func (c *fakeCluster) GetEventRecorder(string) recorder.EventRecorder { return c.bench.recorder }

// live is a reader of what the API server has.
type live struct {
	client.Reader
	cluster *fakeCluster
}

func (l live) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	switch into.(type) {
	case *appsv1.Deployment:
		l.cluster.reads++
	case *corev1.Namespace:
		l.cluster.spaces++
	}
	if l.cluster.frozen.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(l.cluster.slow)
	if l.cluster.refuses != nil {
		return l.cluster.refuses
	}
	return l.Reader.Get(ctx, key, into, opts...)
}

// cached is a client that reads from what the cache shows.
type cached struct {
	client.Client
	cluster *fakeCluster
}

func (c cached) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if c.cluster.unfilled {
		<-ctx.Done()
	}
	if ctx.Err() != nil { // a filled cache may refuse an ended context, too
		return ctx.Err()
	}
	if !c.cluster.stale {
		return c.Client.Get(ctx, key, into, opts...)
	}
	if c.cluster.shown == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "deployments"}, key.Name)
	}
	c.cluster.shown.DeepCopyInto(into.(*appsv1.Deployment))
	return nil
}

// freeze makes the cache show what it shows now, until the bench thaws it.
func (c *fakeCluster) freeze() { c.shown, c.stale = c.bench.get(c.name), true }

func newBench(t *testing.T, source *appsv1.Deployment) *bench {
	t.Helper()
	b := &bench{T: t, recorder: &copyRecorder{FakeRecorder: events.NewFakeRecorder(1000)},
		clock: clocktesting.NewFakeClock(epoch), clusters: map[multicluster.ClusterName]*fakeCluster{},
		down: map[multicluster.ClusterName]time.Time{}}
	for _, name := range []multicluster.ClusterName{"home", "west", "east"} {
		b.clusters[name] = b.newCluster(name)
	}
	b.restart()
	b.namespace("home", map[string]string{podSecurityPrefix + "enforce": "baseline", "team": "shop"})
	b.identify(homeUID)
	source = source.DeepCopy()
	source.ManagedFields = nil
	must.Succeed(t, b.clusters["home"].client.Create(t.Context(), source))
	return b
}

// settled is a bench of aSource with these options, once all is quiet.
func settled(t *testing.T, options ...func(*appsv1.Deployment)) *bench {
	t.Helper()
	b := newBench(t, aSource(options...))
	b.live()
	return b
}

func (b *bench) newCluster(name multicluster.ClusterName) *fakeCluster {
	c := &fakeCluster{bench: b, name: name}
	c.client = fake.NewClientBuilder().WithScheme(fakeScheme).WithReturnManagedFields().WithTypeConverters(
		fakeConverter).WithStatusSubresource(&appsv1.Deployment{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, inner client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if c.refusesCreate != nil && b.acting {
					b.refused++
					return c.refusesCreate
				}
				return b.write(fmt.Sprintf("create %T %s", o, name), func() error { return inner.Create(ctx, o, opts...) })
			},
			Patch: func(ctx context.Context, inner client.WithWatch, o client.Object, p client.Patch,
				opts ...client.PatchOption) error {
				return b.write("patch "+string(name), func() error { return inner.Patch(ctx, o, p, opts...) })
			},
			Apply: func(ctx context.Context, inner client.WithWatch, config runtime.ApplyConfiguration,
				opts ...client.ApplyOption) error {
				if c.frozen.Load() {
					<-ctx.Done()
					return ctx.Err()
				}
				if c.webhook > 0 {
					select {
					case <-time.After(c.webhook):
					case <-ctx.Done():
						return cmp.Or(c.late, ctx.Err())
					}
				}
				if c.refusesApply != nil {
					b.refused++
					return c.refusesApply
				}
				if err := cmp.Or(c.refuses, ctx.Err()); err != nil {
					return err
				}
				return b.write("apply "+string(name), func() error { return c.apply(ctx, inner, config, opts...) })
			},
			SubResourceApply: func(ctx context.Context, inner client.Client, sub string, config runtime.ApplyConfiguration,
				opts ...client.SubResourceApplyOption) error {
				return b.write(sub+" "+string(name), func() error { return inner.SubResource(sub).Apply(ctx, config, opts...) })
			},
			Delete: func(ctx context.Context, inner client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				if c.refusesDelete != nil {
					b.refused++
					return c.refusesDelete
				}
				return b.write("delete "+string(name), func() error { return inner.Delete(ctx, o, opts...) })
			},
		}).Build()
	return c
}

// apply does what the fake client leaves out: a Deployment needs its namespace, and gets a UID and a time.
func (c *fakeCluster) apply(ctx context.Context, inner client.WithWatch, config runtime.ApplyConfiguration,
	opts ...client.ApplyOption) error {
	if err := inner.Get(ctx, client.ObjectKey{Name: key.Namespace}, &corev1.Namespace{}); err != nil {
		return err
	}
	if config.(metav1.Object).GetResourceVersion() == absentVersion {
		if err := inner.Get(ctx, key, &appsv1.Deployment{}); err == nil {
			return apierrors.NewConflict(schema.GroupResource{Resource: "deployments"}, key.Name, errors.New("it exists"))
		}
	}
	if err := inner.Apply(ctx, config, opts...); err != nil {
		return err
	}
	applied := &appsv1.Deployment{}
	if err := inner.Get(ctx, key, applied); err != nil {
		return err
	}
	if c.mutate == nil && applied.UID != "" {
		return nil
	}
	if applied.UID == "" {
		applied.UID, applied.CreationTimestamp = uuid.NewUUID(), metav1.NewTime(c.bench.clock.Now())
	}
	if c.mutate != nil {
		c.mutate(applied)
	}
	if err := inner.Update(ctx, applied, client.FieldOwner("webhook")); err != nil {
		return err
	}
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(applied)
	config.(interface{ SetUnstructuredContent(map[string]any) }).SetUnstructuredContent(u)
	return err
}

func (b *bench) write(what string, commit func() error) error {
	if !b.acting {
		return commit()
	}
	b.sent++
	counted := func() error {
		err := commit()
		if err == nil {
			b.written = append(b.written, what)
		}
		return err
	}
	if b.fault == nil {
		return counted()
	}
	err := b.fault(b.sent, counted)
	b.crashed = b.crashed || errors.Is(err, errCrash)
	return err
}

// restart is a new process, which may be configured otherwise: the memory is gone.
func (b *bench) restart(changes ...func(*Config)) {
	config := Config{Clusters: b, Targets: b, Clock: b.clock, FanOut: 1, CreateNamespaces: true}
	for _, change := range changes {
		change(&config)
	}
	subject, err := NewReconciler(config)
	must.Succeed(b, err)
	b.subject = subject
}

func (b *bench) GetCluster(_ context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	if c := b.clusters[clustername.Real(name)]; c != nil {
		return c, nil
	}
	return nil, multicluster.ErrClusterNotFound
}

func (b *bench) Names() []multicluster.ClusterName {
	return slices.DeleteFunc(sortedKeys(b.clusters), func(name multicluster.ClusterName) bool { return name == b.hidden })
}

func (b *bench) KeepsCopies(name multicluster.ClusterName) (keeps, known bool) {
	return name != b.atsOnly && name != b.unlooked, name != b.unlooked
}

func (b *bench) Aliases() map[multicluster.ClusterName]multicluster.ClusterName { return b.aliases }

func (b *bench) Usable(name multicluster.ClusterName) (bool, time.Time) {
	since, down := b.down[name]
	return !down && b.clusters[name] != nil, since
}

func (b *bench) PutOff(name multicluster.ClusterName, _ string) (wait time.Duration, trial bool) {
	if b.putOff == nil {
		return 0, false
	}
	return b.putOff(name)
}

func (b *bench) RetryAfter(context.Context, multicluster.ClusterName) time.Duration { return b.asked }

func (b *bench) reconcile() (ctrl.Result, error) {
	b.acting = true
	defer func() { b.acting = false }()
	return b.subject.Reconcile(context.Background(), testRequest)
}

func (b *bench) mustReconcile() ctrl.Result {
	b.Helper()
	result, err := b.reconcile()
	must.Succeed(b, err)
	return result
}

// comesBack reconciles. The source must then be reconciled again, after least to most.
func (b *bench) comesBack(least, most time.Duration) {
	b.Helper()
	if after := b.mustReconcile().RequeueAfter; after == 0 || after < least || after > most {
		b.Errorf("it comes back after %v, want %v to %v", after, least, most)
	}
}

// live plays everybody else's part until all is quiet: events and retries bring the key back, Deployments roll out.
func (b *bench) live() {
	b.Helper()
	quiet := 0
	for range 60 {
		before := b.sent
		_, err := b.reconcile()
		if b.crashed {
			b.crashed = false
			b.restart()
		}
		b.clock.Step(3 * time.Second)
		rolled := false
		for name := range b.clusters {
			rolled = name != "home" && b.rollOut(name) || rolled
		}
		if quiet++; rolled || err != nil || b.sent != before {
			quiet = 0
		}
		if quiet == 4 {
			return
		}
	}
	b.Fatalf("never quiet; written %v", b.written)
}

// rollOut plays the Deployment controller. It says whether there was something to do.
func (b *bench) rollOut(name multicluster.ClusterName) bool {
	d := b.get(name)
	if d == nil {
		return false
	}
	if d.Generation == 0 {
		d.Generation = 1
		must.Succeed(b, b.clusters[name].client.Update(context.Background(), d))
	}
	n := *d.Spec.Replicas
	if d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas == n && d.Status.Replicas == n {
		return false
	}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n,
		AvailableReplicas: n}
	must.Succeed(b, b.clusters[name].client.Status().Update(context.Background(), d))
	return true
}

// get reads the Deployment in a cluster, nil if there is none.
func (b *bench) get(name multicluster.ClusterName) *appsv1.Deployment {
	b.Helper()
	d := &appsv1.Deployment{}
	err := b.clusters[name].client.Get(context.Background(), key, d)
	if apierrors.IsNotFound(err) {
		return nil
	}
	must.Succeed(b, err)
	return d
}

// image is that of the Deployment in a cluster.
func (b *bench) image(name multicluster.ClusterName) string {
	b.Helper()
	return b.get(name).Spec.Template.Spec.Containers[0].Image
}

// copies names the clusters that have one.
func (b *bench) copies() string {
	b.Helper()
	var all []string
	for _, name := range sortedKeys(b.clusters) {
		if name != "home" && b.get(name) != nil {
			all = append(all, string(name))
		}
	}
	return strings.Join(all, ",")
}

// recorded names the clusters that may have a copy, as the source says.
func (b *bench) recorded() string {
	b.Helper()
	return b.get("home").Annotations[AnnotationCopies]
}

func (b *bench) wantWritten(want ...string) {
	b.Helper()
	expect.Equal(b, "writes", want, b.written)
}

// wrote counts the writes whose names begin like this.
func (b *bench) wrote(what string) (n int) {
	for _, w := range b.written {
		if strings.HasPrefix(w, what) {
			n++
		}
	}
	return n
}

// namespace makes that of the source or its copies in a cluster, or gives it other labels.
func (b *bench) namespace(cluster multicluster.ClusterName, labels map[string]string) {
	b.Helper()
	c, ns := b.clusters[cluster].client, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: key.Namespace, Labels: labels},
	}
	err := c.Create(context.Background(), ns)
	if apierrors.IsAlreadyExists(err) {
		err = c.Update(context.Background(), ns)
	}
	must.Succeed(b, err)
}

// identify makes home the cluster of that UID.
func (b *bench) identify(uid types.UID) {
	b.Helper()
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}
	must.Succeed(b, client.IgnoreNotFound(b.clusters["home"].client.Delete(context.Background(), system)))
	system.UID = uid
	must.Succeed(b, b.clusters["home"].client.Create(context.Background(), system))
}

// edit changes the Deployment in a cluster, as somebody.
func (b *bench) edit(name multicluster.ClusterName, by string, change func(*appsv1.Deployment)) {
	b.Helper()
	d := b.get(name)
	change(d)
	d.Generation++
	must.Succeed(b, b.clusters[name].client.Update(context.Background(), d, client.FieldOwner(by)))
}

// change edits the source, as its owner, and waits until all is quiet.
func (b *bench) change(edit func(*appsv1.Deployment)) {
	b.Helper()
	b.edit("home", "kubectl", edit)
	b.live()
}

func (b *bench) delete(name multicluster.ClusterName) {
	b.Helper()
	must.Succeed(b, b.clusters[name].client.Delete(context.Background(), b.get(name)))
}

// condition is status and reason of the source's condition.
func (b *bench) condition() string {
	b.Helper()
	if c := Condition(b.get("home")); c != nil {
		return string(c.Status) + " " + c.Reason
	}
	return ""
}

func (b *bench) wantShares(when string, west, east int32) {
	b.Helper()
	if w, e := *b.get("west").Spec.Replicas, *b.get("east").Spec.Replicas; w != west || e != east {
		b.Fatalf("%s: west %d, east %d, want %d and %d", when, w, e, west, east)
	}
}

// wantReason checks the condition, which is true for one reason only.
func (b *bench) wantReason(when, reason string) {
	b.Helper()
	want := "False " + reason
	if reason == ReasonReplicated {
		want = "True " + reason
	}
	if got := b.condition(); got != want {
		b.Errorf("condition %q, want %q %s: %s", got, want, when, b.message())
	}
}

// message is that of the condition.
func (b *bench) message() string {
	b.Helper()
	if c := Condition(b.get("home")); c != nil {
		return c.Message
	}
	return ""
}

// copyRecorder notes which copies events were about. A real recorder takes events that differ in their text alone for
// one that is repeated.
type copyRecorder struct {
	*events.FakeRecorder
	mu     sync.Mutex // guards copies
	copies []types.UID
}

func (r *copyRecorder) Eventf(about, copy runtime.Object, kind, reason, action, note string, args ...any) {
	if of, ok := copy.(*corev1.ObjectReference); ok {
		r.mu.Lock()
		r.copies = append(r.copies, of.UID)
		r.mu.Unlock()
	}
	r.FakeRecorder.Eventf(about, copy, kind, reason, action, note, args...)
}

// events are the reasons told so far, each once.
func (b *bench) events() string {
	text := ""
	for len(b.recorder.Events) > 0 {
		text += <-b.recorder.Events + "\n"
	}
	return text
}

// wantOneEvent checks that a reason was told exactly once.
func (b *bench) wantOneEvent(reason string) {
	b.Helper()
	if text := b.events(); strings.Count(text, reason) != 1 {
		b.Errorf("events %q, want one %s", text, reason)
	}
}
