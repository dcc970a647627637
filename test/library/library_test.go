// Package library tests Tenure as a library, as its users see it: it shards a controller that isn't part of Tenure.
package library

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	"sigs.k8s.io/multicluster-runtime/pkg/clusters"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/must"
)

const objects = 60

// provider is a program's own way of knowing its clusters.
type provider struct {
	clusters.Clusters[cluster.Cluster]
}

func (p *provider) Start(ctx context.Context, aware multicluster.Aware) error {
	for _, name := range p.ClusterNames() {
		cl, err := p.Get(ctx, name)
		if err == nil {
			err = aware.Engage(ctx, name, cl)
		}
		if err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// wiring builds the same controller on a manager in one of the supported ways.
type wiring func(*shard.Manager, reconcile.TypedReconciler[mcreconcile.Request]) error

// twoInOneProcess allows two controllers of the same name in one process, which only a test has.
var twoInOneProcess = mccontroller.Options{SkipNameValidation: new(true)}

// The lines of a program that uses Tenure's own sources.
func ownSources(mgr *shard.Manager, r reconcile.TypedReconciler[mcreconcile.Request]) error {
	return mcbuilder.ControllerManagedBy(mgr).Named("signer").WithOptions(twoInOneProcess).
		WatchesRawSource(mgr.For(&corev1.ConfigMap{}, nil)).
		Complete(mgr.Guard(r))
}

// The lines of a multicluster-runtime program as it was; only its reconciler is guarded.
func takenOver(mgr *shard.Manager, r reconcile.TypedReconciler[mcreconcile.Request]) error {
	return mcbuilder.ControllerManagedBy(mgr).Named("signer").WithOptions(twoInOneProcess).
		For(&corev1.ConfigMap{}).
		Complete(mgr.Guard(r))
}

// signers records which replica of a fleet reconciles which object, and each time two do so at once.
type signers struct {
	as string // what they sign as: the key in the object

	mu      sync.Mutex // guards all below
	running map[string]string
	clashes []string
}

// sign is the stranger's reconciler: it writes the replica's name on the ConfigMap.
func (s *signers) sign(replica string, mgr *shard.Manager) reconcile.TypedReconciler[mcreconcile.Request] {
	return mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (ctrl.Result, error) {
		defer s.enter(replica, req.NamespacedName.String())()
		cl, err := mgr.GetCluster(ctx, req.ClusterName)
		if err != nil {
			return ctrl.Result{}, err
		}
		cm := &corev1.ConfigMap{}
		if err := cl.GetClient().Get(ctx, req.NamespacedName, cm); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		if cm.Namespace != "default" || cm.Data[s.as] == replica {
			return ctrl.Result{}, nil
		}
		if cm.Data == nil {
			cm.Data = map[string]string{}
		}
		cm.Data[s.as] = replica
		return ctrl.Result{}, cl.GetClient().Update(ctx, cm)
	})
}

func (s *signers) enter(replica, key string) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other, taken := s.running[key]; taken {
		s.clashes = append(s.clashes, fmt.Sprintf("%s and %s at %s", other, replica, key))
	}
	s.running[key] = replica
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, key)
	}
}

// startReplica runs one manager until stop is called, which waits for it.
func startReplica(t *testing.T, planes *localplane.Planes, name string, wire wiring, s *signers) (stop func()) {
	t.Helper()
	stop, _ = startWith(t, planes, name, planes.Cluster("west").RESTConfig(), wire,
		func(mgr *shard.Manager) reconcile.TypedReconciler[mcreconcile.Request] {
			return s.sign(name, mgr)
		})
	return stop
}

// drainTimeout is how long a shard waits for reconciles that don't end: long enough to be told from a busy machine.
const drainTimeout = 10 * time.Second

// startWith is startReplica with a connection and a reconciler of the caller's, in one of several fleets if they share
// the namespace.
func startWith(t *testing.T, planes *localplane.Planes, name string, connection *rest.Config, wire wiring,
	reconciler func(*shard.Manager) reconcile.TypedReconciler[mcreconcile.Request],
	fleet ...keyspace.Fleet) (stop func(), _ *shard.Manager) {
	t.Helper()
	west, err := cluster.New(connection)
	must.Succeed(t, err)
	p := &provider{clusters.New[cluster.Cluster]()}
	must.Succeed(t, p.Add(t.Context(), "west", west, nil))
	mgr, err := shard.NewManager(planes.Cluster("home").RESTConfig(), p, manager.Options{
		Scheme:  scheme.Scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
	}, shard.Config{
		Fleet:         cmp.Or(fleet...),
		Replica:       name,
		LeaseDuration: 10 * time.Second, // a busy machine alone makes nobody lapse
		DrainTimeout:  drainTimeout,
		ShardBits:     1,
		Kinds:         []shard.Kind{shard.Primary(&corev1.ConfigMap{})},
	})
	must.Succeed(t, err)
	must.Succeed(t, wire(mgr, reconciler(mgr)))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("replica %s: %v", name, err)
			}
		})
	}
	t.Cleanup(stop)
	return stop, mgr
}

