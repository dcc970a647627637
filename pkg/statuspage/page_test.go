package statuspage

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
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/yaml"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// newPage has records that read counts the reads of.
func newPage(read func() (inspect.Records, error)) *Page {
	return New(Config{
		Replica: "r0", Namespace: "n", Metrics: prometheus.NewRegistry(), Every: time.Hour,
		Records: func(context.Context) (inspect.Records, error) { return read() },
	})
}

func get(p *Page, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func TestThePageIsReadOnlyAndServesItsPartsOnly(t *testing.T) {
	p := newPage(func() (inspect.Records, error) { return inspect.Records{}, nil })
	for _, c := range []struct {
		method, path string
		code         int
		kind         string
	}{
		{"GET", "/status", 200, "text/html; charset=utf-8"},
		{"HEAD", "/status", 200, "text/html; charset=utf-8"},
		{"HEAD", "/status/events", 200, "text/event-stream"},
		{"GET", "/status/", 302, ""},
		{"GET", "/", 302, ""},
		{"GET", "/status/page.js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/status/style.css", 200, "text/css; charset=utf-8"},
		{"GET", "/status/icon.svg", 200, "image/svg+xml"},
		{"GET", "/status/data", 200, "application/json"},
		{"GET", "/status/nothing", 404, "text/plain; charset=utf-8"},
		{"GET", "/status/../page.go", 404, "text/plain; charset=utf-8"},
		{"POST", "/status", 405, "text/plain; charset=utf-8"},
		{"DELETE", "/status/data", 405, "text/plain; charset=utf-8"},
	} {
		w := get(p, c.method, c.path)
		if w.Code != c.code || w.Header().Get("Content-Type") != c.kind {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, w.Code, w.Header().Get("Content-Type"), c.code, c.kind)
		}
		if !strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s %s: no policy for what the page may load", c.method, c.path)
		}
	}
}

// server is a manager's metrics server.
type server struct {
	manager.Manager
	*http.ServeMux
}

func (s server) AddMetricsServerExtraHandler(path string, h http.Handler) error {
	s.Handle(path, h)
	return nil
}

func (s server) Add(manager.Runnable) error { return nil }

func TestTheRootOfTheServerLeadsToThePage(t *testing.T) {
	s := server{ServeMux: http.NewServeMux()}
	must.Succeed(t, newPage(nil).SetupWithManager(s))
	text, err := os.ReadFile("../../config/rbac/metrics_reader.yaml")
	must.Succeed(t, err)
	reader := &rbacv1.ClusterRole{}
	must.Succeed(t, yaml.UnmarshalStrict(text, reader))
	for path, code := range map[string]int{"/": 302, "/status/": 302, "/status": 200, "/nothing": 404} {
		r, w := httptest.NewRequest("GET", path, nil), httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != code {
			t.Errorf("%s: %d, want %d", path, w.Code, code)
		}
		if code != 302 {
			continue
		}
		to, err := r.URL.Parse(w.Header().Get("Location"))
		must.Succeed(t, err)
		expect.Equal(t, path+" leads to", "/status", to.Path)
	}
	if !slices.Contains(reader.Rules[0].NonResourceURLs, "/") {
		t.Errorf("with --metrics-secure, who may see the page may not get /: %v", reader.Rules)
	}
}

func TestAllReadersShareOneView(t *testing.T) {
	reads := 0
	p := newPage(func() (inspect.Records, error) { reads++; return inspect.Records{}, nil })
	for range 5 {
		get(p, "GET", "/status/data")
	}
	if reads != 1 {
		t.Errorf("%d reads for 5 readers", reads)
	}
}

func TestAReplicaThatCannotTellSaysSo(t *testing.T) {
	p := newPage(func() (inspect.Records, error) {
		return inspect.Records{}, errors.New("no\nrecords\r\n\ndata: \x1b[2J")
	})
	if w := get(p, "GET", "/status/data"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("data: %d", w.Code)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = p.Start(ctx) // so that the stream ends after its first message
	if w := get(p, "GET", "/status/events"); w.Body.String() != "event: trouble\ndata: no records   data: \ufffd[2J\n\n" {
		t.Errorf("events: %q", w.Body.String())
	}
}

func TestStreamsEndWithTheManager(t *testing.T) {
	p := newPage(func() (inspect.Records, error) { return inspect.Records{}, nil })
	server := httptest.NewServer(p)
	defer server.Close() // waits for all streams
	response, err := http.Get(server.URL + "/status/events")
	must.Succeed(t, err)
	defer response.Body.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must.Succeed(t, p.Start(ctx))
	buffer := make([]byte, 1<<16)
	for err = nil; err == nil; {
		_, err = response.Body.Read(buffer) // to its end, else the test's own time limit
	}
}

func TestAStreamThatIsOverSaysSoSinceThatIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := get(newPage(func() (inspect.Records, error) { return inspect.Records{}, nil }), "GET", "/status/events")
		if got := w.Body.String(); !strings.HasSuffix(got, "}\n\nevent: over\ndata: follow again\n\n") {
			t.Errorf("the stream ends with %q", got[max(0, len(got)-100):])
		}
	})
}

