package informer

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/test/must"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil // one of them sleeps by a clock that bubbles don't share
	os.Exit(m.Run())
}

var configMaps = Config{Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespaced: true}

// steps are all that may happen. Those that happen most come several times.
var steps = []string{
	"set", "set", "set", "delete", "delete", "set unseen", "delete unseen", "delete what isn't there", "stale",
	"bookmark", "close",
	"expire", "fail", "handler",
}

// rig runs one implementation with a server of its own.
type rig struct {
	server   *server
	informer cache.Informer
	run      func(context.Context)
	held     func() []client.Object
	size     func() int
	labelled func(value string) []client.Object

	mu   sync.Mutex // guards seen
	seen []string   // what handlers were shown
}

func (r *rig) note(handler int, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, fmt.Sprintf("%d ", handler)+fmt.Sprintf(format, args...))
}

func describe(obj any) string {
	if gone, unknown := obj.(toolscache.DeletedFinalStateUnknown); unknown {
		return "unknown " + gone.Key + " " + describe(gone.Obj)
	}
	o := obj.(client.Object)
	return o.GetNamespace() + "/" + o.GetName() + "@" + o.GetResourceVersion()
}

func (r *rig) attach(t *testing.T, n int) {
	_, err := r.informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initial bool) { r.note(n, "add %s %v", describe(obj), initial) },
		UpdateFunc: func(old, obj any) { r.note(n, "update %s to %s", describe(old), describe(obj)) },
		DeleteFunc: func(obj any) { r.note(n, "delete %s", describe(obj)) },
	})
	if err != nil {
		t.Error(err)
	}
}

// shown returns what each handler was shown since the last call. Deletions that a list shows, and what there is when a
// handler is added, have no order.
func (r *rig) shown() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, r.seen = r.seen, nil
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(a[:2], b[:2]) })
	unordered := func(s string) bool { return strings.Contains(s, "unknown n") || strings.HasSuffix(s, " true") }
	for from := 0; from < len(all); {
		to := from + 1
		for ; to < len(all) && unordered(all[from]) && unordered(all[to]) && all[from][:3] == all[to][:3]; to++ {
		}
		slices.Sort(all[from:to])
		from = to
	}
	return all
}

func shared() *rig {
	r := &rig{server: &server{objects: map[string]*corev1.ConfigMap{}}}
	byLabel := func(obj any) ([]string, error) { return labelOf(obj.(client.Object)), nil }
	i := toolscache.NewSharedIndexInformer(r.server.listWatch(), &corev1.ConfigMap{}, 0, toolscache.Indexers{"l": byLabel})
	objects := func(list []any) (all []client.Object) {
		for _, obj := range list {
			all = append(all, obj.(client.Object))
		}
		return all
	}
	r.informer, r.run = i, i.RunWithContext
	r.held = func() []client.Object { return objects(i.GetStore().List()) }
	r.size = func() int { return len(i.GetStore().ListKeys()) }
	r.labelled = func(value string) []client.Object {
		list, _ := i.GetIndexer().ByIndex("l", value)
		return objects(list)
	}
	return r
}

func own() *rig {
	r := &rig{server: &server{objects: map[string]*corev1.ConfigMap{}}}
	packing := configMaps
	packing.Pack = func(o client.Object) Packed {
		if o.GetName() > "o1" { // some are packed, others aren't
			return box{o.(*corev1.ConfigMap).DeepCopy()}
		}
		return nil
	}
	s := New(packing)
	if err := s.IndexField("l", labelOf); err != nil {
		panic(err)
	}
	r.informer = s
	r.run = func(ctx context.Context) { s.Run(ctx, packs(r.server.listWatch(), packing.Pack), &corev1.ConfigMap{}) }
	r.held, r.size = func() []client.Object { return slices.Collect(s.All()) }, s.Len
	r.labelled = func(value string) []client.Object {
		list, _ := s.having(fields.OneTermEqualSelector("l", value), "")
		var all []client.Object
		for _, k := range list {
			all = append(all, opened(k))
		}
		return all
	}
	return r
}

// box is a packed ConfigMap.
type box struct{ object *corev1.ConfigMap }

func (b box) Unpack() client.Object { return b.object.DeepCopy() }

// packs is a list-watch whose lists are packed already.
func packs(from toolscache.ListerWatcher, pack func(client.Object) Packed) toolscache.ListerWatcher {
	lw := toolscache.ToListerWatcherWithContext(from)
	return listed{&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list, err := lw.ListWithContext(ctx, opts)
			if err != nil {
				return nil, err
			}
			packed := &packedList{ListMeta: list.(*corev1.ConfigMapList).ListMeta}
			for _, o := range list.(*corev1.ConfigMapList).Items {
				if p := pack(&o); p != nil {
					packed.Items = append(packed.Items, &Listed{client.ObjectKeyFromObject(&o), p})
				} else {
					packed.Items = append(packed.Items, o.DeepCopy())
				}
			}
			return packed, nil
		},
		WatchFuncWithContext: lw.WatchWithContext,
	}}
}

type packedList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []runtime.Object
}

func (l *packedList) DeepCopyObject() runtime.Object { return l }

