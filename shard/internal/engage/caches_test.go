package engage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/tenure-dev/tenure/shard/internal/informer"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/bubble"
	"github.com/tenure-dev/tenure/test/must"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil // one of them sleeps by a clock that bubbles don't share
	os.Exit(m.Run())
}

// serveTwo is an API server with ConfigMaps and Secrets: of each, "listed" is there, and "watched" comes. It answers in
// the form that it is asked for.
func serveTwo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/api/v1" {
		fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[
			{"name":"configmaps","kind":"ConfigMap","namespaced":true},{"name":"secrets","kind":"Secret","namespaced":true}]}`)
		return
	}
	kind, found := map[string]string{"/api/v1/configmaps": "ConfigMap", "/api/v1/secrets": "Secret"}[r.URL.Path]
	if !found {
		http.NotFound(w, r)
		return
	}
	version, list := "v1", kind+"List"
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		version, kind, list = "meta.k8s.io/v1", "PartialObjectMetadata", "PartialObjectMetadataList"
	}
	object := func(name, version, kind string) string {
		return fmt.Sprintf(
			`{"kind":%q,"apiVersion":%q,"metadata":{"name":%q,"namespace":"n","uid":"u-%s","resourceVersion":"7","managedFields":[{"manager":"m"}]}}`,
			kind, version, name, name)
	}
	if r.URL.Query().Get("watch") == "" {
		fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"7"},"items":[%s]}`, list, version,
			object("listed", version, kind))
		return
	}
	fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, object("watched", version, kind))
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// openPart opens a shard of cluster west. Nothing is started.
func openPart(t *testing.T, prefix keyspace.Prefix, kinds ...Kind) *Cluster {
	t.Helper()
	return openAt(t, serveTwo, prefix, kinds...)
}

// openAt opens one over a server.
func openAt(t *testing.T, server http.HandlerFunc, prefix keyspace.Prefix, kinds ...Kind) *Cluster {
	t.Helper()
	return openWith(t, server, prefix, Options{Kinds: kinds})
}