// stuck is a connection whose reader doesn't read.
type stuck struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (s *stuck) SetWriteDeadline(t time.Time) error { s.deadline = t; return nil }

func (s *stuck) FlushError() error {
	if s.deadline.IsZero() {
		select {}
	}
	time.Sleep(time.Until(s.deadline))
	return os.ErrDeadlineExceeded
}

func TestAReaderThatDoesNotReadIsLeft(t *testing.T) {
	for _, fails := range []error{nil, errors.New("no records")} {
		synctest.Test(t, func(t *testing.T) {
			p := newPage(func() (inspect.Records, error) { return inspect.Records{}, fails })
			began := time.Now()
			p.ServeHTTP(&stuck{ResponseRecorder: httptest.NewRecorder()}, httptest.NewRequest("GET", "/status/events", nil))
			if took := time.Since(began); took != writeFor {
				t.Errorf("records: %v: left after %s", fails, took)
			}
		})
	}
}

// HTTP/2 ends a stream at its deadline.
func TestAStreamHasADeadlineOnlyWhileItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &paced{httptest.NewRecorder(), nil}
		newPage(func() (inspect.Records, error) { return inspect.Records{}, nil }).
			ServeHTTP(w, httptest.NewRequest("GET", "/status/events", nil))
		expect.Equal(t, "deadline set", []bool{true, false, true}, w.set) // for the view, the pause, and the end
	})
}

// paced notes whether deadlines were set, or taken away.
type paced struct {
	*httptest.ResponseRecorder
	set []bool
}

func (p *paced) SetWriteDeadline(t time.Time) error { p.set = append(p.set, !t.IsZero()); return nil }

func TestAViewThatTakesLongForgetsNothing(t *testing.T) {
	version, now := "1", time.Unix(1000, 0)
	p := newPage(func() (inspect.Records, error) { return lease(version), nil })
	p.now, p.cfg.Every = func() time.Time { return now }, time.Second
	for _, version = range []string{"1", "2"} {
		_, err := p.current(t.Context())
		must.Succeed(t, err)
		p.took = 2 * time.Second
		now = now.Add(p.every())
	}
	if !p.watch.leases.See(lease("2").Leases, now)["r0-a"].Changed {
		t.Error("a renewal between two views wasn't seen")
	}
}

// Who asks for the data now and then sees no two views that are close together.
func TestWhoLooksSeldomTellsADeadReplicaFromAClockThatIsBehind(t *testing.T) {
	w, began := newWatch(), time.Unix(1000, 0)
	for i, c := range []struct {
		version string
		want    console.ReplicaState
	}{{"1", console.Live}, {"2", console.Live}, {"3", console.Live}, {"3", console.Quiet}} {
		now, records := began.Add(time.Duration(i)*30*time.Second), lease(c.version)
		records.Leases[0].Annotations = map[string]string{tenurev1alpha1.LeaseDurationAnnotation: "10s"}
		records.Leases[0].Spec.RenewTime = &metav1.MicroTime{Time: now.Add(-15 * time.Second)}
		expect.Equal(t, fmt.Sprint("view ", i), c.want, w.see(Config{}, records, metrics{}, now).Fleet.Replicas[0].State)
	}
}

// lease returns records with one Lease.
func lease(version string) inspect.Records {
	return inspect.Records{Leases: []coordinationv1.Lease{{ObjectMeta: metav1.ObjectMeta{
		Name: "r0-a", ResourceVersion: version, Labels: map[string]string{
			tenurev1alpha1.RoleLabel: tenurev1alpha1.RoleMember,
		},
	}}}}
}

func TestQuantilesAreOfTheLastMinute(t *testing.T) {
	w, now := newWatch(), time.Unix(1000, 0)
	at := func(fast, slow uint64) metrics {
		h := histogram{bounds: []float64{0.1, 1}, counts: []uint64{fast, slow}, count: fast + slow}
		return metrics{queues: map[string]queue{"at": {depth: 2, wait: h}}}
	}
	w.seeQueues(at(1000, 0), now)
	if q := w.seeQueues(at(1000, 10), now.Add(30*time.Second))[0]; q.Reconciles != 10 || *q.P50 != 0.55 ||
		q.Waiting != 2 || q.Over != 30 {
		t.Errorf("after half a minute: %+v, p50 %v", q, *q.P50)
	}
	q := w.seeQueues(at(1000, 10), now.Add(95*time.Second))[0]
	if q.Reconciles != 0 || q.P50 != nil {
		t.Errorf("what is older than a minute counts: %+v", q)
	}
}

