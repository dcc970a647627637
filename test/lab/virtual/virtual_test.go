package virtual_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
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

func add(t *testing.T, host *virtual.Host, name, only string) one {
	t.Helper()
	c, err := host.Add(t.Context(), name, only)
	must.Succeed(t, err)
	admin, err := client.NewWithWatch(c.RESTConfig(), client.Options{Scheme: lab.Scheme()})
	must.Succeed(t, err)
	return one{c, admin}
}

// fill makes objects of each kind in a cluster, named after it; Pods and Events go as protobuf.
func (c one) fill(t *testing.T, namespace string, n int) {
	t.Helper()
	for i := range n {
		at := metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", c.Name(), i),
			Labels: map[string]string{"odd": fmt.Sprint(i%2 == 1)}}
		pod := &corev1.Pod{ObjectMeta: at, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}}}
		for _, o := range []client.Object{
			&cnatv1alpha1.At{ObjectMeta: at, Spec: cnatv1alpha1.AtSpec{Schedule: "2030-01-02T03:04:05Z", Command: "true"}}, pod,
			&corev1.Event{ObjectMeta: at, Reason: "Test",
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: pod.Name}},
		} {
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatalf("%T in %s: %v", o, c.Name(), err)
			}
			if o.GetNamespace() != namespace {
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

func (c one) made(namespace string, from, to, step int) (names []string) {
	for i := from; i < to; i += step {
		names = append(names, fmt.Sprintf("%s/%s-%d", namespace, c.Name(), i))
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
	a, b, c := add(t, host, "a", ""), add(t, host, "ab", ""), add(t, host, "c", "default")
	all := []one{a, b, c}
	for _, v := range all {
		v.fill(t, "default", objects)
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
	t.Run("namespaces", func(t *testing.T) { namespaces(t, a, b, c) })
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
	if _, err := host.Add(t.Context(), "No Name", ""); err == nil || !strings.Contains(err.Error(), `"No Name"`) {
		t.Errorf("a name that can't be one: %v", err)
	}
}

func alone(t *testing.T, v one, objects int) {
	want := v.made("default", 0, objects, 1)
	for _, list := range []client.ObjectList{&cnatv1alpha1.AtList{}, &corev1.PodList{}, &corev1.EventList{}} {
		for _, options := range [][]client.ListOption{nil, {client.InNamespace("default")}} {
			if diff := cmp.Diff(want, v.names(t, list, options...)); diff != "" {
				t.Errorf("%T, %d options (-want +got):\n%s", list, len(options), diff)
			}
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
	if diff := cmp.Diff([]string{"/default", "/kube-system"}, v.names(t, &corev1.NamespaceList{})); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
}

func selectors(t *testing.T, v one, objects int) {
	for name, c := range map[string]struct {
		option client.ListOption
		want   []string
	}{
		"label":           {client.MatchingLabels{"odd": "true"}, v.made("default", 1, objects, 2)},
		"name":            {client.MatchingFields{"metadata.name": v.Name() + "-3"}, v.made("default", 3, 4, 1)},
		"namespace":       {client.MatchingFields{"metadata.namespace": "default"}, v.made("default", 0, objects, 1)},
		"other namespace": {client.MatchingFields{"metadata.namespace": "kube-system"}, nil},
	} {
		if diff := cmp.Diff(c.want, v.names(t, &corev1.PodList{}, c.option)); diff != "" {
			t.Errorf("by %s (-want +got):\n%s", name, diff)
		}
	}
	about := client.MatchingFields{"involvedObject.namespace": "default", "involvedObject.name": v.Name() + "-3"}
	if diff := cmp.Diff(v.made("default", 3, 4, 1), v.names(t, &corev1.EventList{}, about)); diff != "" {
		t.Errorf("events about an object (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"/default"}, v.names(t, &corev1.NamespaceList{},
		client.MatchingFields{"metadata.name": "default"})); diff != "" {
		t.Errorf("a namespace by its name (-want +got):\n%s", diff)
	}
}

func pages(t *testing.T, v one, objects int) {
	var all []string
	token := ""
	for page := 0; page == 0 || token != ""; page++ {
		list := &cnatv1alpha1.AtList{}
		all = append(all, v.names(t, list, client.Limit(2), client.Continue(token))...)
		token = list.Continue
	}
	if diff := cmp.Diff(v.made("default", 0, objects, 1), all); diff != "" {
		t.Errorf("all pages (-want +got):\n%s", diff)
	}
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
	if diff := cmp.Diff(v.made("default", 0, objects, 1), all); diff != "" {
		t.Errorf("both halves (-want +got):\n%s", diff)
	}
}

// watches follows all Pods of each cluster from what is there on, while Pods are added in all of them.
func watches(t *testing.T, all []one) {
	ctx, cancel := context.WithTimeout(t.Context(), labtest.Patience)
	defer cancel()
	streams := map[string]watch.Interface{}
	yes := true
	for _, v := range all {
		w, err := v.Watch(ctx, &corev1.PodList{}, &client.ListOptions{Raw: &metav1.ListOptions{
			SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		}})
		must.Succeed(t, err)
		defer w.Stop()
		streams[v.Name()] = w
	}
	for _, v := range all {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "last"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}}}
		must.Succeed(t, v.Create(ctx, pod))
	}
	for _, v := range all {
		seen, initial := map[string]bool{}, false
		for !seen["default/last"] || !initial {
			e, ok := <-streams[v.Name()].ResultChan()
			if !ok {
				t.Fatalf("%s: the watch ended; seen %v, initial events over: %v", v.Name(), slices.Sorted(maps.Keys(seen)), initial)
			}
			pod, ok := e.Object.(*corev1.Pod)
			switch {
			case !ok:
				t.Fatalf("%s: %v", v.Name(), e.Object)
			case e.Type == watch.Bookmark:
				initial = initial || pod.Annotations[metav1.InitialEventsAnnotationKey] == "true"
			default:
				seen[pod.Namespace+"/"+pod.Name] = true
			}
		}
		want := append(v.made("default", 0, 7, 1), "default/last")
		if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(maps.Keys(seen))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", v.Name(), diff)
		}
	}
}

func namespaces(t *testing.T, a, b, c one) {
	for _, v := range []one{a, b} {
		must.Succeed(t, lab.AddNamespace(t.Context(), v, "shop"))
	}
	a.fill(t, "shop", 1)
	if diff := cmp.Diff([]string{"shop/a-0"}, a.names(t, &cnatv1alpha1.AtList{}, client.InNamespace("shop"))); diff != "" {
		t.Errorf("in a's shop (-want +got):\n%s", diff)
	}
	if got := b.names(t, &cnatv1alpha1.AtList{}, client.InNamespace("shop")); len(got) > 0 {
		t.Errorf("in b's shop: %v", got)
	}
	if err := lab.AddNamespace(t.Context(), c, "shop"); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "has one namespace, default") {
		t.Errorf("c: %v", err)
	}
}

// Replicas serve virtual clusters like others. The plane has a scheduler and nodes, so Pods run to their end.
func TestReplicasServeVirtualClusters(t *testing.T) {
	f := labtest.Fleet(t, lab.Options{Workloads: []string{"host"}, Untold: true, ShardsPerCluster: 2})
	clusters := map[string]client.Client{}
	for _, name := range []string{"va", "vb", "vc"} {
		v, err := f.AddVirtual(t.Context(), "host", name)
		must.Succeed(t, err)
		if clusters[name], err = client.New(v.RESTConfig(), client.Options{Scheme: lab.Scheme()}); err != nil {
			t.Fatal(err)
		}
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
