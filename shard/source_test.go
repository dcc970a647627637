package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/multicluster-runtime/pkg/clusters"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/must"
)

// sharing is a manager of these kinds that nobody has started.
func sharing(kinds ...Kind) *Manager {
	m := &Manager{node: &node{roster: newRoster(Config{Kinds: kinds}), log: logr.Discard()}}
	m.Guard(nil)
	return m
}

func testQueue(t *testing.T) queue {
	q := priorityqueue.New[mcreconcile.Request]("")
	t.Cleanup(q.ShutDown)
	return q
}

// tells reports whether an error says that, or, for "", that there is none.
func tells(err error, says string) bool {
	if says == "" || err == nil {
		return says == "" && err == nil
	}
	return strings.Contains(err.Error(), says)
}

// holding is a manager of these kinds that holds all of cluster west. Nothing of it is started.
func holding(t *testing.T, kinds ...Kind) (*Manager, *engagement) {
	t.Helper()
	m := aManager(t, Config{Replica: "a", Kinds: kinds})
	e := opened(t, m, func() bool { return true })
	m.node.roster.put(e.name(), e)
	return m, e
}

// Each shard is attached to a source once, so a second queue would take the events away from the first.
func TestASourceFeedsOneQueue(t *testing.T) {
	m := sharing(Primary(&corev1.ConfigMap{}))
	s := m.For(&corev1.ConfigMap{}, nil)
	m.Guard(nil) // of the second controller
	must.Succeed(t, s.Start(t.Context(), testQueue(t)))
	if err := s.Start(t.Context(), testQueue(t)); !tells(err, "make one for each controller") {
		t.Errorf("the second controller is told: %v", err)
	}
	if err := m.For(&corev1.ConfigMap{}, nil).Start(t.Context(), testQueue(t)); err != nil {
		t.Errorf("another source of the kind: %v", err)
	}
}