func TestMetricsAreReadAsTheyAreGathered(t *testing.T) {
	registry := prometheus.NewRegistry()
	wait := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: metricWait, Buckets: []float64{0.1, 1}, NativeHistogramBucketFactor: 1.1,
	}, []string{"controller"})
	usable := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: metricUsable}, []string{"cluster", "reason"})
	depth := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: metricDepth}, []string{"controller", "name", "priority"})
	registry.MustRegister(wait, usable, depth)
	wait.WithLabelValues("at").Observe(0.05)
	wait.WithLabelValues("at").Observe(5)
	usable.WithLabelValues("west", "Unreachable").Set(0)
	usable.WithLabelValues("east", "Usable").Set(1)
	depth.WithLabelValues("at", "at", "0").Set(3)
	depth.WithLabelValues("at", "at", "-100").Set(4)
	depth.WithLabelValues("secrets", "secrets", "0").Set(1)
	families, err := registry.Gather()
	must.Succeed(t, err)
	m := readMetrics(families)
	expect.Equal(t, "clusters",
		[]console.Answer{{Cluster: "east", Reason: "Usable"}, {Cluster: "west", Reason: "Unreachable"}}, m.clusters)
	q := m.queues["at"]
	if len(m.queues) != 1 || q.depth != 7 || cmp.Diff([]uint64{1, 0, 1}, q.wait.counts) != "" {
		t.Errorf("queues: %+v", m.queues)
	}
	if got := *q.wait.quantile(0.99); got != 1 {
		t.Errorf("a quantile beyond the last bound is %v, want that bound", got)
	}
}

// On the command line such a cluster is only out of reach from there. A replica that can't reach it is in trouble.
func TestAClusterThatThisReplicaCannotReachIsShownAsUnreachableThoughOthersServeIt(t *testing.T) {
	records, now := lease("2"), time.Unix(1000, 0)
	member := &records.Leases[0]
	member.Annotations = map[string]string{tenurev1alpha1.LeaseDurationAnnotation: "10s"}
	member.Spec.RenewTime = &metav1.MicroTime{Time: now}
	for _, prefix := range keyspace.Partition(1) {
		id := keyspace.ShardID{Cluster: "west", Prefix: prefix}
		records.Shards = append(records.Shards, tenurev1alpha1.Shard{
			ObjectMeta: metav1.ObjectMeta{Name: id.RecordName(""), ResourceVersion: "7"},
			Spec:       tenurev1alpha1.ShardSpec{Cluster: "west", Prefix: prefix.String(), Assignee: member.Name},
			Status:     tenurev1alpha1.ShardStatus{Holder: member.Name, Epoch: 3, Phase: tenurev1alpha1.ShardHeld},
		})
	}
	w, seen := newWatch(), metrics{clusters: []console.Answer{{Cluster: "west", Reason: "Unreachable"}}}
	f := w.see(Config{}, records, seen, now).Fleet
	if len(f.Clusters) != 1 || !f.Clusters[0].Served() {
		t.Fatalf("west isn't served: %+v", f)
	}
	if c := f.Clusters[0]; c.Reason != "Unreachable" || !c.Fails() {
		t.Errorf("it is shown as %q", c.Reason)
	}
}

func TestOfTooManyClustersOrShardsThoseWithTroubleAreShownFirst(t *testing.T) {
	for _, c := range []struct{ clusters, shards, leftClusters, left int }{
		{clusters: maxRows, shards: maxShards / maxRows},
		{clusters: maxRows + 1, shards: 1, leftClusters: 1, left: 1},
		{clusters: 9, shards: 256, left: 9*256 - maxShards},
	} {
		t.Run(fmt.Sprintf("%d of %d", c.clusters, c.shards), func(t *testing.T) {
			var v View
			for i := range c.clusters {
				name := keyspace.ClusterName(fmt.Sprintf("c%03d", i))
				v.Fleet.Clusters = append(v.Fleet.Clusters, console.Cluster{Name: name, Reason: "Usable"})
				v.Fleet.Shards = slices.Concat(v.Fleet.Shards, slices.Repeat([]console.Shard{{Cluster: name}}, c.shards))
			}
			bad, first := v.Fleet.Clusters[c.clusters-1].Name, keyspace.ClusterName("c000")
			v.Fleet.Clusters[c.clusters-1].Reason = "Unreachable"
			v.cut()
			if v.LeftClusters != c.leftClusters || v.Left != c.left {
				t.Errorf("left out: %d clusters, %d shards", v.LeftClusters, v.Left)
			}
			if c.left > 0 {
				first = bad
			}
			f := v.Fleet
			if f.Clusters[0].Name != first || f.Shards[0].Cluster != first || f.Shards[c.shards-1].Cluster != first {
				t.Errorf("%+v comes first, with shard %+v; want %s", f.Clusters[0], f.Shards[0], first)
			}
		})
	}
}

func TestAPageSaysHowMuchOfALongListItLeavesOut(t *testing.T) {
	v := View{Fleet: console.Fleet{
		Findings: make([]console.Finding, maxRows+1), Replicas: make([]console.Replica, maxRows+2),
		Moves: make([]console.Move, maxRows+3),
	}}
	v.cut()
	if f := v.Fleet; len(f.Findings) != maxRows || len(f.Replicas) != maxRows || len(f.Moves) != maxRows {
		t.Errorf("%d findings, %d replicas, %d moves", len(f.Findings), len(f.Replicas), len(f.Moves))
	}
	if v.LeftFindings != 1 || v.LeftReplicas != 2 || v.LeftMoves != 3 {
		t.Errorf("left out: %d findings, %d replicas, %d moves", v.LeftFindings, v.LeftReplicas, v.LeftMoves)
	}
}
