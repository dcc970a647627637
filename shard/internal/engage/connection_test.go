package engage

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/tenure-dev/tenure/test/certs"
	"github.com/tenure-dev/tenure/test/conns"
	"github.com/tenure-dev/tenure/test/must"
)

// configured is a cluster of which only the configuration is asked for.
type configured struct {
	cluster.Cluster
	config *rest.Config
}

func (c configured) GetConfig() *rest.Config    { return c.config }
func (c configured) GetScheme() *runtime.Scheme { return runtime.NewScheme() }

// opaque is a wrapper that doesn't tell what it wraps, as programs have them.
type opaque struct{ http.RoundTripper }

// tlsServer is an API server that knows its namespace kube-system, and notes which token came over which connection,
// and counts these.
func tlsServer(t *testing.T) (connect func(token string) *Connection, came func() []string, counts *conns.Counts) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	tokens := map[string]map[string]bool{} // by connection
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		all = append(all, r.Header.Get("Authorization"))
		if tokens[r.RemoteAddr] == nil {
			tokens[r.RemoteAddr] = map[string]bool{}
		}
		tokens[r.RemoteAddr][r.Header.Get("Authorization")] = true
		if got := r.Header.Get("Accept-Encoding"); got != "" {
			t.Errorf("a request asks for answers in %q: compressing them takes longer than it saves", got)
		}
		if len(tokens[r.RemoteAddr]) > 1 {
			t.Errorf("two credentials share a connection: %v", tokens[r.RemoteAddr])
		}
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/below/hold" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		if r.URL.Path != "/below/api/v1/namespaces/kube-system" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system","uid":"u-1"}}`)
	}))
	server.EnableHTTP2 = true
	counts = conns.Of(server)
	server.StartTLS()
	t.Cleanup(server.Close)
	connect = func(token string) *Connection {
		t.Helper()
		c, err := Connect(configured{config: &rest.Config{
			Host: server.URL + "/below/", BearerToken: token,
			TLSClientConfig: rest.TLSClientConfig{CAData: certs.Of(server)},
			WrapTransport:   func(by http.RoundTripper) http.RoundTripper { return opaque{by} },
		}})
		must.Succeed(t, err)
		return c
	}
	return connect, func() []string {
		mu.Lock()
		defer mu.Unlock()
		defer func() { all = nil }()
		return all
	}, counts
}

func TestCredentialsAreReplacedBelowClientsAndOpenRequests(t *testing.T) {
	connect, came, _ := tlsServer(t)
	first, second := connect("one"), connect("two")
	if !first.SameServer(second) {
		t.Error("the same server isn't the same")
	}
	for _, c := range []*Connection{first, second} {
		if uid, err := c.Identify(t.Context()); err != nil || uid != "u-1" {
			t.Errorf("it says that it is %q (%v)", uid, err)
		}
	}
	client, err := rest.HTTPClientFor(first.Config())
	must.Succeed(t, err)
	held, err := client.Get(first.Config().Host + "/hold") // as a watch does
	must.Succeed(t, err)
	defer held.Body.Close()
	came()
	first.Replace(second)
	res, err := client.Get(first.Config().Host + "/api/v1/namespaces/kube-system")
	must.Succeed(t, err)
	_ = res.Body.Close()
	if got := came(); len(got) != 1 || got[0] != "Bearer two" {
		t.Errorf("after the replacement requests come as %q", got)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := held.Body.Read(make([]byte, 1))
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Errorf("a request that was under way was ended: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
}

func TestWhatIsIdleIsClosedAtRestAndWhenCredentialsAreReplaced(t *testing.T) {
	connect, _, counts := tlsServer(t)
	c := connect("one")
	for what, end := range map[string]func(){"at rest": c.Rest, "replaced": func() { c.Replace(connect("two")) }} {
		if _, err := c.Identify(t.Context()); err != nil || counts.Open() != 1 {
			t.Fatalf("%s: %d connections are open (%v), want the one that was used", what, counts.Open(), err)
		}
		end()
		must.Until(t, what+": no connection is left open", func() bool { return counts.Open() == 0 })
	}
}

func TestAnAnswerWithoutAUIDIdentifiesNothing(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{}`)
	}))
	t.Cleanup(server.Close)
	c, err := Connect(configured{config: &rest.Config{Host: server.URL}})
	must.Succeed(t, err)
	if uid, err := c.Identify(t.Context()); err == nil {
		t.Errorf("it is taken for cluster %q", uid)
	}
}

