package engage

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"
	"weak"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/shard/internal/informer"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// paged is an API server with so many ConfigMaps, each of a size in bytes.
type paged struct {
	objects int
	size    func(i int) int
	// asked are the limits of the requests, and versions their resourceVersion and its match.
	asked    []int
	versions []string
	// deaf says that limits are ignored, and zipped that answers are compressed.
	deaf, zipped bool
	// forgets are the objects behind which a token has expired when it is used; always, if it never learns.
	forgets []int
	never   bool
}

// expired answers that a token has expired, and which one to go on with.
func (p *paged) expired(w http.ResponseWriter, from int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusGone)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{"continue":"%d!"},"status":"Failure",`+
		`"reason":"Expired","message":"The provided continue parameter is too old","code":410}`, from)
}

func (p *paged) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, _ := strconv.Atoi(q.Get("limit")) // 0 for none
	token, later := strings.CutSuffix(q.Get("continue"), "!")
	from, _ := strconv.Atoi(token)
	p.asked = append(p.asked, limit)
	p.versions = append(p.versions, q.Get("resourceVersion")+q.Get("resourceVersionMatch"))
	if slices.Contains(p.forgets, from) && (!later || p.never) {
		p.expired(w, from)
		return
	}
	version := "7"
	if later {
		version = "9"
	}
	to := min(from+limit, p.objects)
	if p.deaf || limit == 0 {
		to = p.objects
	}
	w.Header().Set("Content-Type", "application/json")
	next := ""
	if to < p.objects {
		next = strconv.Itoa(to)
	}
	out := io.Writer(w)
	if p.zipped {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		out = z
	}
	fmt.Fprintf(out,
		`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":%q,"continue":%q,"remainingItemCount":%d},"items":[`,
		version, next, p.objects-to)
	for i := from; i < to; i++ {
		if i > from {
			fmt.Fprint(out, ",")
		}
		fmt.Fprintf(out, `{"metadata":{"name":"m%d","uid":"uid-%d"},"data":{"d":"%s"}}`, i, i, strings.Repeat("x", p.size(i)))
	}
	fmt.Fprint(out, "]}")
}

// listFrom lists all with a filter, as an informer does.
func listFrom(t *testing.T, server http.Handler, f *filter, opts metav1.ListOptions) (*corev1.ConfigMapList, error) {
	t.Helper()
	s := httptest.NewServer(server)
	defer s.Close()
	codec, err := stream(ofClientGo, corev1.SchemeGroupVersion.WithKind("ConfigMap"), false,
		func() (apiruntime.Object, error) { return &corev1.ConfigMap{}, nil })
	must.Succeed(t, err)
	gate := NewGate(t.Context(), quarter, "test", "me", func() bool { return true })
	config := &rest.Config{Host: s.URL, APIPath: "/api", ContentConfig: rest.ContentConfig{
		GroupVersion: &corev1.SchemeGroupVersion, NegotiatedSerializer: codec,
	}}
	config.Wrap(func(base http.RoundTripper) http.RoundTripper {
		return &fence{gate: gate, base: base, traffic: f.traffic}
	})
	client, err := rest.RESTClientFor(config)
	must.Succeed(t, err)
	inner := listWatch(func(ctx context.Context, opts metav1.ListOptions) (apiruntime.Object, error) { // as in a source
		list := &corev1.ConfigMapList{}
		return list, client.Get().Resource("configmaps").VersionedParams(&opts, clientgoscheme.ParameterCodec).Do(
			ctx).Into(list)
	}, nil)
	lw := toolscache.ToListerWatcherWithContext(f.wrap(inner))
	list, err := lw.ListWithContext(t.Context(), opts)
	if err != nil {
		return nil, err
	}
	all := &corev1.ConfigMapList{ListMeta: list.(*items).ListMeta}
	for _, o := range list.(*items).Items {
		all.Items = append(all.Items, *o.(*corev1.ConfigMap))
	}
	return all, nil
}

func everything() *filter {
	return &filter{traffic: &Traffic{}, keep: func(metav1.Object) bool { return true }}
}