func TestAControllerThatIsTakenOverAsItWasIsSharded(t *testing.T) {
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})))
	planes, west := startPlanes(t)
	s := &signers{as: "signed-by", running: map[string]string{}}
	stopA := startReplica(t, planes, "a", takenOver, s)
	startReplica(t, planes, "b", takenOver, s)
	labtest.Until(t, "both replicas have signed their parts", func() bool {
		by := signatures(t, west, s.as)
		return by["a"] > 0 && by["b"] > 0 && by["a"]+by["b"] == objects
	})
	stopA()
	labtest.Until(t, "b has taken over all of it", func() bool { return signatures(t, west, s.as)["b"] == objects })
	if len(s.clashes) > 0 {
		t.Errorf("two replicas at one key: %v", s.clashes)
	}
}

// Two programs may keep their records in one namespace, and serve one cluster, each for itself.
func TestTwoFleetsShareANamespaceAndACluster(t *testing.T) {
	planes, west := startPlanes(t)
	home, stops, both := labtest.Client(t, planes.Cluster("home")), map[string]func(){}, map[string]*signers{}
	for _, fleet := range []string{"red", "blue"} {
		s := &signers{as: fleet, running: map[string]string{}}
		both[fleet] = s
		for _, name := range []string{fleet + "-a", fleet + "-b"} {
			stops[name], _ = startWith(t, planes, name, planes.Cluster("west").RESTConfig(), ownSources,
				func(mgr *shard.Manager) reconcile.TypedReconciler[mcreconcile.Request] { return s.sign(name, mgr) },
				keyspace.Fleet(fleet))
		}
	}
	for fleet := range both {
		labtest.Until(t, "both replicas of "+fleet+" have signed their parts", func() bool {
			by := signatures(t, west, fleet)
			return by[fleet+"-a"] > 0 && by[fleet+"-b"] > 0 && by[fleet+"-a"]+by[fleet+"-b"] == objects
		})
	}
	of := func(fleet string) map[string]string { // who holds which of its shards, in which epoch
		t.Helper()
		list, held := &tenurev1alpha1.ShardList{}, map[string]string{}
		must.Succeed(t, home.List(t.Context(), list, client.InNamespace(shard.DefaultNamespace),
			client.MatchingLabels{tenurev1alpha1.FleetLabel: fleet}))
		for _, s := range list.Items {
			if s.Spec.Layout == nil {
				held[s.Name] = fmt.Sprint(s.Status.Holder, " ", s.Status.Epoch)
			}
		}
		return held
	}
	blue, signed := of("blue"), signatures(t, west, "blue")
	if len(blue) != 2 || len(of("red")) != 2 {
		t.Errorf("the fleets have %v and %v, want two shards each", blue, of("red"))
	}
	stops["red-a"]()
	labtest.Until(t, "red-b has taken over all of red's", func() bool {
		return signatures(t, west, "red")["red-b"] == objects
	})
	expect.Equal(t, "blue's shards changed as a replica of red left", blue, of("blue"))
	expect.Equal(t, "blue's part was signed again", signed, signatures(t, west, "blue"))
	for fleet, s := range both {
		if len(s.clashes) > 0 {
			t.Errorf("two replicas of %s at one key: %v", fleet, s.clashes)
		}
	}
}

// startPlanes makes a home cluster, and a workload cluster with objects.
func startPlanes(t *testing.T) (*localplane.Planes, client.Client) {
	t.Helper()
	planes := labtest.Planes(t, localplane.ClusterConfig{Name: "home"}, localplane.ClusterConfig{Name: "west"})
	prepareHome(t, planes.Cluster("home"))
	return planes, fill(t, planes.Cluster("west"))
}

// prepareHome installs what the records need.
func prepareHome(t *testing.T, plane *localplane.Plane) {
	t.Helper()
	_, err := envtest.InstallCRDs(plane.RESTConfig(), envtest.CRDInstallOptions{
		Paths: []string{filepath.Join("..", "..", "config", "crd", "tenure.dev_shards.yaml")}, ErrorIfPathMissing: true,
	})
	must.Succeed(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shard.DefaultNamespace}}
	must.Succeed(t, labtest.Client(t, plane).Create(t.Context(), namespace))
}

// fill makes the objects in a cluster.
func fill(t *testing.T, plane *localplane.Plane) client.Client {
	t.Helper()
	c := labtest.Client(t, plane)
	for i := range objects {
		must.Succeed(t, c.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("cm-", i)},
		}))
	}
	return c
}

// signatures counts the ConfigMaps by who signed them as this.
func signatures(t *testing.T, west client.Client, as string) map[string]int {
	t.Helper()
	list := &corev1.ConfigMapList{}
	must.Succeed(t, west.List(t.Context(), list, client.InNamespace("default")))
	by := map[string]int{}
	for _, cm := range list.Items {
		if who := cm.Data[as]; who != "" {
			by[who]++
		}
	}
	return by
}