func openWith(t *testing.T, server http.HandlerFunc, prefix keyspace.Prefix, opts Options) *Cluster {
	t.Helper()
	s := httptest.NewServer(server)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	real, err := cluster.New(&rest.Config{Host: s.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	must.Succeed(t, err)
	connection, err := Connect(real)
	must.Succeed(t, err)
	id := keyspace.ShardID{Cluster: "west", Prefix: prefix}
	gate := NewGate(t.Context(), id, "test", "me", func() bool { return true })
	c, err := Open(connection, gate, &Traffic{}, opts)
	must.Succeed(t, err)
	return c
}

// metadataOf is an empty object of a core kind, by its metadata only.
func metadataOf(kind string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return o
}

// openTwo runs a shard of ConfigMaps, and of Secrets' metadata, which is the whole cluster.
func openTwo(t *testing.T) *Cluster {
	t.Helper()
	c := openPart(t, keyspace.Prefix{}, Kind{Object: &corev1.ConfigMap{}}, Kind{Object: metadataOf("Secret")})
	ctx := startCluster(t, c)
	warm, over := context.WithTimeout(ctx, time.Minute)
	defer over()
	must.Succeed(t, c.Warm(warm))
	return c
}

// startCluster starts a shard, until the test ends.
func startCluster(t *testing.T, c *Cluster) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return ctx
}

func TestAKindIsNamedThatIsNotSyncedAndWhy(t *testing.T) {
	refuses := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/secrets" {
			serveTwo(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"not you","code":403}`)
	}
	for what, c := range map[string]struct {
		optional bool
		want     string
	}{
		"refused":               {false, "informer of Secret isn't synced: not you"},
		"refused, as it may be": {true, "<nil>"},
	} {
		t.Run(what, func(t *testing.T) {
			part := openAt(t, refuses, keyspace.Prefix{}, Kind{Object: &corev1.ConfigMap{}},
				Kind{Object: metadataOf("Secret"), Optional: c.optional})
			first := "informer of ConfigMap isn't synced: its first list isn't in yet; " +
				"informer of Secret isn't synced: its first list isn't in yet"
			if got := fmt.Sprint(part.Unsynced(true)); got != first || part.Unsynced(false) != nil {
				t.Errorf("before the first lists: %s, %v", got, part.Unsynced(false))
			}
			startCluster(t, part)
			began := time.Now()
			for fmt.Sprint(part.Unsynced(true)) != c.want {
				if time.Since(began) > forbiddenPause/2 {
					t.Fatalf("got %v, want %s", part.Unsynced(true), c.want)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
}

// A kind's CRD may be deleted, or the right to it be taken away, while shards are served.
func TestAKindIsNamedWhoseCacheIsNotKeptUpToDateAnyMore(t *testing.T) {
	pods := corev1.Resource("pods")
	missing, busy := apierrors.NewNotFound(pods, ""), apierrors.NewTooManyRequests("later", 1)
	forbidden := apierrors.NewForbidden(pods, "", errors.New("not you"))
	for what, c := range map[string]struct {
		lists, watches error
		ends           time.Duration // of that; it began after a minute
		optional       bool
		behind         bool
	}{
		"its CRD is deleted":                {missing, missing, time.Hour, false, true},
		"it may not be listed or watched":   {forbidden, forbidden, time.Hour, false, true},
		"it may be listed, and not watched": {nil, forbidden, time.Hour, false, true},
		"watches are too much":              {nil, busy, time.Hour, false, true},
		"for a moment":                      {missing, missing, 5 * time.Second, false, false},
		"it need not be allowed":            {forbidden, forbidden, time.Hour, true, false},
		"watches end again and again":       {nil, nil, time.Hour, false, false},
	} {
		bubble.Run(t, what, func(t *testing.T) {
			began := time.Now().Add(time.Minute)
			now := func(fails error) error {
				if since := time.Since(began); since < 0 || since >= c.ends {
					return nil
				}
				return fails
			}
			f := everything()
			f.optional = c.optional
			i := &informing{Store: informer.New(informer.Config{Kind: corev1.SchemeGroupVersion.WithKind("Pod")}), filter: f,
				example: &corev1.Pod{}, from: f.wrap(&toolscache.ListWatch{
					ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
						return emptyList(), now(c.lists)
					},
					WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
						w := watch.NewFake()
						time.AfterFunc(2*time.Second, w.Stop)
						return w, now(c.watches)
					},
				})}
			part := &Cluster{stores: []*informing{i}}
			go i.Run(t.Context(), i.from, i.example)
			look := func(after time.Duration, from time.Time, behind bool) {
				t.Helper()
				time.Sleep(time.Until(began.Add(after)))
				why := part.Behind(from, 10*time.Second)
				if (why != nil) != behind || behind && !strings.HasPrefix(why.Error(), "informer of Pod isn't kept up to date: ") {
					t.Errorf("%v after it began: %v; is it behind? %t", after, why, behind)
				}
			}
			look(-time.Second, time.Time{}, false)
			look(10*time.Second, time.Time{}, false)
			look(25*time.Second, time.Time{}, c.behind)
			look(30*time.Minute, began.Add(30*time.Minute-10*time.Second), false) // since then it has been less than 10 s
			look(time.Hour-time.Second, began, c.behind)
			look(time.Hour+10*time.Second, time.Time{}, false)
		})
	}
}

// shown collects what an informer shows until both objects have come.
func shown(t *testing.T, from cache.Informer) []client.Object {
	t.Helper()
	came := make(chan client.Object, 10)
	_, err := from.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { came <- obj.(client.Object) },
	})
	must.Succeed(t, err)
	var all []client.Object
	for len(all) < 2 {
		select {
		case o := <-came:
			all = append(all, o)
		case <-time.After(time.Minute):
			t.Fatalf("only %d objects came", len(all))
		}
	}
	slices.SortFunc(all, func(a, b client.Object) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all
}

func TestKindsAreCachedInTheFormThatIsAskedFor(t *testing.T) {
	c := openTwo(t)
	untyped := &unstructured.Unstructured{}
	untyped.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	for name, example := range map[string]client.Object{"declared": &corev1.ConfigMap{},
		"metadata": metadataOf("Secret"), "not declared": untyped} {
		t.Run(name, func(t *testing.T) {
			i, err := c.GetCache().GetInformer(t.Context(), example)
			must.Succeed(t, err)
			for i, o := range shown(t, i) {
				want := []string{"listed", "watched"}[i]
				if o.GetName() != want || fmt.Sprintf("%T", o) != fmt.Sprintf("%T", example) || o.GetManagedFields() != nil {
					t.Errorf("a %T %s came, want the %T %s without managed fields", o, o.GetName(), example, want)
				}
				if kind := o.GetObjectKind().GroupVersionKind(); name != "declared" &&
					kind != example.GetObjectKind().GroupVersionKind() {
					t.Errorf("%s is said to be %s", o.GetName(), kind)
				}
			}
			read := example.DeepCopyObject().(client.Object)
			if err := c.GetCache().Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "watched"}, read); err != nil ||
				read.GetUID() != "u-watched" {
				t.Errorf("read %q: %v", read.GetUID(), err)
			}
		})
	}
	if !c.GetCache().WaitForCacheSync(t.Context()) {
		t.Error("not synced")
	}
	if n := c.Objects(); n != 4 {
		t.Errorf("%d objects of declared kinds, want 4", n)
	}
}

func TestAnInformerThatWasRemovedStops(t *testing.T) {
	c := openTwo(t)
	i, err := c.GetCache().GetInformerForKind(t.Context(), corev1.SchemeGroupVersion.WithKind("Secret"))
	must.Succeed(t, err)
	shown(t, i)
	must.Succeed(t, c.GetCache().RemoveInformer(t.Context(), &corev1.Secret{}))
	must.Until(t, "the informer is stopped", i.IsStopped)
	if _, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{}); err == nil {
		t.Error("it takes a handler although it has stopped")
	}
	if _, err := c.GetCache().GetInformer(t.Context(), &corev1.Pod{}, cache.BlockUntilSynced(false)); err == nil {
		t.Error("there is an informer of a kind that the cluster doesn't serve")
	}
}

// It would hold an arbitrary part of them, and nothing would say so.
func TestAPartOfAClusterHasNoCacheOfAKindThatIsNotDeclared(t *testing.T) {
	half := keyspace.Partition(1)[0]
	knowsNoField := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("fieldSelector") != "" {
			http.Error(w, "field label not supported", http.StatusBadRequest)
			return
		}
		serveTwo(w, r)
	}
	none := func(client.Object) []string { return nil }
	for what, c := range map[string]struct {
		of      keyspace.Prefix
		kind    client.Object
		refused bool
	}{
		"a part, declared in another form": {half, metadataOf("ConfigMap"), false},
		"a part, not declared":             {half, &corev1.Secret{}, true},
		"the whole, not declared":          {keyspace.Prefix{}, &corev1.Secret{}, false},
	} {
		t.Run(what, func(t *testing.T) {
			part := openWith(t, knowsNoField, c.of, Options{Kinds: []Kind{{Object: &corev1.ConfigMap{}}},
				Indexes: []Index{{c.kind, "name", none}}})
			if fmt.Sprint(part.Unindexed) != "[name of Secret]" && c.refused || len(part.Unindexed) > 0 && !c.refused {
				t.Errorf("it lacks indexes: %q", part.Unindexed)
			}
			_, informs := part.GetCache().GetInformer(t.Context(), c.kind, cache.BlockUntilSynced(false))
			for how, err := range map[string]error{
				"an informer": informs,
				"an index":    part.GetFieldIndexer().IndexField(t.Context(), c.kind, "data", none),
			} {
				if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "Secret in shard west/0: ") {
					t.Errorf("%s: %v; is it to be refused? %t", how, err, c.refused)
				}
			}
			if !c.refused || t.Failed() { // a cache that was made isn't running, and a list would wait for it
				return
			}
			list := &corev1.SecretList{}
			if err := part.GetClient().List(t.Context(), list); err != nil || len(list.Items) != 1 {
				t.Errorf("the client shows %d objects (%v), want the one that the cluster has", len(list.Items), err)
			}
			if err := part.GetClient().List(t.Context(), list, client.MatchingFields{"name": "a"}); err == nil {
				t.Error("a list by an index that isn't there shows nothing, without an error")
			}
		})
	}
}