func TestASourceThatCannotWorkSaysWhy(t *testing.T) {
	type feed = source.TypedSource[mcreconcile.Request]
	maps, pods := &corev1.ConfigMap{}, &corev1.Pod{}
	owns := func(m *Manager) feed { return m.Owns(pods, maps) }
	about := func(m *Manager) feed { return m.Watches(pods, ownKey) }
	of := func(m *Manager) feed { return m.For(pods, nil) }
	for name, c := range map[string]struct {
		pods   Kind // beside ConfigMaps, which are primary
		whole  bool // the shards are whole clusters
		source func(*Manager) feed
		says   string
	}{
		// What an object is about is enqueued in the shard in which the object is seen.
		"owned":                           {Owned(pods), false, owns, ""},
		"about others":                    {Owned(pods), false, about, ""},
		"owned, and primary":              {Primary(pods), false, owns, "declare it with Owned"},
		"about others, and primary":       {Primary(pods), false, about, "declare it with Owned"},
		"owned in whole clusters":         {Primary(pods), true, owns, ""},
		"about others, in whole clusters": {Primary(pods), true, about, ""},
		// What an owned object owns itself would be in another shard than the object.
		"owned, and reconciled":       {Owned(pods), false, of, "its objects are in their owners' shards"},
		"the same, in whole clusters": {Owned(pods), true, of, ""},
		"copies, and reconciled": {Copies(pods), false, of,
			"declare the kind in shard.Config.Kinds, with Primary or Owned"},
		"without keys": {Owned(pods), false, func(m *Manager) feed { return m.Watches(maps, nil) },
			"keys is nil"},
		"no copies": {Owned(pods), false, func(m *Manager) feed { return m.WatchesCopies(maps, ownKey) },
			"declare the kind in shard.Config.Kinds, with Copies"},
		"a sweep of what is owned": {Owned(pods), false, func(m *Manager) feed { return m.Sweep(pods, nil) },
			"sweep the primary kind that they belong to"},
	} {
		m := aManager(t, Config{Replica: "a", Kinds: []Kind{Primary(maps), c.pods}, WholeClusters: c.whole})
		if err := c.source(m).Start(t.Context(), testQueue(t)); !tells(err, c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
}

// Without the guard all seems to work, until a shard moves.
func TestASourceStartsOnlyIfItsReconcilerIsGuarded(t *testing.T) {
	m := sharing(Primary(&corev1.ConfigMap{}))
	m.node.roster.guards.Store(0)
	start := func(q queue, says string) {
		t.Helper()
		if err := m.For(&corev1.ConfigMap{}, nil).Start(t.Context(), q); !tells(err, says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	one, other := testQueue(t), testQueue(t)
	start(one, "1 controller(s), and Manager.Guard was called 0 time(s)")
	m.Guard(nil)
	start(one, "")
	start(one, "") // of the same controller
	start(other, "2 controller(s), and Manager.Guard was called 1 time(s)")
	m.Guard(nil)
	start(other, "")
}

func TestAnUnmodifiedControllerIsNotEngagedIfNoReconcilerIsGuarded(t *testing.T) {
	m, e := holding(t, Primary(&corev1.ConfigMap{}))
	engaged := 0
	m.node.roster.addAware(unmodified(func() error { engaged++; return nil }))
	g := &engager{roster: m.node.roster, spawn: func(f func()) { f() }}
	for _, guards := range []int{0, 1} {
		m.node.roster.guards.Store(int64(guards))
		if g.engageAwares(e); engaged != guards {
			t.Errorf("%d reconcilers are guarded, and it is engaged %d times", guards, engaged)
		}
	}
}

// resources is an API server that says which it has, and nothing else.
type resources string

func (r resources) RoundTrip(*http.Request) (*http.Response, error) {
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader(string(r)))}, nil
}

// opened is an engagement of cluster west, whose API server says which resources it has. Its caches aren't filled.
func opened(t *testing.T, m *Manager, valid func() bool) *engagement {
	t.Helper()
	const core = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"namespaces","kind":"Namespace"},
		{"name":"pods","kind":"Pod","namespaced":true},{"name":"configmaps","kind":"ConfigMap","namespaced":true}]}`
	west, err := cluster.New(&rest.Config{Host: "127.0.0.1:1", Transport: resources(core)})
	must.Succeed(t, err)
	connection, err := engage.Connect(west)
	must.Succeed(t, err)
	id := keyspace.ShardID{Cluster: "west"}
	e := &engagement{id: id, ctx: t.Context(), gate: engage.NewGate(t.Context(), id, "test", "me", valid)}
	e.own.virtual, err = engage.Open(connection, e.gate, &engage.Traffic{}, m.node.roster.options("west", false))
	must.Succeed(t, err)
	return e
}

// filled fills an engagement's cache of ConfigMaps, and returns the watch that goes on from there.
func filled(t *testing.T, e *engagement, objects ...corev1.ConfigMap) *watch.RaceFreeFakeWatcher {
	t.Helper()
	store, err := e.cluster().Informer(&corev1.ConfigMap{})
	must.Succeed(t, err)
	events := watch.NewRaceFreeFake()
	go run(t.Context(), store, objects, events)
	must.Succeed(t, store.AwaitSync(t.Context()))
	return events
}

// Whoever opens a gate enqueues all there is. A gate that stays open is opened by nobody.
func TestWhatIsDroppedWhileALeaseSeemsToHaveRunOutIsMadeUpFor(t *testing.T) {
	m := aManager(t, Config{Replica: "a", Kinds: []Kind{Primary(&corev1.ConfigMap{})}})
	var over, asked atomic.Bool
	e := opened(t, m, func() bool { asked.Store(over.Load()); return !over.Load() })
	m.node.roster.put(e.name(), e)
	events, q := filled(t, e), testQueue(t)
	must.Succeed(t, m.For(&corev1.ConfigMap{}, nil).Start(t.Context(), q))
	e.gate.Open(1)
	g := &engager{roster: m.node.roster, put: func(driver.Event) {}, spawn: func(f func()) { f() }}
	engaged := 0
	m.node.roster.addAware(unmodified(func() error { engaged++; return nil }))
	g.engageAwares(e)

	over.Store(true)
	events.Add(waits("one", ""))
	must.Until(t, "the event is judged by the lease", asked.Load)
	g.measure()
	if n := q.Len(); n != 0 {
		t.Errorf("%d keys are enqueued by a replica whose lease has run out", n)
	}
	over.Store(false)
	if engaged != 1 {
		t.Errorf("an unmodified controller is engaged %d times, want once", engaged)
	}
	g.measure()
	if n := q.Len(); n != 1 {
		t.Errorf("%d keys are enqueued once the lease turns out to be valid, want the one", n)
	}
	if engaged != 2 {
		t.Errorf("an unmodified controller, which enqueues all when it is engaged, is engaged %d times, want twice", engaged)
	}
}

// Its caches are replaced when its cluster moves to another server, and the handlers are given all that is in them.
func TestWhatNewCachesHoldIsEnqueuedOnce(t *testing.T) {
	m, e := holding(t, Primary(&corev1.ConfigMap{}), Copies(&corev1.ConfigMap{}))
	filled(t, e, *waits("one", ""))
	e.reaching = map[keyspace.ClusterName]*outpost{"north": {synced: true}}
	e.reaching["north"].cluster.virtual = e.own.virtual
	primaries, copies := 0, 0
	counts := func(n *int) predicate.Predicate {
		return predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { *n++; return true }}
	}
	q := testQueue(t)
	must.Succeed(t, m.For(&corev1.ConfigMap{}, nil, counts(&primaries)).Start(t.Context(), q))
	far := m.WatchesCopies(&corev1.ConfigMap{}, ownKey).(*kindSource)
	far.filter = counts(&copies)
	must.Succeed(t, far.Start(t.Context(), q))
	e.gate.Open(1)
	g := &engager{roster: m.node.roster, log: logr.Discard()}
	for _, c := range []struct {
		name              string
		attached          *shardCluster // whose caches are new
		remote            bool
		primaries, copies int
	}{
		{"its own cluster", &e.own, false, 1, 1},
		{"another cluster", &e.reaching["north"].cluster, true, 1, 1},
	} {
		primaries, copies, c.attached.attached = 0, 0, nil
		g.changed(e, c.remote)
		if primaries != c.primaries || copies != c.copies {
			t.Errorf("new caches of %s: %d primary objects and %d copies are enqueued, want %d and %d", c.name, primaries,
				copies, c.primaries, c.copies)
		}
	}
}

// unmodified is a multicluster-runtime controller that nothing was changed in.
type unmodified func() error

func (u unmodified) Engage(context.Context, multicluster.ClusterName, cluster.Cluster) error {
	return u()
}

func TestAControllerThatCannotBeEngagedIsTriedAgainUntilItCanOrTheTenureEnds(t *testing.T) {
	for name, fails := range map[string]int{"it can": 2, "the tenure ends": math.MaxInt} {
		t.Run(name, func(t *testing.T) {
			m, e := holding(t, Primary(&corev1.ConfigMap{}))
			tried := make(chan int, 100)
			tries := 0
			m.node.roster.addAware(unmodified(func() error {
				if tries++; tries <= 3 {
					tried <- tries
				}
				if tries > fails {
					return nil
				}
				return errors.New("no such CRD yet")
			}))
			var running sync.WaitGroup
			g := &engager{roster: m.node.roster, log: logr.Discard(), spawn: func(f func()) { running.Go(f) }}
			g.engageAwares(e)
			for n := 0; n < 3; {
				select {
				case n = <-tried:
				case <-time.After(20 * time.Second):
					t.Fatalf("no more than %d tries", n)
				}
			}
			if fails > 3 {
				e.endAwares()
			}
			running.Wait() // else the test's own time limit
			if fails < 3 && tries != 3 {
				t.Errorf("%d tries, want 3", tries)
			}
		})
	}
}

func TestTheSizeOfAShardIsKnownAndItsLoadIsThatOfTheTenureOnceItIsOpen(t *testing.T) {
	m, e := holding(t, Primary(&corev1.ConfigMap{}))
	var measured driver.Measured
	g := &engager{cfg: Config{Observer: NopObserver{}}, roster: m.node.roster, log: logr.Discard(),
		put: func(event driver.Event) { measured = event.(driver.Measured) }, spawn: func(func()) {}}
	filled(t, e, *waits("one", ""))
	e.busy.Add(int64(400 * time.Second)) // of reconciles that ended while it began to drain, before it was kept
	g.open(driver.Open{ID: e.id, Epoch: 1})
	if n := statusOf(ownership.Holding{ID: e.id}, e).Objects; n != 1 {
		t.Errorf("%d objects, want 1", n)
	}
	time.Sleep(10 * time.Millisecond)
	g.measure()
	if measured.Load > 1 {
		t.Errorf("a load of %v, and nothing was done", measured.Load)
	}
}

func TestWhatReachesIntoOtherClustersIsEnqueuedWhenAnotherNameCountsForOne(t *testing.T) {
	for name, c := range map[string]struct {
		kinds []Kind
		want  int
	}{
		"it reaches":       {[]Kind{Primary(&corev1.ConfigMap{}), Copies(&corev1.Pod{})}, 1},
		"it doesn't reach": {[]Kind{Primary(&corev1.ConfigMap{})}, 0},
	} {
		m, e := holding(t, c.kinds...)
		filled(t, e, *waits("one", ""))
		q := testQueue(t)
		must.Succeed(t, m.For(&corev1.ConfigMap{}, nil).Start(t.Context(), q))
		e.gate.Open(1)
		known := newClusterSet(logr.Discard(), 0, kubeconfig.Limits{})
		known.clusters = map[keyspace.ClusterName]*entry{"north": {}, "south": {}}
		g := &engager{roster: m.node.roster, clusters: known, spawn: func(f func()) { f() }}
		enqueued := func(what string, want int) {
			t.Helper()
			if got := q.Len(); got != want {
				t.Errorf("%s, %s: %d keys enqueued, want %d", name, what, got, want)
			}
			for q.Len() > 0 {
				key, _ := q.Get()
				q.Done(key)
			}
		}
		enqueued("at first", 0)
		g.renamed(nil)
		enqueued("two clusters of which nothing is known", 0)
		known.clusters["north"].uid, known.clusters["south"].uid = "1", "1"
		g.renamed(nil)
		enqueued("they are one", c.want)
		g.renamed(nil)
		enqueued("they still are", 0)
		g.renamed(map[keyspace.ClusterName]keyspace.ClusterName{"north": "south"})
		enqueued("the other name counts", c.want)
	}
}

// A list after a gap shows an object that was deleted and made again as changed. Most predicates look at what a change
// leaves alone then.
func TestAnObjectThatTookTheNameOfAnotherIsNew(t *testing.T) {
	m, e := holding(t, Primary(&corev1.ConfigMap{}))
	q, deleted := testQueue(t), 0
	s := m.For(&corev1.ConfigMap{}, nil, predicate.GenerationChangedPredicate{}, predicate.Funcs{
		DeleteFunc: func(event.DeleteEvent) bool { deleted++; return true },
	}).(*kindSource)
	must.Succeed(t, s.Start(t.Context(), q))
	before, after := waits("one", ""), waits("one", "")
	before.UID, after.UID = "1", "1"
	s.updated(e, before, after)
	if n := q.Len(); n != 0 || deleted != 0 {
		t.Errorf("%d keys enqueued, %d deleted, and no generation changed", n, deleted)
	}
	after.UID = "2"
	s.updated(e, before, after)
	if n := q.Len(); n != 1 || deleted != 1 {
		t.Errorf("%d keys enqueued, %d deleted, want 1 of each: it is another object", n, deleted)
	}
}

// Otherwise the controller takes itself for engaged, and enqueues nothing.
func TestAControllerThatIsEngagedAnewIsDisengagedFirst(t *testing.T) {
	e := &engagement{ctx: t.Context()}
	first := e.beginAwares()
	second := e.beginAwares()
	if first.Err() == nil || second.Err() != nil {
		t.Errorf("the first engagement: %v, the second: %v", first.Err(), second.Err())
	}
}

// One object has one key, whoever enqueues it: the namespace of what it owns isn't its own where it has none.
func TestAnOwnerWithoutANamespaceHasOneKey(t *testing.T) {
	m, e := holding(t, Primary(&corev1.Namespace{}), Owned(&corev1.ConfigMap{}))
	for owner, want := range map[client.Object]string{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}:           "/team",
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "team"}}: "n/team", // which isn't declared
	} {
		owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "owned"}}
		must.Succeed(t, controllerutil.SetControllerReference(owner, owned, m.GetLocalManager().GetScheme()))
		s := m.Owns(&corev1.ConfigMap{}, owner).(*kindSource)
		s.queue = testQueue(t)
		s.enqueue(e, owned, live)
		if req, _ := s.queue.Get(); req.ClusterName != "west/" || req.NamespacedName.String() != want {
			t.Errorf("a %T is enqueued as %s in %s, want %s", owner, req.NamespacedName, req.ClusterName, want)
		}
	}
}

// aManager is one that is never started.
func aManager(t *testing.T, cfg Config) *Manager {
	t.Helper()
	provider := clusters.New[cluster.Cluster]()
	m, err := NewManager(&rest.Config{Host: "127.0.0.1:1"}, &provider,
		manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}}, cfg)
	must.Succeed(t, err)
	m.Guard(nil)
	return m
}

// A cluster that isn't to have a kind may not even serve it.
func TestAnIndexIsForShardsThatHaveTheKind(t *testing.T) {
	maps, pods := Primary(&corev1.ConfigMap{}), Owned(&corev1.Pod{})
	pods.In = func(name keyspace.ClusterName) bool { return name == "west" }
	m := sharing(maps, pods)
	p := &provider{node: m.node}
	for _, obj := range []client.Object{&corev1.ConfigMap{}, &corev1.Pod{}, &corev1.Secret{}} {
		must.Succeed(t, p.IndexField(t.Context(), obj, "data", func(client.Object) []string { return nil }))
	}
	for cluster, want := range map[keyspace.ClusterName]string{
		"west": "[*v1.ConfigMap *v1.Pod *v1.Secret]", // Secrets are nobody's, so their cache is made when it is asked for
		"east": "[*v1.ConfigMap *v1.Secret]",
	} {
		var got []string
		for _, i := range m.node.roster.options(cluster, false).Indexes {
			got = append(got, fmt.Sprintf("%T", i.Object))
		}
		if fmt.Sprint(got) != want {
			t.Errorf("shards of %s index %v, want %s", cluster, got, want)
		}
	}
}

// A cache of it would hold an arbitrary part of the objects, and nothing would say so.
func TestAnIndexOfAKindThatIsNotDeclaredIsRefusedWhereClustersAreDivided(t *testing.T) {
	metadata := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}
	for what, c := range map[string]struct {
		obj   client.Object
		whole bool
		says  string
	}{
		"declared":                        {&corev1.ConfigMap{}, false, ""},
		"declared in another form":        {metadata, false, ""},
		"declared for copies only":        {&corev1.Pod{}, false, "index of data of *v1.Pod: the kind isn't declared"},
		"not declared":                    {&corev1.Secret{}, false, "index of data of *v1.Secret: the kind isn't declared"},
		"not declared, of whole clusters": {&corev1.Secret{}, true, ""},
	} {
		m := aManager(t, Config{Replica: "a", WholeClusters: c.whole,
			Kinds: []Kind{Primary(&corev1.ConfigMap{}), Copies(&corev1.Pod{})}})
		err := m.GetFieldIndexer().IndexField(t.Context(), c.obj, "data", func(client.Object) []string { return nil })
		if !tells(err, c.says) {
			t.Errorf("%s: got %v, want %q", what, err, c.says)
		}
	}
}

// It would keep all shards from opening.
func TestASecondIndexOfAFieldIsRefused(t *testing.T) {
	m := aManager(t, Config{Replica: "a", Kinds: []Kind{Primary(&corev1.ConfigMap{})}})
	index := func(field string) error {
		return m.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, field,
			func(client.Object) []string { return nil })
	}
	for _, field := range []string{"data", "name"} {
		must.Succeed(t, index(field))
	}
	if err := index("data"); !tells(err, "there is one already") {
		t.Errorf("got %v", err)
	}
}

// Whoever changes an object's slot label moves it into another shard's cache. Its owner isn't there: the shard's holder
// would take it for deleted, while another replica reconciles it.
func TestAnOwnerOfAnotherShardIsNotReconciled(t *testing.T) {
	m := aManager(t, Config{Replica: "a", Kinds: []Kind{Primary(&corev1.ConfigMap{}), Owned(&corev1.Pod{})}})
	for shard, want := range map[string]int{"west/": 1, "west/0": 0, "west/1": 1} {
		id, err := keyspace.ParseShardID(shard)
		must.Succeed(t, err)
		if uid := "an owner"; id.Contains(uid) != (want == 1) {
			t.Fatalf("%s contains %q: %v", shard, uid, id.Contains(uid))
		}
		owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "o", UID: "an owner"}}
		owned := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
		must.Succeed(t, controllerutil.SetControllerReference(owner, owned, m.GetLocalManager().GetScheme()))
		s := m.Owns(&corev1.Pod{}, &corev1.ConfigMap{}).(*kindSource)
		s.queue = testQueue(t)
		s.enqueue(&engagement{id: id}, owned, live)
		if n := s.queue.Len(); n != want {
			t.Errorf("%s enqueues %d keys, want %d", shard, n, want)
		}
	}
}

// An owner that has lost an object has to hear of it, as with controller-runtime's own sources.
func TestAKeyThatAChangeTakesAwayIsEnqueued(t *testing.T) {
	m, e := holding(t, Primary(&corev1.ConfigMap{}), Owned(&corev1.Pod{}))
	pod := func(owner, version string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", ResourceVersion: version}}
		if owner == "" {
			return p
		}
		by := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: owner}}
		must.Succeed(t, controllerutil.SetControllerReference(by, p, m.GetLocalManager().GetScheme()))
		return p
	}
	for now, want := range map[string]int{"": 1, "b": 2, "a": 1} {
		q := testQueue(t)
		s := m.Owns(&corev1.Pod{}, &corev1.ConfigMap{}).(*kindSource)
		s.queue = q
		s.updated(e, pod("a", "1"), pod(now, "2"))
		if n := q.Len(); n != want {
			t.Errorf("controller a -> %q: %d keys, want %d", now, n, want)
		}
	}
}

// A closed channel always has something to give.
func TestASweepEndsWithItsChannel(t *testing.T) {
	m := sharing(Primary(&corev1.ConfigMap{}))
	id := keyspace.ShardID{Cluster: "west"}
	var asked atomic.Int64 // by each sweep, whether the shard is held; it isn't
	gate := engage.NewGate(t.Context(), id, "test", "me", func() bool { asked.Add(1); return false })
	gate.Open(1)
	m.node.roster.put(clusterName(id), &engagement{id: id, gate: gate})
	when := make(chan struct{})
	must.Succeed(t, m.Sweep(&corev1.ConfigMap{}, when).Start(t.Context(), testQueue(t)))
	when <- struct{}{}
	when <- struct{}{}
	close(when)
	must.Until(t, "there are two sweeps", func() bool { return asked.Load() >= 2 })
	time.Sleep(20 * time.Millisecond) // for sweeps without an end
	if n := asked.Load(); n != 2 {
		t.Errorf("%d sweeps, want 2", n)
	}
}
