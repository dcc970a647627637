package shard

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// A home cluster that was set up anew, without its CRD, answers no list of Shards. The protocol must go on: else it
// notices no lapse, and doesn't leave.
func TestTheLoopDoesNotWaitForTheFirstListOfRecords(t *testing.T) {
	release := make(chan struct{})
	home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := map[string]string{
			"shards": `"ShardList","apiVersion":"tenure.dev/v1alpha1"`,
			"leases": `"LeaseList","apiVersion":"coordination.k8s.io/v1"`,
		}[path.Base(r.URL.Path)]
		if r.URL.Query().Get("watch") == "true" {
			<-r.Context().Done()
			return
		}
		select {
		case <-release:
		case <-r.Context().Done():
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":%s,"metadata":{"resourceVersion":"1"},"items":[]}`, kind)
	}))
	t.Cleanup(home.Close)
	cfg := Config{Replica: "a"}.withDefaults()
	records, err := newRecordCache(cfg, &rest.Config{Host: home.URL}, recordScheme(t), logr.Discard(),
		newHomeFailures(logr.Discard()), func() {})
	must.Succeed(t, err)
	ended := make(chan struct{})
	t.Cleanup(func() { <-ended }) // after the test's context has ended
	go func() { _ = records.Start(t.Context()); close(ended) }()

	protocol := driver.Config{Protocol: ownership.DefaultConfig("", "a", cfg.LeaseDuration)}
	var status atomic.Pointer[Status]
	status.Store(&Status{})
	l := &loop{
		cfg: cfg, ctx: t.Context(), records: records, driver: driver.New(protocol), validity: &validity{},
		report: &report{status: &status}, shards: &engager{roster: newRoster(cfg)},
		clusters: newClusterSet(logr.Discard(), 0, kubeconfig.Limits{}),
	}
	f := &follower{cache: records, log: logr.Discard(), put: func(driver.Event) {}, changed: func() {}}
	_, err = f.follow(t.Context(), func(func()) {})
	must.Succeed(t, err)
	measured := make(chan struct{})
	go func() { l.do(driver.Measure{}); close(measured) }()
	select {
	case <-measured:
	case <-time.After(time.Minute):
		t.Fatal("it waits for a list that doesn't come")
	}
	if l.surveyor.there != nil {
		t.Error("it has looked at records that it can't have seen")
	}
	close(release)
	if !records.WaitForCacheSync(t.Context()) {
		t.Fatal("the caches aren't filled")
	}
	l.handle(driver.Listed{By: "an earlier incarnation"})
	if l.listed {
		t.Error("other caches count as filled because of earlier ones")
	}
	l.handle(driver.Listed{By: l.driver.ID()})
	l.do(driver.Measure{})
	if l.surveyor.there == nil {
		t.Error("once it could look at the records it doesn't")
	}
}

func TestTheDriverIsToldWhichClustersAreUnmet(t *testing.T) {
	kind := Primary(&corev1.ConfigMap{})
	kind.In = func(c keyspace.ClusterName) bool { return c != "empty" }
	l := &loop{
		roster: newRoster(Config{Kinds: []Kind{kind}}), clusters: newClusterSet(logr.Discard(), 0, kubeconfig.Limits{}),
	}
	for name, identified := range map[keyspace.ClusterName]bool{"here": true, "silent": false, "empty": true} {
		l.clusters.clusters[name] = &entry{realCluster: realCluster{Cluster: fakeCluster{}, identified: identified}}
	}
	known := l.knownClusters()
	if _, there := known.Bits["here"]; !there || len(known.Bits) != 1 {
		t.Errorf("it is told of %v, want here alone", known.Bits)
	}
	expect.Equal(t, "unmet", map[keyspace.ClusterName]bool{"silent": true, "empty": true}, known.Unmet)
	// Shards of one that doesn't say which it is have no holder either, and must be reported.
	for name, want := range map[keyspace.ClusterName]bool{"here": true, "silent": true, "empty": false, "gone": false} {
		if l.sharded(name) != want {
			t.Errorf("%s should have shards that are held: %t, want %t", name, !want, want)
		}
	}
}

