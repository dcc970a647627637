package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/statuspage"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// fleet is a home cluster that only has the records, and a replica's metrics.
type fleet struct {
	registry *prometheus.Registry
	usable   *prometheus.GaugeVec
	wait     prometheus.Observer
	refuses  atomic.Int32 // how many of the next streams of events are refused
	silent   atomic.Bool  // nothing more comes, on connections that stay open

	mu      sync.Mutex // guards all below
	version int
	records inspect.Records
}

// newFleet has three replicas and two clusters of eight shards.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{registry: prometheus.NewRegistry(), version: 100}
	f.usable = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tenure_cluster_usable"}, []string{"cluster", "reason"})
	wait := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "tenure_queue_wait_seconds",
		Buckets: []float64{.001, .01, .1, 1}}, []string{"controller"})
	f.wait = wait.WithLabelValues("at")
	f.registry.MustRegister(f.usable, wait)
	for _, name := range []string{"r0", "r1", "r2"} {
		f.records.Leases = append(f.records.Leases, coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Name: name + "-abc234", Labels: map[string]string{tenurev1alpha1.RoleLabel: tenurev1alpha1.RoleMember,
				tenurev1alpha1.ReplicaLabel: name},
			Annotations: map[string]string{"tenure.dev/lease-duration": "10s", "tenure.dev/build": "v1.0.0"},
		}})
	}
	holder := "r0-abc234"
	f.records.Leases = append(f.records.Leases, coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: tenurev1alpha1.CoordinatorName,
			Labels: map[string]string{tenurev1alpha1.RoleLabel: tenurev1alpha1.RoleCoordinator}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder},
	})
	f.add("west", 3, 0)
	f.add("east", 3, 1) // balanced over both
	f.bump()
	return f
}

// add adds a cluster of 2^bits shards, which the replicas from the first on hold in turns.
func (f *fleet) add(cluster string, bits, first int) {
	f.usable.WithLabelValues(cluster, "Usable").Set(1)
	for i, prefix := range keyspace.Partition(bits) {
		id := keyspace.ShardID{Cluster: keyspace.ClusterName(cluster), Prefix: prefix}
		since := metav1.NewMicroTime(time.Now().Add(-time.Hour))
		who := fmt.Sprintf("r%d-abc234", (i+first)%3)
		f.records.Shards = append(f.records.Shards, tenurev1alpha1.Shard{
			ObjectMeta: metav1.ObjectMeta{Name: id.RecordName("")},
			Spec:       tenurev1alpha1.ShardSpec{Cluster: cluster, Prefix: prefix.String(), Assignee: who},
			Status: tenurev1alpha1.ShardStatus{Holder: who, Epoch: 3, Phase: tenurev1alpha1.ShardHeld, Objects: 25,
				LoadMilli: 40, HeldSince: &since},
		})
	}
}

// bump gives all records a new version, as if everybody had renewed.
func (f *fleet) bump() {
	f.version++
	for i := range f.records.Leases {
		f.records.Leases[i].ResourceVersion = strconv.Itoa(f.version)
		f.records.Leases[i].Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	}
	for i := range f.records.Shards {
		f.records.Shards[i].ResourceVersion = strconv.Itoa(f.version)
	}
}

// read is what a replica's cache gives.
func (f *fleet) read(context.Context) (inspect.Records, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bump()
	var r inspect.Records
	for i := range f.records.Shards {
		r.Shards = append(r.Shards, *f.records.Shards[i].DeepCopy())
	}
	for i := range f.records.Leases {
		r.Leases = append(r.Leases, *f.records.Leases[i].DeepCopy())
	}
	return r, nil
}

// say has a replica say something of a cluster with its Lease.
func (f *fleet) say(replica int, view inspect.ClusterView) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.records.Leases[replica].Annotations[tenurev1alpha1.TroubleAnnotation] = inspect.EncodeViews(
		[]inspect.ClusterView{view})
}

// change changes one shard.
func (f *fleet) change(name string, do func(*tenurev1alpha1.Shard)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.records.Shards {
		if f.records.Shards[i].Name == name {
			do(&f.records.Shards[i])
		}
	}
}

// move is a change of holder that has happened.
func move(to string, kind protocol.MoveKind) func(*tenurev1alpha1.Shard) {
	return func(s *tenurev1alpha1.Shard) {
		s.Status.LastMove = &tenurev1alpha1.ShardMove{Kind: string(kind), From: s.Status.Holder, To: to,
			Time: metav1.NowMicro()}
		s.Spec.Assignee, s.Status.Holder, s.Status.Warm = to, to, ""
		s.Status.Epoch++
	}
}

// replace gives one replica's lease and shards to a new replica.
func (f *fleet) replace(replica int, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	lease := &f.records.Leases[replica]
	old := lease.Name
	lease.Name, lease.Labels[tenurev1alpha1.ReplicaLabel] = name+"-abc234", name
	for i := range f.records.Leases {
		if who := f.records.Leases[i].Spec.HolderIdentity; who != nil && *who == old { // it coordinates
			*who = lease.Name
		}
	}
	for i := range f.records.Shards {
		if s := &f.records.Shards[i]; s.Status.Holder == old {
			s.Spec.Assignee, s.Status.Holder = lease.Name, lease.Name
			s.Status.Epoch++
		}
	}
}

// mute drops what is written while silent is true.
type mute struct {
	http.ResponseWriter
	silent *atomic.Bool
}

func (m mute) Write(b []byte) (int, error) {
	if m.silent.Load() {
		return len(b), nil
	}
	return m.ResponseWriter.Write(b)
}

func (m mute) Unwrap() http.ResponseWriter { return m.ResponseWriter }

// serve serves the fleet's page and returns the address of the server.
func (f *fleet) serve(t *testing.T) (address string, stop func()) {
	t.Helper()
	served := statuspage.New(statuspage.Config{Replica: "r1", Namespace: "tenure-system", Records: f.read,
		Metrics: f.registry, Every: 200 * time.Millisecond})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/events") && f.refuses.Add(-1) >= 0 {
			http.Error(w, "the token isn't good any more", http.StatusInternalServerError)
			return
		}
		served.ServeHTTP(mute{w, &f.silent}, r)
	}))
	ctx, cancel := context.WithCancel(context.Background())
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			_ = served.Start(ctx) // ends the streams, as the manager does
			server.Close()
		})
	}
	t.Cleanup(stop)
	return server.URL, stop
}

// open opens the page of a fleet and waits until it shows something.
func open(t *testing.T, f *fleet, width, height int64) (*chromium, func()) {
	t.Helper()
	address, stop := f.serve(t)
	c := newTab(t, width, height)
	c.prefer("light")
	call(c, page.Navigate, page.NavigateParams{URL: address + statuspage.Path})
	c.until("the page is live", `document.getElementById("link")?.textContent.startsWith("Live")`)
	return c, stop
}
