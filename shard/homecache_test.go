package shard

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/multicluster-runtime/pkg/clusters"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// restored is a home cluster with one Secret, which is away once and then holds an earlier version.
type restored struct {
	mu      sync.Mutex // guards all below
	version string
	away    []error // what the next attempts to watch end with
	asked   []string
	now     *io.PipeWriter // the present watch's
}

func (r *restored) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}}
	if query := req.URL.Query(); query.Has("sendInitialEvents") { // as servers answer that don't know it
		res.StatusCode, res.Body = http.StatusUnprocessableEntity, http.NoBody
		return res, nil
	} else if query.Has("watch") {
		r.asked = append(r.asked, req.URL.Path+" from "+query.Get("resourceVersion"))
		if len(r.away) > 0 {
			err := r.away[0]
			r.away = r.away[1:]
			return nil, err
		}
		res.Body, r.now = io.Pipe()
		return res, nil
	}
	r.asked = append(r.asked, req.URL.Path)
	res.Body = io.NopCloser(strings.NewReader(`{"apiVersion":"v1","kind":"SecretList","metadata":{"resourceVersion":"` +
		r.version + `"},"items":[{"metadata":{"namespace":"n","name":"west","resourceVersion":"` + r.version + `"}}]}`))
	return res, nil
}

// goBack takes home to version 5 and ends the watch.
func (r *restored) goBack(away []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version, r.away, r.asked = "5", away, nil
	_ = r.now.Close()
}

func (r *restored) requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.asked...)
}

// ofNamespace is a cache as a program may have it that bounds its own.
func ofNamespace(rc *rest.Config, opts cache.Options) (cache.Cache, error) {
	opts.DefaultNamespaces = map[string]cache.Config{"n": {}}
	return cache.New(rc, opts)
}

// fill fills a manager's cache of Secrets, and goes on until the test's end.
func fill(t *testing.T, home http.RoundTripper, opts manager.Options) {
	t.Helper()
	opts.Metrics = metricsserver.Options{BindAddress: "0"}
	opts.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
		m := meta.NewDefaultRESTMapper(nil)
		for _, kind := range []string{"Secret", "SecretList"} {
			m.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
		}
		return m, nil
	}
	provider := clusters.New[cluster.Cluster]()
	m, err := NewManager(&rest.Config{Host: "http://home", Transport: home}, &provider, opts,
		Config{Replica: "a", Kinds: []Kind{Primary(&corev1.ConfigMap{})}})
	must.Succeed(t, err)
	c := m.GetLocalManager().GetCache()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	_, err = c.GetInformer(ctx, &corev1.Secret{})
	must.Succeed(t, err)
}

// A watch that goes on where it ended is silent until a restored home cluster has passed that version.
func TestTheManagersCacheListsAnewAfterHomeWasAway(t *testing.T) {
	refused := []error{syscall.ECONNREFUSED, syscall.ECONNREFUSED}
	const all, one = "/api/v1/secrets", "/api/v1/namespaces/n/secrets"
	for name, c := range map[string]struct {
		opts manager.Options
		away []error
		want []string
	}{
		"refused": {away: refused,
			want: []string{all + " from 9", all + " from 9", all + " from 9", all, all + " from 5"}},
		"a load balancer": {away: []error{io.EOF},
			want: []string{all + " from 9", all + " from 9", all, all + " from 5"}},
		"a cache of the program's": {opts: manager.Options{NewCache: ofNamespace}, away: refused[1:],
			want: []string{one + " from 9", one + " from 9", one, one + " from 5"}},
		"informers of the program's": {opts: manager.Options{Cache: cache.Options{
			NewInformer: toolscache.NewSharedIndexInformer}}, away: refused[1:],
			want: []string{all + " from 9", all + " from 9"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := &restored{version: "9"}
			fill(t, home, c.opts)
			await(t, home, 2)
			time.Sleep(1100 * time.Millisecond) // client-go takes a shorter watch for a failed one
			home.goBack(c.away)
			await(t, home, len(c.want))
			expect.Equal(t, "requests", c.want, home.requests())
		})
	}
}

func TestWhatWouldChangeHowHomesShardsWriteIsRefused(t *testing.T) {
	yes, no := true, false
	for name, c := range map[string]struct {
		opts manager.Options
		home string
		says string
	}{
		"nothing":            {manager.Options{}, "home", ""},
		"no dry run":         {manager.Options{Client: client.Options{DryRun: &no}}, "home", ""},
		"a dry run":          {manager.Options{Client: client.Options{DryRun: &yes}}, "home", "Client.DryRun"},
		"an owner of fields": {manager.Options{Client: client.Options{FieldOwner: "x"}}, "home", "Client.FieldOwner"},
		"validation":         {manager.Options{Client: client.Options{FieldValidation: "Strict"}}, "home", "FieldValidation"},
		"a client of its own": {manager.Options{NewClient: func(*rest.Config, client.Options) (client.Client, error) {
			return nil, nil
		}}, "home", "NewClient"},
		"home isn't worked on": {manager.Options{Client: client.Options{DryRun: &yes, FieldOwner: "x"}}, "", ""},
	} {
		err := checkHomeClient(Config{HomeCluster: multicluster.ClusterName(c.home)}, c.opts)
		if !tells(err, c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// await waits until so many requests were sent.
func await(t *testing.T, home *restored, n int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); len(home.requests()) < n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests are awaited, these came: %q", n, home.requests())
		}
	}
}