// A key that is enqueued before readers see the other name is reconciled by the old one, and never again.
func TestKeysAreEnqueuedForAnotherNameOnceReconcilesSeeIt(t *testing.T) {
	cfg := Config{Replica: "a", Kinds: []Kind{Copies(&corev1.Pod{})}}.withDefaults()
	m := &Manager{node: newNode(cfg, "", nil, logr.Discard(), nil)}
	id := keyspace.ShardID{Cluster: "other"}
	m.node.roster.put("other/", &engagement{id: id,
		gate: engage.NewGate(t.Context(), id, "agent", "a-1", func() bool { return true })})
	for _, name := range []keyspace.ClusterName{"east", "west"} {
		m.node.clusters.clusters[name] = &entry{realCluster: realCluster{uid: "w"}}
	}
	l := &loop{
		driver: withTwoNames("east", "west", "west"), report: &report{status: &m.node.status},
		shards: &engager{roster: m.node.roster, clusters: m.node.clusters},
	}
	for what, published := range map[string]map[keyspace.ClusterName]keyspace.ClusterName{
		"before the decision is published": nil, "after": l.driver.Aliases(),
	} {
		m.node.status.Store(&Status{Aliases: published})
		l.do(driver.Measure{})
		expect.Equal(t, what, m.Aliases(), l.shards.aliases)
	}
	if len(l.driver.Aliases()) != 1 || l.driver.Aliases()["east"] != "west" {
		t.Errorf("the decision is %v: the test has tested nothing", l.driver.Aliases())
	}
}

func TestChangesOfClustersWaitAsLongAsTheLastOnesTookManyTimes(t *testing.T) {
	at := time.Unix(1000, 0)
	for _, c := range []struct {
		changes changes
		want    time.Duration
	}{
		{changes{}, time.Hour},
		{changes{any: true}, 0},
		{changes{any: true, at: at, took: 10 * time.Millisecond}, 200 * time.Millisecond},
		{changes{any: true, at: at, took: 3 * time.Second}, time.Second}, // the machine stood still
	} {
		if got := max(0, c.changes.wait(at)); got != c.want {
			t.Errorf("%+v: wait %v, want %v", c.changes, got, c.want)
		}
	}
}

// Whoever replaces a token may write it in place, just when an incarnation begins.
func TestCredentialsThatAreBeingWrittenAreReadAgain(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration // when the token is there
		fails string
	}{
		"written soon":  {time.Second / 2, ""},
		"never written": {time.Hour, "empty token"},
	} {
		t.Run(name, func(t *testing.T) {
			token := filepath.Join(t.TempDir(), "token")
			must.Succeed(t, os.WriteFile(token, nil, 0o600))
			synctest.Test(t, func(t *testing.T) {
				began := errors.New("the client is built")
				l := &loop{
					ctx: t.Context(), homeConfig: &rest.Config{Host: "https://home", BearerTokenFile: token},
					scheme: recordScheme(t), list: func() (cache.Cache, error) { return nil, began },
				}
				written := time.AfterFunc(c.after, func() { _ = os.WriteFile(token, []byte("secret"), 0o600) })
				defer written.Stop()
				l.begin(driver.Begin{ID: "a"})
				if c.fails == "" && l.failure != began || c.fails != "" && !tells(l.failure, c.fails) {
					t.Errorf("it ends with %v", l.failure)
				}
			})
		})
	}
}

// Peers wait for the shards of an incarnation that has lapsed until its Lease is sealed or has run out.
func TestASealThatIsOnItsWayGoesOnWhenTheNextIncarnationBegins(t *testing.T) {
	came, goes := make(chan struct{}), make(chan struct{})
	home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(came)
		<-goes
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	}))
	defer home.Close()
	l := &loop{
		cfg: Config{Namespace: "n"}, ctx: t.Context(), homeConfig: &rest.Config{Host: home.URL}, scheme: recordScheme(t),
		log: logr.Discard(), failures: newHomeFailures(logr.Discard()), mail: newMailbox[driver.Event](),
		clock: clock{time.Now()}, list: func() (cache.Cache, error) { return nil, errors.New("no records") },
	}
	l.begin(driver.Begin{ID: "a-1"})
	first := l.homeClient.ctx
	l.homeClient.read(driver.Read{Of: driver.Subject{Lease: "a-1"}, Patience: time.Minute})
	<-came
	l.begin(driver.Begin{ID: "a-2"})
	close(goes)
	l.beside.Wait()
	if found, ok := l.mail.take()[0].(driver.Found); !ok || found.What == nil {
		t.Errorf("the read of its Lease finds %+v", found)
	}
	if l.homeClient.restart(l.ctx); first.Err() == nil {
		t.Error("what the first incarnation sends can't be cancelled any more")
	}
}
