package shard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/multicluster-runtime/pkg/clusters"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	nop "sigs.k8s.io/multicluster-runtime/providers/nop"

	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
	"github.com/tenure-dev/tenure/test/must"
)

func TestAClusterThatNoShardFencesIsToBeAskedForByName(t *testing.T) {
	provider := clusters.New[cluster.Cluster]()
	m, err := NewManager(&rest.Config{Host: "127.0.0.1:1"}, &provider,
		manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}},
		Config{Replica: "a", HomeCluster: "home", Kinds: []Kind{Primary(&corev1.ConfigMap{})}})
	must.Succeed(t, err)
	west, err := cluster.New(&rest.Config{Host: "127.0.0.1:1"})
	must.Succeed(t, err)
	must.Succeed(t, provider.Add(t.Context(), "west", west, m))
	asSeen, held := &engage.Cluster{}, &engage.Cluster{}
	post := &outpost{cluster: shardCluster{virtual: asSeen}, synced: true}
	e := &engagement{reaching: map[keyspace.ClusterName]*outpost{"west": post}}
	e.own.virtual = held
	m.node.roster.put("east/0", e)
	reconcile := context.WithValue(t.Context(), engagementKey{}, e)

	unfenced := func(_ context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
		return m.Unfenced(name)
	}
	asManager := func(ctx context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
		return m.GetManager(ctx, name)
	}
	byProvider := m.GetProvider().Get
	for _, c := range []struct {
		what string
		get  func(context.Context, multicluster.ClusterName) (cluster.Cluster, error)
		ctx  context.Context
		name multicluster.ClusterName
		want cluster.Cluster // nil: an error
		gone bool            // the error is ErrClusterNotFound
	}{
		{"a shard, outside of a reconcile", m.GetCluster, t.Context(), "east/0", held, false},
		{"a shard, in a reconcile", m.GetCluster, reconcile, "east/0", held, false},
		{"a cluster, in a reconcile", m.GetCluster, reconcile, "west", asSeen, false},
		{"a cluster that the shard doesn't reach, in a reconcile", m.GetCluster, reconcile, "home", nil, false},
		{"a cluster, outside of a reconcile", m.GetCluster, t.Context(), "west", nil, false},
		{"the home cluster, outside of a reconcile", m.GetCluster, t.Context(), "home", nil, false},
		{"a cluster as a manager, outside of a reconcile", asManager, t.Context(), "west", nil, false},
		{"a cluster of the provider, outside of a reconcile", byProvider, t.Context(), "west", nil, false},
		{"nothing that is here", m.GetCluster, t.Context(), "west/0", nil, true},
		{"a cluster, unfenced", unfenced, t.Context(), "west", west, false},
		{"the home cluster, unfenced", unfenced, t.Context(), "home", m.GetLocalManager(), false},
		{"nothing that is here, unfenced", unfenced, t.Context(), "north", nil, true},
		{"a shard, unfenced", unfenced, t.Context(), "west/01", nil, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			got, err := c.get(c.ctx, c.name)
			switch {
			case c.want != nil:
				if got != c.want || err != nil {
					t.Errorf("got %T %p (%v), want %T %p", got, got, err, c.want, c.want)
				}
			case err == nil:
				t.Errorf("got %T, want an error", got)
			case errors.Is(err, multicluster.ErrClusterNotFound) != c.gone:
				t.Errorf("got %v; is it to be ErrClusterNotFound? %t", err, c.gone)
			case !c.gone && !strings.Contains(err.Error(), "Manager.Unfenced"):
				t.Errorf("%v: that doesn't say what to do", err)
			}
		})
	}
}

// bare is a cluster whose scheme lacks all kinds.
type bare struct{ fakeCluster }

func (bare) GetScheme() *runtime.Scheme { return runtime.NewScheme() }

// Its shards could never be served, and waiting doesn't help.
func TestAClusterWhoseSchemeLacksAKindIsRefusedWithTheWayOut(t *testing.T) {
	in := func(k Kind, name keyspace.ClusterName) Kind {
		k.In = func(cluster keyspace.ClusterName) bool { return cluster == name }
		return k
	}
	metadata := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}}
	for what, c := range map[string]struct {
		kind    Kind
		refused bool
	}{
		"of all clusters":                {Primary(&corev1.ConfigMap{}), true},
		"of this cluster":                {in(Owned(&corev1.Pod{}), "west"), true},
		"of another cluster":             {in(Primary(&corev1.ConfigMap{}), "east"), false},
		"copied here":                    {in(Copies(&corev1.ConfigMap{}), "east"), true},
		"copied from here":               {in(Copies(&corev1.ConfigMap{}), "west"), false},
		"that needs no scheme (by name)": {Primary(metadata), false},
	} {
		n := newNode(Config{Replica: "a", Kinds: []Kind{c.kind}}.withDefaults(), "", nil, logr.Discard(), nil)
		err := n.Engage(t.Context(), "west", bare{fakeCluster{config: &rest.Config{Host: "https://a"}}})
		if c.refused != (err != nil) || err != nil && !strings.Contains(err.Error(), fmt.Sprintf(
			"cluster west: its scheme lacks %T of shard.Config.Kinds: register the kind", c.kind.Object)) {
			t.Errorf("a kind %s: %v", what, err)
		}
	}
}

