package virtual_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/lab/virtual"
	"github.com/tenure-dev/tenure/test/must"
)

// one is a virtual cluster with the admin's client.
type one struct {
	*virtual.Cluster
	client.WithWatch
}

func add(t *testing.T, host *virtual.Host, name string) one {
	t.Helper()
	c, err := host.Add(t.Context(), name)
	must.Succeed(t, err)
	admin, err := client.NewWithWatch(c.RESTConfig(), client.Options{Scheme: lab.Scheme()})
	must.Succeed(t, err)
	return one{c, admin}
}

// fill makes objects of each kind in a cluster, named after it; Pods and Events go as protobuf.
func (c one) fill(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		at := metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%d", c.Name(), i),
			Labels: map[string]string{"odd": fmt.Sprint(i%2 == 1)}}
		pod := &corev1.Pod{ObjectMeta: at, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}}}
		for _, o := range []client.Object{
			&cnatv1alpha1.At{ObjectMeta: at, Spec: cnatv1alpha1.AtSpec{Schedule: "2030-01-02T03:04:05Z", Command: "true"}}, pod,
			&corev1.Event{ObjectMeta: at, Reason: "Test",
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: pod.Name}},
		} {
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatalf("%T in %s: %v", o, c.Name(), err)
			}
			if o.GetNamespace() != "default" {
				t.Errorf("%T in %s came back in namespace %s", o, c.Name(), o.GetNamespace())
			}
		}
	}
}

// names lists a kind by namespace/name.
func (c one) names(t *testing.T, list client.ObjectList, options ...client.ListOption) []string {
	t.Helper()
	if err := c.List(t.Context(), list, options...); err != nil {
		t.Fatalf("listing %T in %s: %v", list, c.Name(), err)
	}
	var names []string
	err := meta.EachListItem(list, func(o runtime.Object) error {
		object, err := meta.Accessor(o)
		if err == nil {
			names = append(names, object.GetNamespace()+"/"+object.GetName())
		}
		return err
	})
	must.Succeed(t, err)
	slices.Sort(names)
	return names
}

func (c one) made(from, to, step int) (names []string) {
	for i := from; i < to; i += step {
		names = append(names, fmt.Sprintf("default/%s-%d", c.Name(), i))
	}
	return names
}

func TestVirtualClustersOfOneAPIServerDoNotSeeEachOther(t *testing.T) {
	// no scheduler, which makes Events of its own
	plane := labtest.Planes(t, localplane.ClusterConfig{Name: "host"}).Cluster("host")
	must.Succeed(t, lab.InstallWorkload(t.Context(), plane))
	host, err := virtual.NewHost(plane.RESTConfig())
	must.Succeed(t, err)
	t.Cleanup(host.Close)
	const objects = 7
	// b's name begins with a's: the dash between cluster and namespace keeps them apart only if nobody mixes them up.
	a, b, c := add(t, host, "a"), add(t, host, "ab"), add(t, host, "c")
	all := []one{a, b, c}
	for _, v := range all {
		v.fill(t, objects)
	}
	if a.UID() == b.UID() || b.UID() == c.UID() || a.UID() == c.UID() {
		t.Errorf("UIDs %s, %s, %s aren't different", a.UID(), b.UID(), c.UID())
	}
	for _, v := range all {
		t.Run("alone in "+v.Name(), func(t *testing.T) { alone(t, v, objects) })
		t.Run("selectors in "+v.Name(), func(t *testing.T) { selectors(t, v, objects) })
		t.Run("pages in "+v.Name(), func(t *testing.T) { pages(t, v, objects) })
		t.Run("writes in "+v.Name(), func(t *testing.T) { writes(t, v) })
		t.Run("shards in "+v.Name(), func(t *testing.T) { shards(t, v, objects) })
	}
	t.Run("watches", func(t *testing.T) { watches(t, all) })
	t.Run("another namespace", func(t *testing.T) {
		if err := lab.AddNamespace(t.Context(), a, "shop"); !apierrors.IsForbidden(err) ||
			!strings.Contains(err.Error(), "has one namespace, default") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a stranger", func(t *testing.T) {
		config := a.RESTConfig()
		config.BearerToken = "made up"
		stranger, err := client.New(config, client.Options{Scheme: lab.Scheme()})
		if err == nil {
			err = stranger.List(t.Context(), &corev1.PodList{})
		}
		if !apierrors.IsUnauthorized(err) {
			t.Errorf("got %v, want that it is unauthorized", err)
		}
	})
	if _, err := host.Add(t.Context(), "No Name"); err == nil || !strings.Contains(err.Error(), `"No Name"`) {
		t.Errorf("a name that can't be one: %v", err)
	}
}

