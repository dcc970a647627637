package integration

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	"sigs.k8s.io/multicluster-runtime/providers/clusters"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/must"
)

// rig is a home cluster, two workload clusters, and the replication reconciler over them, without sharding, as the
// service account that config/ installs.
type rig struct {
	planes  *localplane.Planes
	client  map[string]client.Client // as admin
	configs map[string]*rest.Config  // of the reconciler, as are mappers
	mappers map[string]meta.RESTMapper
	probe   string // a namespace with sources that are replicated

	mu   sync.Mutex           // guards down
	down map[string]time.Time // clusters that count as not usable, since when
	// changed tells the reconciler that down has changed.
	changed chan struct{}
}

// targetTimeout is so long that a busy machine isn't mistaken for a dead target.
const targetTimeout = 15 * time.Second

func startRig(t *testing.T) *rig {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	planes := labtest.Planes(t, localplane.ClusterConfig{Name: "home"},
		localplane.ClusterConfig{Name: "west", Workload: true},
		localplane.ClusterConfig{Name: "east", Workload: true})
	r := &rig{planes: planes, client: map[string]client.Client{}, configs: map[string]*rest.Config{},
		mappers: map[string]meta.RESTMapper{},
		down:    map[string]time.Time{}, changed: make(chan struct{}, 1)}
	for _, plane := range planes.Clusters() {
		r.client[plane.Name()] = labtest.Client(t, plane)
		for _, args := range [][]string{{"-k", "target"}, {"-k", "source"}, {"-f", "create_namespaces.yaml"}} {
			labtest.Kubectl(t, plane, "apply", "--validate=strict", args[0], "../../config/replication/"+args[1])
		}
		r.connect(t, plane)
	}
	return r
}