// A list that takes longer than an API server keeps its version would else begin anew without end.
func TestAListGoesOnThoughItsTokensExpire(t *testing.T) {
	small := func(int) int { return 100 }
	server := &paged{objects: 8000, size: small, forgets: []int{128, 5248}}
	list, err := listFrom(t, server, everything(), metav1.ListOptions{ResourceVersion: "0"})
	must.Succeed(t, err)
	names := map[string]bool{}
	for _, o := range list.Items {
		names[o.Name] = true
	}
	if len(list.Items) != 8000 || len(names) != 8000 || list.ResourceVersion != "7" || list.Continue != "" {
		t.Errorf("%d items, %d of them different, at version %s, continued at %q; want 8000, and 7 of the first page",
			len(list.Items), len(names), list.ResourceVersion, list.Continue)
	}
	expect.Equal(t, "limits", []int{128, 1024, 1024, 4096, 4096, 4096}, server.asked)
	for name, server := range map[string]*paged{
		"of a server that says so of each token": {objects: 8000, size: small, forgets: []int{128}, never: true},
		"of which not even the first page comes": {objects: 8000, size: small, forgets: []int{0}},
	} {
		if _, err := listFrom(t, server, everything(), metav1.ListOptions{}); !apierrors.IsResourceExpired(err) {
			t.Errorf("a list %s: %v", name, err)
		}
	}
}

func TestAListIsTakenInPagesOfABoundedSize(t *testing.T) {
	same := func(size int) func(int) int { return func(int) int { return size } }
	for name, c := range map[string]struct {
		server paged
		pages  []int // limits asked for
	}{
		"nothing":         {paged{objects: 0, size: same(0)}, []int{128}},
		"a page":          {paged{objects: 128, size: same(100)}, []int{128}},
		"many small ones": {paged{objects: 8000, size: same(100)}, []int{128, 1024, 4096, 4096}},
		"large ones":      {paged{objects: 300, size: same(32 << 10)}, []int{128, 63, 63, 63}},
		"very large ones": {paged{objects: 5, size: same(3 << 20)}, []int{128, 16, 2, 1, 1, 1}},
		"large ones hide": {paged{objects: 400, size: func(i int) int { return i / 128 * (32 << 10) }},
			[]int{128, 1024, 128, 63, 31, 31, 31}},
		"large ones, compressed": {paged{objects: 5, size: same(3 << 20), zipped: true}, []int{128, 16, 2, 1, 1, 1}},
		"no limit is heeded":     {paged{objects: 300, size: same(32 << 10), deaf: true}, []int{128, 16, 2, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			f := everything()
			list, err := listFrom(t, &c.server, f, metav1.ListOptions{ResourceVersion: "0"})
			must.Succeed(t, err)
			expect.Equal(t, "limits", c.pages, c.server.asked)
			if len(list.Items) != c.server.objects {
				t.Errorf("%d objects, want %d", len(list.Items), c.server.objects)
			}
			for i := range list.Items {
				if got := list.Items[i]; got.Name != fmt.Sprint("m", i) || len(got.Data["d"]) != c.server.size(i) {
					t.Fatalf("object %d is %s with %d bytes", i, got.Name, len(got.Data["d"]))
				}
			}
			if list.Continue != "" || list.RemainingItemCount != nil || list.ResourceVersion != "7" {
				t.Errorf("the list says of itself: %+v", list.ListMeta)
			}
			if n := f.traffic.Kept.Load(); n != uint64(c.server.objects) {
				t.Errorf("%d objects are counted", n)
			}
		})
	}
}

func TestAPagedListIsAsFreshAsWasAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		opts metav1.ListOptions
		want string
	}{
		"whatever is cached":    {metav1.ListOptions{ResourceVersion: "0"}, "1NotOlderThan"},
		"anew":                  {metav1.ListOptions{ResourceVersion: "12"}, ""},
		"the newest":            {metav1.ListOptions{}, ""},
		"the reflector's pages": {metav1.ListOptions{Limit: 500, Continue: "7"}, ""},
		"as it says": {metav1.ListOptions{ResourceVersion: "12",
			ResourceVersionMatch: metav1.ResourceVersionMatchExact}, "12Exact"},
	} {
		t.Run(name, func(t *testing.T) {
			server := &paged{objects: 200, size: func(int) int { return 1 }}
			list, err := listFrom(t, server, everything(), c.opts)
			if err != nil || len(list.Items) != 200 {
				t.Fatal(list, err)
			}
			if want := []string{c.want, ""}; !slices.Equal(server.versions, want) {
				t.Errorf("versions asked for: %q, want %q", server.versions, want)
			}
		})
	}
}