func alone(t *testing.T, v one, objects int) {
	want := v.made(0, objects, 1)
	for _, list := range []client.ObjectList{&cnatv1alpha1.AtList{}, &corev1.PodList{}, &corev1.EventList{}} {
		for _, options := range [][]client.ListOption{nil, {client.InNamespace("default")}} {
			expect.Equal(t, fmt.Sprintf("%T, %d options", list, len(options)), want, v.names(t, list, options...))
		}
	}
	events := &corev1.EventList{}
	if err := v.List(t.Context(), events); err != nil || events.Items[0].InvolvedObject.Namespace != "default" {
		t.Errorf("an event is about namespace %q (%v)", events.Items[0].InvolvedObject.Namespace, err)
	}
	system := &corev1.Namespace{}
	if err := v.Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil ||
		string(system.UID) != v.UID() {
		t.Errorf("kube-system is %s with UID %s (%v), want %s", system.Name, system.UID, err, v.UID())
	}
	expect.Equal(t, "namespaces", []string{"/default", "/kube-system"}, v.names(t, &corev1.NamespaceList{}))
}

func selectors(t *testing.T, v one, objects int) {
	for name, c := range map[string]struct {
		option client.ListOption
		want   []string
	}{
		"label":           {client.MatchingLabels{"odd": "true"}, v.made(1, objects, 2)},
		"name":            {client.MatchingFields{"metadata.name": v.Name() + "-3"}, v.made(3, 4, 1)},
		"namespace":       {client.MatchingFields{"metadata.namespace": "default"}, v.made(0, objects, 1)},
		"other namespace": {client.MatchingFields{"metadata.namespace": "kube-system"}, nil},
	} {
		expect.Equal(t, "by "+name, c.want, v.names(t, &corev1.PodList{}, c.option))
	}
	about := client.MatchingFields{"involvedObject.namespace": "default", "involvedObject.name": v.Name() + "-3"}
	expect.Equal(t, "events about an object", v.made(3, 4, 1), v.names(t, &corev1.EventList{}, about))
	expect.Equal(t, "a namespace by its name", []string{"/default"},
		v.names(t, &corev1.NamespaceList{}, client.MatchingFields{"metadata.name": "default"}))
}

func pages(t *testing.T, v one, objects int) {
	var all []string
	token := ""
	for page := 0; page == 0 || token != ""; page++ {
		list := &cnatv1alpha1.AtList{}
		all = append(all, v.names(t, list, client.Limit(2), client.Continue(token))...)
		token = list.Continue
	}
	expect.Equal(t, "all pages", v.made(0, objects, 1), all)
}