// A program of one namespace would work in all of them.
func TestWhatShardsOfTheHomeClusterDoNotGoByIsRefused(t *testing.T) {
	maps, secrets := Primary(&corev1.ConfigMap{}), Owned(&corev1.Secret{})
	for name, c := range map[string]struct {
		opts cache.Options
		says string // "" where it is let through
	}{
		"nothing": {cache.Options{ReaderFailOnMissingInformer: true}, ""},
		"all": {cache.Options{DefaultLabelSelector: labels.Everything(), DefaultFieldSelector: fields.Everything()},
			""},
		"namespaces": {cache.Options{DefaultNamespaces: map[string]cache.Config{"b": {}, "a": {}}},
			`DefaultNamespaces ["a" "b"]`},
		"labels": {cache.Options{DefaultLabelSelector: labels.Set{"app": "web"}.AsSelector()},
			`DefaultLabelSelector "app=web"`},
		"fields": {cache.Options{DefaultFieldSelector: fields.OneTermEqualSelector("a", "b")},
			`DefaultFieldSelector "a=b"`},
		"transform": {cache.Options{DefaultTransform: cache.TransformStripManagedFields()}, "DefaultTransform"},
		"resyncs":   {cache.Options{SyncPeriod: new(time.Minute)}, "SyncPeriod 1m0s"},
		"a declared kind": {cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {}}},
			"ByObject of *v1.Secret"},
		"another kind": {cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: {}}}, ""},
	} {
		cfg := Config{Replica: "a", HomeCluster: "home", Kinds: []Kind{maps, secrets}}
		if c.says != "" {
			c.says = "manager.Options.Cache: " + c.says + ": with Config.HomeCluster"
		}
		if err := checkHomeCache(cfg, c.opts, scheme.Scheme); !tells(err, c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
		cfg.HomeCluster = ""
		if err := checkHomeCache(cfg, c.opts, scheme.Scheme); err != nil {
			t.Errorf("%s, where home isn't worked on: %v", name, err)
		}
	}
	_, err := NewManager(&rest.Config{Host: "127.0.0.1:1"}, nop.New(), manager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{"a": {}}},
	}, Config{Replica: "a", HomeCluster: "home", Kinds: []Kind{maps}})
	if !tells(err, "manager.Options.NewCache") {
		t.Errorf("a manager is made: %v", err)
	}
}

// After controller-runtime's own two minutes it would end, and start again.
func TestAReplicaWaitsForAHomeClusterThatIsAwayForLong(t *testing.T) {
	for given, least := range map[time.Duration]time.Duration{0: 24 * time.Hour, time.Minute: time.Minute} {
		m, err := NewManager(&rest.Config{Host: "127.0.0.1:1"}, nop.New(), manager.Options{
			Metrics:    metricsserver.Options{BindAddress: "0"},
			Controller: config.Controller{CacheSyncTimeout: given},
		}, Config{Replica: "a", Kinds: []Kind{Primary(&corev1.ConfigMap{})}})
		must.Succeed(t, err)
		got := m.GetControllerOptions().CacheSyncTimeout
		if got < least || given != 0 && got != given {
			t.Errorf("controllers wait %v for their caches, want at least %v; the program said %v", got, least, given)
		}
	}
}