func labelOf(o client.Object) []string {
	if value, ok := o.GetLabels()["l"]; ok {
		return []string{value}
	}
	return nil
}

func described(objects []client.Object) (all []string) {
	for _, o := range objects {
		all = append(all, describe(o))
	}
	slices.Sort(all)
	return all
}

// compare plays a script, of two bytes a step, to a shared informer and to a Store.
func compare(t *testing.T, script []byte) {
	synctest.Test(t, func(t *testing.T) {
		rigs := []*rig{shared(), own()}
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		started, handlers := false, 1
		for _, r := range rigs {
			r.attach(t, 0)
		}
		for ; len(script) >= 2; script = script[2:] {
			step, which := steps[int(script[0])%len(steps)], int(script[1])%5
			for _, r := range rigs {
				if step == "handler" {
					r.attach(t, handlers)
				} else {
					r.server.do(step, which)
				}
			}
			if step == "handler" {
				handlers++
			}
			if !started && len(script)%3 == 0 { // some find objects there
				started = true
				for _, r := range rigs {
					go r.run(ctx)
				}
			}
			time.Sleep(10 * time.Minute) // longer than any pause before a list
			same(t, fmt.Sprintf("%s %d", step, which), rigs[0], rigs[1])
			if t.Failed() {
				return
			}
		}
	})
}

func same(t *testing.T, step string, want, got *rig) {
	t.Helper()
	for what, of := range map[string]func(*rig) []string{
		"shown": (*rig).shown,
		"held":  func(r *rig) []string { return described(r.held()) },
		"found": func(r *rig) []string { return described(r.labelled("1")) },
		"state": func(r *rig) []string {
			return []string{fmt.Sprint(r.informer.HasSynced(), r.informer.IsStopped(), r.size(), r.server.lists.Load())}
		},
	} {
		if diff := gocmp.Diff(of(want), of(got)); diff != "" {
			t.Errorf("after %q, %s (-shared informer +store):\n%s", step, what, diff)
		}
	}
}

func TestAStoreShowsAndHoldsWhatASharedInformerDoes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for range 60 {
		script := make([]byte, 2*(10+random.IntN(40)))
		for i := range script {
			script[i] = byte(random.Uint32())
		}
		if compare(t, script); t.Failed() {
			t.Fatalf("script %v", script)
		}
	}
}

func FuzzAStoreShowsAndHoldsWhatASharedInformerDoes(f *testing.F) {
	for _, script := range scenarios {
		f.Add(play(script))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 100 {
			script = script[:100]
		}
		compare(t, script)
	})
}

// scenarios are those that anybody thinks of first.
var scenarios = map[string][]string{
	"a life":                          {"set", "set", "delete", "set"},
	"the watch is closed":             {"set", "close", "set", "close", "close", "delete"},
	"a deletion is missed":            {"set", "set", "delete unseen", "expire", "set"},
	"a change is missed":              {"set", "set unseen", "expire", "set"},
	"history is gone":                 {"set", "expire", "expire", "set"},
	"bookmarks":                       {"set", "bookmark", "close", "bookmark", "expire", "set"},
	"an event comes late":             {"set", "set", "stale", "set", "stale", "delete"},
	"a deletion of what was not seen": {"set", "delete what isn't there", "set"},
	"handlers come late":              {"set", "set", "handler", "set", "delete unseen", "handler", "delete", "handler"},
	"lists fail":                      {"fail", "set", "fail", "expire", "set", "handler"},
}

func play(script []string) (bytes []byte) {
	for _, step := range script {
		for which := range byte(2) {
			bytes = append(bytes, byte(slices.Index(steps, step)), which)
		}
	}
	return bytes
}

func TestAStoreBehavesAsASharedInformer(t *testing.T) {
	for name, script := range scenarios {
		t.Run(name, func(t *testing.T) { compare(t, play(script)) })
	}
}