func TestAListThatBreaksOffIsAnError(t *testing.T) {
	const json, anyPage = "application/json", `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{` +
		`"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}}]}`
	for name, c := range map[string]struct {
		code       int
		form, body string
	}{
		"an expired token without another": {http.StatusGone, json,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`},
		"a server error":            {http.StatusInternalServerError, json, ""},
		"a status":                  {http.StatusOK, json, `{"kind":"Status","apiVersion":"v1","status":"Success"}`},
		"an error's status":         {http.StatusOK, json, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500}`},
		"a page without its end":    {http.StatusOK, json, anyPage[:len(anyPage)-2]},
		"a page of a proxy":         {http.StatusOK, "text/html", "<html></html>"},
		"an answer that breaks off": {http.StatusOK, json, anyPage + strings.Repeat(" ", 1000)},
	} {
		t.Run(name, func(t *testing.T) {
			server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("continue") == "" {
					(&paged{objects: 200, size: func(int) int { return 1 }}).ServeHTTP(w, r)
					return
				}
				w.Header().Set("Content-Type", c.form)
				if len(c.body) > 1000 {
					w.Header().Set("Content-Length", strconv.Itoa(len(c.body)+1))
				}
				w.WriteHeader(c.code)
				_, _ = io.WriteString(w, c.body)
			})
			list, err := listFrom(t, server, everything(), metav1.ListOptions{})
			if err == nil {
				t.Errorf("a list of %d of 200 objects is taken for all", len(list.Items))
			}
		})
	}
	f := everything()
	f.transform = func(any) (any, error) { return nil, errors.New("no") }
	_, err := listFrom(t, &paged{objects: 1, size: func(int) int { return 1 }}, f, metav1.ListOptions{})
	if err == nil {
		t.Error("a transform's error is lost")
	}
}