// client-go waits for such a program without heed of a request's context, and the Pod would be killed in the end.
func TestAReplicaEndsWhileTheProgramOfItsCredentialsHangs(t *testing.T) {
	began := filepath.Join(t.TempDir(), "began")
	home := &rest.Config{Host: "127.0.0.1:1", ExecProvider: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		Command: "/bin/sh",
		Args:    []string{"-c", fmt.Sprintf("touch %[1]q; while [ -e %[1]q ]; do sleep 0.1; done", began)},
	}}
	m, err := NewManager(home, nop.New(), manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}},
		Config{Replica: "a", Kinds: []Kind{Primary(&corev1.ConfigMap{})}})
	must.Succeed(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	for _, err := os.Stat(began); err != nil; _, err = os.Stat(began) { // the test's own time is the bound
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	select {
	case err := <-ended:
		must.Succeed(t, err)
	case <-time.After(20 * time.Second):
		t.Error("it hasn't ended after 20 s")
	}
	must.Succeed(t, os.Remove(began))
}

// With these nothing would be reconciled, or not what the program means, and nothing would say so.
func TestAConfigThatCannotBeMeantIsRefused(t *testing.T) {
	pods, maps := Owned(&corev1.Pod{}), Primary(&corev1.ConfigMap{})
	metadata := func(kind string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind}}
	}
	kinds := func(all ...Kind) Config { return Config{Kinds: all} }
	version := func(v string) Config { return Config{Version: v, Kinds: []Kind{maps}} }
	weight := func(w int) Config { return Config{Weight: w, Kinds: []Kind{maps}} }
	drain := func(d time.Duration) Config { return Config{DrainTimeout: d, Kinds: []Kind{maps}} }
	for name, c := range map[string]struct {
		config Config
		says   string
	}{
		"primary and owned":        {kinds(maps, pods), ""},
		"the same here and there":  {kinds(maps, Copies(&corev1.ConfigMap{})), ""},
		"metadata beside objects":  {kinds(maps, Primary(metadata("ConfigMap")), Primary(metadata("Secret"))), ""},
		"no primary kind":          {kinds(pods, Copies(&corev1.ConfigMap{})), "none is primary"},
		"primary, and owned, too":  {kinds(maps, Owned(&corev1.ConfigMap{})), "Kinds[1]: *v1.ConfigMap is declared before"},
		"the same kind twice":      {kinds(maps, pods, pods), "Kinds[2]: *v1.Pod is declared before"},
		"the same metadata twice":  {kinds(Primary(metadata("Secret")), Primary(metadata("Secret"))), "Kinds[1]: "},
		"no object":                {kinds(maps, Owned(nil), Owned(nil)), "Kinds[1]: Object is nil"},
		"a selector that is wrong": {kinds(maps, Kind{Object: &corev1.Pod{}, Fields: "a"}), "Fields"},
		// Every request's User-Agent has the version. One that is read from a file may end with a newline.
		"a version":             {version("v1.2.3"), ""},
		"a comment":             {version("v1 (abc)"), ""},
		"a newline":             {version("v1\n"), `Version "v1\n"`},
		"a letter beyond ASCII": {version("ü"), `Version "ü"`},
		// A share that counted as another would be given without a word.
		"a negative weight":  {weight(-1), "Weight -1: must be from 1 to 1000;"},
		"the least weight":   {weight(1), ""},
		"the highest weight": {weight(plan.MaxWeight), ""},
		"too much weight":    {weight(plan.MaxWeight + 1), "Weight 1001: must be from 1 to 1000;"},
		// A bare number counts nanoseconds, and the sum with another time must be one.
		"no time to drain":         {drain(30), "DrainTimeout 30ns: must be from 1ms to 24h0m0s"},
		"a negative time to drain": {drain(-time.Second), "DrainTimeout -1s: must be from 1ms to 24h0m0s"},
		"the longest drain":        {drain(24 * time.Hour), ""},
		"a drain that never ends":  {drain(math.MaxInt64), "must be from 1ms to 24h0m0s"},
		"no grace, by nanoseconds": {Config{RemovalGrace: 10, Kinds: []Kind{maps}}, "RemovalGrace 10ns: must be from 1ms"},
	} {
		c.config.Replica = "a"
		if err := c.config.Validate(); !tells(err, c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
}

// A cluster of such a name would never be served, and nothing but the home cluster's refusals would say so.
func TestAClusterNameThatNoRecordCanHaveIsRefused(t *testing.T) {
	m := aManager(t, Config{Replica: "a", Kinds: []Kind{Primary(&corev1.ConfigMap{})}})
	long := strings.Repeat("x", 254)
	for name, says := range map[string]string{
		"west": "", "team/west": "", long[1:]: "", "": "the empty name", long: "at most 253 bytes", "\xff": "valid UTF-8",
		"a\nb": "no control", "a\x7fb": "no control", "west (eu)": "",
	} {
		cl, err := cluster.New(&rest.Config{Host: "127.0.0.1:1"})
		must.Succeed(t, err)
		if err := m.node.Engage(t.Context(), multicluster.ClusterName(name), cl); !tells(err, says) {
			t.Errorf("cluster %q: got %v, want %q", name, err, says)
		}
		cfg := Config{Replica: "a", HomeCluster: multicluster.ClusterName(name), Kinds: m.node.cfg.Kinds}
		if err := cfg.Validate(); name != "" && !tells(err, says) { // without a name home is no workload cluster
			t.Errorf("HomeCluster %q: got %v, want %q", name, err, says)
		}
	}
}