// An API server says how many objects are behind the first, or that it doesn't know.
func TestTheObjectsOfAllKindsAreCounted(t *testing.T) {
	lists := map[string]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, map[string]string{
			"/api/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[
				{"name":"configmaps","kind":"ConfigMap","namespaced":true},{"name":"secrets","kind":"Secret","namespaced":true}]}`,
			"/api/v1/configmaps": lists["configmaps"], "/api/v1/secrets": lists["secrets"],
		}[r.URL.Path])
	}))
	t.Cleanup(server.Close)
	c, err := Connect(configured{config: &rest.Config{Host: server.URL}})
	must.Succeed(t, err)
	must.Succeed(t, corev1.AddToScheme(c.scheme))
	list := func(meta, items string) string {
		return `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{` + meta +
			`},"items":[` + items + `]}`
	}
	const one = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"o"}}`
	for what, of := range map[string]struct {
		configMaps, secrets string
		want                int64
		fails               bool
	}{
		"none":        {configMaps: list("", ""), secrets: list("", "")},
		"one of each": {configMaps: list("", one), secrets: list("", one), want: 2},
		"many": {configMaps: list(`"continue":"c","remainingItemCount":41`, one),
			secrets: list("", one), want: 43},
		"many of both": {configMaps: list(`"continue":"c","remainingItemCount":41`, one),
			secrets: list(`"continue":"c","remainingItemCount":7`, one), want: 50},
		"it doesn't say it": {configMaps: list(`"continue":"c"`, one), secrets: list("", ""), fails: true},
	} {
		lists["configmaps"], lists["secrets"] = of.configMaps, of.secrets
		got, err := c.Count(t.Context(), []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}})
		if got != of.want || (err != nil) != of.fails {
			t.Errorf("%s: %d objects (%v), want %d, an error: %t", what, got, err, of.want, of.fails)
		}
	}
}

func TestAnotherAddressOrNameIsAnotherServer(t *testing.T) {
	of := func(config rest.Config) *Connection {
		c, err := Connect(configured{config: &config})
		must.Succeed(t, err)
		return c
	}
	named := rest.TLSClientConfig{ServerName: "west.example.com"}
	a := of(rest.Config{Host: "https://a:6443"})
	for what, c := range map[string]struct {
		config rest.Config
		same   bool
	}{
		"the same":     {rest.Config{Host: "https://a:6443", BearerToken: "other"}, true},
		"another host": {rest.Config{Host: "https://b:6443"}, false},
		"another port": {rest.Config{Host: "https://a:6444"}, false},
		"another path": {rest.Config{Host: "https://a:6443/clusters/x"}, false},
		"another name": {rest.Config{Host: "https://a:6443", TLSClientConfig: named}, false},
		"without TLS":  {rest.Config{Host: "http://a:6443"}, false},
	} {
		if got := a.SameServer(of(c.config)); got != c.same {
			t.Errorf("%s: same server: %t", what, got)
		}
	}
}

// flood answers with 64 MiB, and counts what is read of them.
type flood struct{ read *atomic.Int64 }

func (f flood) RoundTrip(*http.Request) (*http.Response, error) {
	body := &flooding{io.LimitReader(zeros{}, 64<<20), f.read}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(body)}, nil
}

type flooding struct {
	io.Reader
	read *atomic.Int64
}

func (f *flooding) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	f.read.Add(int64(n))
	return n, err
}

func TestALongAnswerToASmallQuestionIsNotReadToItsEnd(t *testing.T) {
	var read atomic.Int64
	c, err := Connect(configured{config: &rest.Config{Host: "https://west", Transport: flood{&read}}})
	must.Succeed(t, err)
	for name, ask := range map[string]func() error{
		"who it is":     func() error { _, err := c.Identify(t.Context()); return err },
		"what it knows": func() error { _, err := c.mapper.RESTMapping(schema.GroupKind{Kind: "Pod"}, "v1"); return err },
	} {
		read.Store(0)
		if err := ask(); err == nil || read.Load() > 2*largestObject {
			t.Errorf("%s: %d MiB were read: %v", name, read.Load()>>20, err)
		}
	}
}