// A cache between a cluster and its clients may answer each request alike.
func TestAPageThatComesAgainAndAgainEndsAList(t *testing.T) {
	asked := 0
	_, err := listFrom(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if asked++; asked > 10 {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprint(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"t"},`+
			`"items":[{"metadata":{"name":"a"}}]}`)
	}), everything(), metav1.ListOptions{})
	if err == nil || asked > 2 {
		t.Errorf("it was asked for %d pages: %v", asked, err)
	}
}

func TestWhatIsNoListFillsNoCache(t *testing.T) {
	const json = "application/json"
	for _, c := range []struct{ form, body string }{
		{json, `{}`}, {json, `null`}, {json, ``}, {json, `{"status":"ok"}`},
		{json, `{"kind":"ConfigMapList","apiVersion":"v1","items":[]}`},
		{json, `{"kind":"ConfigMapList","apiVersion":"v1","items":[{"metadata":{"name":"a"}}]}`},
		{json, `{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{}]}`},
		{json, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"7"}}`},
		{json, `{"kind":"Status","apiVersion":"v1","metadata":{"resourceVersion":"7"},"status":"Success"}`},
		{json, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"rows":[]}`},
		{json, `<html></html>`}, {"", `<html></html>`}, {"text/html; charset=utf-8", `<html></html>`},
		{"application/vnd.kubernetes.protobuf", "k8s\x00"}, {"application/yaml", "kind: ConfigMapList"},
	} {
		list, err := listFrom(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", c.form)
			fmt.Fprint(w, c.body)
		}), everything(), metav1.ListOptions{})
		if err == nil {
			t.Errorf("%s %s is taken for a list of %d", c.form, c.body, len(list.Items))
		}
	}
}

func TestWhatIsKeptOfAPageDoesNotHoldTheRestOfIt(t *testing.T) {
	f := everything()
	f.keep = func(o metav1.Object) bool { return o.GetName() == "mine" }
	dropped := make([]byte, 1<<20)
	gone := weak.Make(&dropped[0])
	list := &corev1.SecretList{Items: []corev1.Secret{
		{ObjectMeta: metav1.ObjectMeta{Name: "mine"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "another's"}, Data: map[string][]byte{"d": dropped}},
	}}
	got, _, err := f.sift(list, nil)
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	kept := slices.Clone(got) // as list does
	list, dropped, got = nil, nil, nil
	runtime.GC()
	if gone.Value() != nil {
		t.Error("what was dropped is in memory still")
	}
	runtime.KeepAlive(kept)
}

// packed is a packed object that was one.
type packed string

func (packed) Unpack() client.Object { return nil }

func TestWhatCanBePackedIsPackedBeforeTheNextPageIsRead(t *testing.T) {
	f := everything()
	f.pack = func(o client.Object) informer.Packed {
		if o.GetName() == "large" {
			return nil
		}
		return packed(o.GetNamespace() + o.GetName())
	}
	spaces := map[string]string{}
	for range 2 {
		kept, _, err := f.sift(&corev1.ConfigMapList{Items: []corev1.ConfigMap{
			{ObjectMeta: metav1.ObjectMeta{Namespace: strings.Clone("shop"), Name: "small"}},
			{ObjectMeta: metav1.ObjectMeta{Namespace: strings.Clone("shop"), Name: "large"}},
		}}, spaces)
		if err != nil || len(kept) != 2 {
			t.Fatal(kept, err)
		}
		small, ok := kept[0].(*informer.Listed)
		key := types.NamespacedName{Namespace: "shop", Name: "small"}
		if !ok || small.Packed != packed("shopsmall") || small.Key != key {
			t.Errorf("kept %#v", kept[0])
		}
		large, ok := kept[1].(*corev1.ConfigMap)
		if !ok || unsafe.StringData(large.Namespace) != unsafe.StringData(spaces["shop"]) {
			t.Errorf("kept %#v, or its namespace is another string", kept[1])
		}
	}
}

// What a transform drops must not be in memory either while the cache is filled.
func TestFillingACacheNeedsMemoryForAPageAndForWhatIsKept(t *testing.T) {
	const objects, size = 1000, 64 << 10
	f := everything()
	highest, seen := uint64(0), 0
	f.transform = func(obj any) (any, error) {
		if seen++; seen%64 == 1 { // its page is there, and the server waits: nobody else allocates meanwhile
			alive := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
			runtime.GC()
			metrics.Read(alive)
			highest = max(highest, alive[0].Value.Uint64())
		}
		m := obj.(*corev1.ConfigMap)
		m.Data = nil
		return m, nil
	}
	server := &paged{objects: objects, size: func(int) int { return size }}
	list, err := listFrom(t, server, f, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil || len(list.Items) != objects {
		t.Fatal(len(list.Items), err)
	}
	if highest > 30<<20 {
		t.Errorf("%d MiB of %d were in memory at a time", highest>>20, objects*size>>20)
	}
	t.Logf("%d MiB of %d MiB in memory at a time, %d pages", highest>>20, objects*size>>20, len(server.asked))
}

func TestAServerCannotFillTheMemoryWithOneAnswer(t *testing.T) {
	for path, c := range map[string]struct {
		method  string
		bounded bool
	}{
		"/api/v1/namespaces/ns/pods/one":                    {http.MethodGet, true},
		"/apis/g/v1/namespaces/ns/ats/one":                  {http.MethodGet, true},
		"/apis/g/v1/namespaces/ns/ats/one/status":           {http.MethodPut, true},
		"/k8s/clusters/c-1/apis/g/v1/namespaces/ns/ats/one": {http.MethodGet, true},
		"/api/v1/nodes/one":                                 {http.MethodGet, true},
		"/api/v1/namespaces/ns":                             {http.MethodGet, true},
		"/api/v1/namespaces/ns/pods":                        {http.MethodPost, true},
		"/api/v1/namespaces/ns/configmaps":                  {http.MethodGet, false}, // a list may be long
		"/api/v1/namespaces/ns/pods/one/log":                {http.MethodGet, false},
		"/apis/g/v1/ats":                                    {http.MethodGet, false},
		"/api/v1/nodes":                                     {http.MethodGet, false},
		"/openapi/v2":                                       {http.MethodGet, false},
	} {
		t.Run(c.method+" "+path, func(t *testing.T) {
			f := openFence(t, flood{&atomic.Int64{}})
			req, err := http.NewRequestWithContext(t.Context(), c.method, "https://west"+path, nil)
			must.Succeed(t, err)
			res, err := f.RoundTrip(req)
			must.Succeed(t, err)
			defer res.Body.Close()
			const enough = 2 * largestObject
			n, err := io.Copy(io.Discard, io.LimitReader(res.Body, enough))
			if bounded := errors.Is(err, errLargePage) && n < enough; bounded != c.bounded {
				t.Errorf("read %d MiB, %v", n>>20, err)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