func writes(t *testing.T, v one) {
	ctx := t.Context()
	applied := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		Data: map[string]string{"a": "1"}}
	applied.Namespace, applied.Name = "default", "applied"
	for range 2 {
		applied.ManagedFields, applied.ResourceVersion, applied.UID = nil, "", ""
		//nolint:staticcheck
		if err := v.Patch(ctx, applied, client.Apply, client.FieldOwner("test")); err != nil ||
			applied.Namespace != "default" {
			t.Fatalf("applying: %v, in namespace %s", err, applied.Namespace)
		}
	}
	for _, patch := range []client.Patch{
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"namespace":"default","labels":{"merge":"1"}}}`)),
		client.RawPatch(types.StrategicMergePatchType, []byte(`{"data":{"b":"2"}}`)),
		client.RawPatch(types.JSONPatchType, []byte(`[{"op":"add","path":"/data/c","value":"3"}]`)),
	} {
		if err := v.Patch(ctx, applied, patch); err != nil {
			t.Fatalf("%s: %v", patch.Type(), err)
		}
	}
	applied.Data["d"] = "4"
	must.Succeed(t, v.Update(ctx, applied))
	got := &corev1.ConfigMap{}
	if err := v.Get(ctx, client.ObjectKeyFromObject(applied), got); err != nil || len(got.Data) != 4 ||
		got.Labels["merge"] != "1" {
		t.Errorf("%v with labels %v, %v", got.Data, got.Labels, err)
	}
	precondition := client.Preconditions{UID: &got.UID}
	if err := v.Delete(ctx, got, precondition); err != nil {
		t.Error(err)
	}
	err := v.Get(ctx, client.ObjectKeyFromObject(applied), got)
	if !apierrors.IsNotFound(err) || strings.Contains(err.Error(), v.Name()+"-default") {
		t.Errorf("after its deletion: %v", err)
	}
}

// shards finds that each object is in one half. Were the selector ignored, each would be found twice.
func shards(t *testing.T, v one, objects int) {
	var all []string
	for _, half := range []string{"'0x0000000000000000', '0x8000000000000000'",
		"'0x8000000000000000', '0x10000000000000000'"} {
		some := v.names(t, &cnatv1alpha1.AtList{}, &client.ListOptions{
			Raw: &metav1.ListOptions{ShardSelector: "shardRange(object.metadata.uid, " + half + ")"},
		})
		all = append(all, some...)
	}
	slices.Sort(all)
	expect.Equal(t, "both halves", v.made(0, objects, 1), all)
}

// watches follows all Pods of each cluster from what is there on, while Pods are added in all of them, and its
// Namespaces.
func watches(t *testing.T, all []one) {
	ctx, cancel := context.WithTimeout(t.Context(), labtest.Patience)
	defer cancel()
	streams := map[string]watch.Interface{}
	for _, v := range all {
		streams[v.Name()] = v.follow(ctx, t, &corev1.PodList{})
	}
	for _, v := range all {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "last"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}}}
		must.Succeed(t, v.Create(ctx, pod))
	}
	for _, v := range all {
		want := append(v.made(0, 7, 1), "default/last")
		slices.Sort(want)
		expect.Equal(t, v.Name(), want, v.seen(t, streams[v.Name()], "default/last"))
		namespaces := v.follow(ctx, t, &corev1.NamespaceList{})
		expect.Equal(t, v.Name()+": namespaces", []string{"/default", "/kube-system"},
			v.seen(t, namespaces, "/kube-system"))
	}
}

// follow watches a kind from what is there on.
func (c one) follow(ctx context.Context, t *testing.T, list client.ObjectList) watch.Interface {
	t.Helper()
	yes := true
	w, err := c.Watch(ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{
		SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}})
	must.Succeed(t, err)
	t.Cleanup(w.Stop)
	return w
}

// seen are the names of all objects until a watch has shown what was there, and the last one.
func (c one) seen(t *testing.T, w watch.Interface, last string) []string {
	t.Helper()
	seen, initial := map[string]bool{}, false
	for !seen[last] || !initial {
		e, ok := <-w.ResultChan()
		if !ok {
			t.Fatalf("%s: the watch ended; seen %v, initial events over: %v", c.Name(), slices.Sorted(maps.Keys(seen)), initial)
		}
		object, ok := e.Object.(client.Object)
		switch {
		case !ok:
			t.Fatalf("%s: %v", c.Name(), e.Object)
		case e.Type == watch.Bookmark:
			initial = initial || object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
		default:
			seen[object.GetNamespace()+"/"+object.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// Replicas serve virtual clusters like others. The plane has a scheduler and nodes, so Pods run to their end.
func TestReplicasServeVirtualClusters(t *testing.T) {
	f := labtest.Fleet(t, lab.Options{Workloads: []string{"host"}, Untold: true, ShardsPerCluster: 2})
	clusters := map[string]client.Client{}
	for _, name := range []string{"va", "vb", "vc"} {
		v, err := f.AddVirtual(t.Context(), "host", name)
		must.Succeed(t, err)
		clusters[name], err = client.New(v.RESTConfig(), client.Options{Scheme: lab.Scheme()})
		must.Succeed(t, err)
	}
	labtest.Replicas(t, f, "r1", "r2")
	labtest.Settle(t, f, labtest.Patience)
	const ats = 10
	for name, c := range clusters {
		labtest.CreateAts(t, c, name, "at", ats, func(int) time.Time { return time.Now() })
	}
	for name, c := range clusters {
		labtest.Done(t, c, ats, labtest.Patience)
		pods := &corev1.PodList{}
		if err := c.List(t.Context(), pods); err != nil || len(pods.Items) != ats {
			t.Errorf("%s: %d Pods for %d Ats (%v)", name, len(pods.Items), ats, err)
		}
	}
}