// run starts a process whose sources are in the named cluster.
func (r *rig) run(t *testing.T, source string, grace time.Duration) (stop func()) {
	t.Helper()
	p, err := r.start(process{source: source, grace: grace, changed: r.changed})
	must.Succeed(t, err)
	stop = sync.OnceFunc(func() {
		if err := p(); err != nil {
			t.Errorf("the manager ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// process is a manager with the reconciler, whose memory and caches go with it.
type process struct {
	source  string // the cluster of the sources
	grace   time.Duration
	changed <-chan struct{}
	// namespace is the only namespace that it looks at; "" means all.
	namespace string
	// creates has it make namespaces that are missing.
	creates bool
	// through wraps the transport of its requests to a cluster; nil leaves it as it is.
	through func(cluster string, base http.RoundTripper) http.RoundTripper
}

func (r *rig) start(p process) (stop func() error, err error) {
	provider := clusters.New()
	manager, err := mcmanager.New(rest.CopyConfig(r.configs[p.source]), provider,
		mcmanager.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return nil, err
	}
	config := replication.Config{Clusters: manager, Targets: r, Clock: clock.RealClock{}, Grace: p.grace,
		TargetTimeout: targetTimeout, CreateNamespaces: p.creates}
	options := mccontroller.Options{MaxConcurrentReconciles: 8, SkipNameValidation: new(true),
		RateLimiter: replication.NewRateLimiter()}
	reconciler, err := replication.NewReconciler(config)
	if err != nil {
		return nil, err
	}
	if err := replication.SetupUnsharded(manager, reconciler, multicluster.ClusterName(p.source), p.changed,
		options); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	for name, mapper := range r.mappers {
		config := rest.CopyConfig(r.configs[name])
		if p.through != nil {
			config.Wrap(func(base http.RoundTripper) http.RoundTripper { return p.through(name, base) })
		}
		cl, err := cluster.New(config, func(o *cluster.Options) {
			o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil }
			if p.namespace != "" {
				o.Cache.DefaultNamespaces = map[string]cache.Config{p.namespace: {}}
			}
		})
		if err == nil {
			err = provider.Add(ctx, multicluster.ClusterName(name), cl)
		}
		if err != nil {
			cancel()
			return nil, err
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	return func() error { cancel(); return <-ended }, nil
}

// connect prepares the connections of the service account, whose rights are those that config/ grants.
func (r *rig) connect(t *testing.T, plane *localplane.Plane) {
	t.Helper()
	config := asReplica(t, plane)
	r.configs[plane.Name()] = config
	httpClient, err := rest.HTTPClientFor(config)
	must.Succeed(t, err)
	r.mappers[plane.Name()], err = apiutil.NewDynamicRESTMapper(config, httpClient)
	must.Succeed(t, err)
}

func (r *rig) Names() []multicluster.ClusterName {
	return []multicluster.ClusterName{"east", "home", "west"}
}

func (r *rig) KeepsCopies(multicluster.ClusterName) (keeps, known bool) { return true, true }

func (r *rig) Usable(name multicluster.ClusterName) (bool, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, down := r.down[string(name)]
	return !down, since
}

func (r *rig) Aliases() map[multicluster.ClusterName]multicluster.ClusterName { return nil }

func (r *rig) PutOff(multicluster.ClusterName, string) (time.Duration, bool) { return 0, false }

func (r *rig) RetryAfter(context.Context, multicluster.ClusterName) time.Duration { return 0 }

// setDown plays the health check's part.
func (r *rig) setDown(name string, down bool) {
	r.mu.Lock()
	delete(r.down, name)
	if down {
		r.down[name] = time.Now()
	}
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// deployment asks to be replicated, changed by the options.
func deployment(namespace, name string, options ...func(*appsv1.Deployment)) *appsv1.Deployment {
	d := labtest.Deployment(namespace, name)
	d.Spec.Replicas = new(int32(2))
	for _, option := range options {
		option(d)
	}
	return d
}

func with(annotation, value string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Annotations[annotation] = value }
}

// namespaced makes a namespace in the cluster of the sources and, open to copies, in the others.
func (r *rig) namespaced(t *testing.T, source, name string, targets ...string) {
	t.Helper()
	r.create(t, source, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	for _, target := range targets {
		r.create(t, target, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		r.open(t, target, name, replication.TargetConfined)
	}
}

// open lets copies into a namespace.
func (r *rig) open(t *testing.T, cluster, namespace, value string) {
	t.Helper()
	must.Succeed(t, lab.OpenNamespace(t.Context(), r.client[cluster], namespace, value))
}

func (r *rig) create(t *testing.T, cluster string, o client.Object) {
	t.Helper()
	must.Succeed(t, r.client[cluster].Create(t.Context(), o))
}

// get reads a Deployment, nil if there is none or it can't be read.
func (r *rig) get(t *testing.T, cluster string, o *appsv1.Deployment) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := r.client[cluster].Get(t.Context(), client.ObjectKeyFromObject(o), d); err != nil {
		return nil
	}
	return d
}

// edit merges a change into a Deployment, as somebody.
func (r *rig) edit(t *testing.T, cluster, by string, o *appsv1.Deployment, change func(*appsv1.Deployment)) {
	t.Helper()
	old := r.get(t, cluster, o)
	if old == nil {
		t.Fatalf("no %s in %s", o.Name, cluster)
	}
	next := old.DeepCopy()
	change(next)
	must.Succeed(t, r.client[cluster].Patch(t.Context(), next, client.MergeFrom(old), client.FieldOwner(by)))
}

// scale writes spec.replicas through the scale subresource, as autoscalers and kubectl scale do.
func (r *rig) scale(ctx context.Context, cluster, by string, o *appsv1.Deployment, replicas int32) error {
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":`+jsonOf(replicas)+`}}`))
	return r.client[cluster].SubResource("scale").Patch(ctx, o.DeepCopy(), patch, client.FieldOwner(by))
}

func jsonOf(v any) string {
	data, _ := json.Marshal(v) // numbers only
	return string(data)
}

// awaits waits until a source's condition is right.
func (r *rig) awaits(t *testing.T, source *appsv1.Deployment, what string,
	right func(appsv1.DeploymentCondition) bool) {
	t.Helper()
	var last appsv1.DeploymentCondition
	defer func() {
		if t.Failed() {
			t.Logf("%s: %+v", source.Name, last)
		}
	}()
	labtest.Until(t, what, func() bool {
		last = labtest.Condition(r.get(t, "home", source), replication.ConditionReplicated)
		return right(last)
	})
}

// replicated waits until a source's condition is True.
func (r *rig) replicated(t *testing.T, source *appsv1.Deployment) {
	t.Helper()
	r.awaits(t, source, source.Name+" is replicated",
		func(c appsv1.DeploymentCondition) bool { return c.Status == corev1.ConditionTrue })
}

// shows waits until a source gives a reason, in words.
func (r *rig) shows(t *testing.T, source *appsv1.Deployment, reason, words string) {
	t.Helper()
	r.awaits(t, source, "the source shows "+reason, func(c appsv1.DeploymentCondition) bool {
		return c.Reason == reason && strings.Contains(c.Message, words)
	})
}

// runs waits until a copy, or a source, has an image.
func (r *rig) runs(t *testing.T, cluster string, o *appsv1.Deployment, image string) {
	t.Helper()
	labtest.Until(t, cluster+" has image "+image, func() bool { return imageOf(r.get(t, cluster, o)) == image })
}

// imageOf is that of a Deployment's first container; "" if there is no Deployment.
func imageOf(d *appsv1.Deployment) string {
	if d == nil {
		return ""
	}
	return d.Spec.Template.Spec.Containers[0].Image
}

func imageTo(image string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = image }
}

// copyWrite is one write of the reconciler's, as the API server saw it.
type copyWrite struct {
	Verb, Resource, Subresource, Name string
	Code                              int32
}

// writes are what the reconciler wrote in a namespace of a cluster, "" for all, and was not refused.
func (r *rig) writes(t *testing.T, cluster, namespace string) []copyWrite {
	t.Helper()
	var all []copyWrite
	for _, e := range labtest.Audited(t, r.planes.Cluster(cluster), func(e *audit.Event) bool {
		return e.User == lab.AccountUser && (namespace == "" || e.Namespace == namespace) && e.Wrote() &&
			e.Resource != "events"
	}) {
		all = append(all, copyWrite{e.Verb, e.Resource, e.Subresource, e.Name, int32(e.Code)})
	}
	return all
}