func TestReadersGetCopiesOfWhatTheyAskFor(t *testing.T) {
	s := New(configMaps)
	must.Succeed(t, s.IndexField("l", labelOf))
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.List(impatient, &corev1.ConfigMapList{}); err == nil {
		t.Error("a cache that isn't synced can be read")
	}
	var all []any
	for i := range 6 {
		o := &corev1.ConfigMap{Data: map[string]string{"k": "v"}}
		o.Namespace, o.Name, o.Labels = fmt.Sprint("n", i%2), fmt.Sprint("o", i), map[string]string{"l": fmt.Sprint(i % 3)}
		all = append(all, o)
	}
	must.Succeed(t, (filler{s}).Replace(all, "1"))
	for name, c := range map[string]struct {
		opts []client.ListOption
		want string
	}{
		"all":         {nil, "[o0 o1 o2 o3 o4 o5]"},
		"a namespace": {[]client.ListOption{client.InNamespace("n1")}, "[o1 o3 o5]"},
		"by label":    {[]client.ListOption{client.MatchingLabels{"l": "0"}}, "[o0 o3]"},
		"by field":    {[]client.ListOption{client.MatchingFields{"l": "2"}}, "[o2 o5]"},
		"by all of these": {[]client.ListOption{client.MatchingFields{"l": "2"}, client.InNamespace("n1"),
			client.MatchingLabels{"l": "2"}}, "[o5]"},
		"none": {[]client.ListOption{client.MatchingLabelsSelector{Selector: labels.Nothing()}}, "[]"},
	} {
		list := &corev1.ConfigMapList{}
		err := s.List(t.Context(), list, c.opts...)
		names := []string{}
		for _, o := range list.Items {
			names = append(names, o.Name)
		}
		slices.Sort(names)
		if got := fmt.Sprint(names); err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, c.want)
		}
	}
	if list := (&corev1.ConfigMapList{}); s.List(t.Context(), list, client.Limit(2)) != nil || len(list.Items) != 2 {
		t.Errorf("%d objects, want 2", len(list.Items))
	}
	for name, refused := range map[string]client.ListOption{
		"no index":     client.MatchingFields{"other": "x"},
		"not equal":    client.MatchingFieldsSelector{Selector: fields.OneTermNotEqualSelector("l", "1")},
		"no field":     client.MatchingFieldsSelector{Selector: fields.Everything()},
		"another page": client.Continue("x"),
	} {
		if err := s.List(t.Context(), &corev1.ConfigMapList{}, refused); err == nil {
			t.Errorf("%s: no error", name)
		}
	}

	key := client.ObjectKey{Namespace: "n0", Name: "o0"}
	var copied, itself corev1.ConfigMap
	if err := s.Get(t.Context(), key, &copied); err != nil || copied.Kind != "ConfigMap" {
		t.Fatal(err, copied.Kind)
	}
	copied.Data["k"] = "changed"
	if err := s.Get(t.Context(), key, &itself, client.UnsafeDisableDeepCopy); err != nil || itself.Data["k"] != "v" {
		t.Fatal(err, itself.Data)
	}
	if itself.Data["k"] = "changed"; all[0].(*corev1.ConfigMap).Data["k"] != "changed" {
		t.Error("the object itself was asked for")
	}
	if err := s.Get(t.Context(), client.ObjectKey{Namespace: "n0", Name: "o1"},
		&copied); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("an object that isn't there: %v", err)
	}
	if err := s.Get(t.Context(), key, &corev1.Secret{}); err == nil {
		t.Error("a ConfigMap was copied to a Secret")
	}
}

// As controller-runtime's caches: programs pass on the namespace of what they reconcile.
func TestAClusterScopedKindIsListedInAnyNamespace(t *testing.T) {
	s := New(Config{Kind: corev1.SchemeGroupVersion.WithKind("Node")})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	must.Succeed(t, filler{s}.Replace([]any{node}, "1"))
	nodes := &corev1.NodeList{}
	if err := s.List(t.Context(), nodes, client.InNamespace("shop")); err != nil || len(nodes.Items) != 1 {
		t.Errorf("%d Nodes, %v", len(nodes.Items), err)
	}
}

// A handler may read what it is told of, the first list too; it has all of that behind it only then.
func TestAHandlerMayReadTheStore(t *testing.T) {
	s := New(configMaps)
	var handle toolscache.ResourceEventHandlerRegistration
	var err error
	handle, err = s.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		if err := s.Get(t.Context(), client.ObjectKeyFromObject(obj.(client.Object)), &corev1.ConfigMap{}); err != nil {
			t.Error(err)
		}
		if !s.HasSynced() || handle.HasSynced() {
			t.Errorf("while it is shown the list: the store is synced: %v, the handler: %v", s.HasSynced(), handle.HasSynced())
		}
	}})
	if err != nil || handle.HasSynced() {
		t.Fatal(err)
	}
	if err := (filler{s}).Replace([]any{named("o")}, "1"); err != nil || !handle.HasSynced() {
		t.Error(err)
	}
}

// An index that is added late has what there is.
func TestAnIndexMayBeAddedLate(t *testing.T) {
	s := New(configMaps)
	o := named("o")
	o.Labels = map[string]string{"l": "1"}
	must.Succeed(t, (filler{s}).Replace([]any{o}, "1"))
	must.Succeed(t, s.IndexField("l", labelOf))
	if err := s.IndexField("l", labelOf); err == nil {
		t.Error("an index was replaced")
	}
	if found, err := s.having(fields.OneTermEqualSelector("l", "1"), ""); err != nil || len(found) != 1 {
		t.Error(found, err)
	}
}

func TestAHandlerThatWasRemovedIsShownNothing(t *testing.T) {
	s := New(configMaps)
	seen := 0
	handle, err := s.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { seen++ },
		DeleteFunc: func(any) { seen++ }})
	must.Succeed(t, err)
	o := named("o")
	if err := (filler{s}).Add(o); err != nil || seen != 1 {
		t.Fatal(err, seen)
	}
	for range 2 {
		must.Succeed(t, s.RemoveEventHandler(handle))
	}
	if err := New(configMaps).RemoveEventHandler(handle); err == nil {
		t.Error("another informer removed it")
	}
	if err := (filler{s}).Delete(o); err != nil || seen != 1 {
		t.Error(err, seen)
	}
}
