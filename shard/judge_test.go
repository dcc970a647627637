package shard

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/conns"
	"github.com/tenure-dev/tenure/test/must"
)

// judging is a judge of clusters that nobody has added yet, and of which nothing is held.
func judging(put func(driver.Event), spawn func(func())) *clusterJudge {
	return newJudge(newClusterSet(logr.Discard(), 0, kubeconfig.Limits{}), newRoster(Config{}), 20*time.Second,
		logr.Discard(), put, spawn)
}

func TestOnlyAClusterOfWhichSomethingIsHeldKeepsAConnection(t *testing.T) {
	j := judging(func(driver.Event) {}, func(func()) {})
	counts := map[keyspace.ClusterName]*conns.Counts{}
	for _, name := range []keyspace.ClusterName{"held", "other"} {
		server := httptest.NewUnstartedServer(http.NotFoundHandler())
		counts[name] = conns.Of(server)
		server.EnableHTTP2 = true // with HTTP/1.1, net/http doesn't use a connection again whose writer was 50 ms late
		server.StartTLS()
		t.Cleanup(server.Close)
		config := rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
		addCluster(t.Context(), t, j.clusters, name, config)
	}
	ask := func(name keyspace.ClusterName) {
		c, _ := j.clusters.get(name)
		_, _ = c.via.Identify(t.Context()) // any answer will do
	}
	ask("held")
	ask("other")
	j.roster.put("held/", &engagement{id: keyspace.ShardID{Cluster: "held"}})
	for range 2 { // the second in place of the first
		j.roster.put("other/", &engagement{id: keyspace.ShardID{Cluster: "other"}})
	}
	j.roster.remove("other/")
	now := time.Now()
	for range 3 {
		j.due(now)
		now = now.Add(restsAfter*j.every + time.Second)
	}
	must.Until(t, "the connection to the other cluster is closed",
		func() bool { return counts["other"].Closed.Load() > 0 })
	ask("held")
	if n := counts["held"].Opened.Load(); n != 1 {
		t.Errorf("%d connections to the cluster that is held, one after the other", n)
	}
}

func TestAClusterIsProbedWhereNothingElseShowsThatItAnswers(t *testing.T) {
	for what, c := range map[string]struct {
		code        int // of its answers
		held, busy  bool
		least, most int // probes in ten intervals
	}{
		"nothing is held":       {},
		"nothing is to be done": {held: true, least: 4, most: 6},
		"shards are answered":   {held: true, busy: true},
		"it can't be used":      {held: true, code: http.StatusServiceUnavailable, least: 8, most: 11},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				probes := 0
				j := judging(func(driver.Event) { probes++ }, func(do func()) { do() })
				addCluster(t.Context(), t, j.clusters, "west",
					rest.Config{Host: "https://a", Transport: &fakeServer{uid: "w", code: c.code}})
				if c.held {
					j.roster.put("west/", &engagement{id: keyspace.ShardID{Cluster: "west"}})
				}
				ctx, cancel := context.WithCancel(t.Context())
				go j.run(ctx)
				_, traffic := j.clusters.get("west")
				for range 20 {
					if c.busy {
						answered(&traffic.Breaker, http.StatusOK, 1)
					}
					time.Sleep(j.every / 2)
				}
				cancel()
				synctest.Wait()
				if probes < c.least || probes > c.most {
					t.Errorf("%d probes, want %d to %d", probes, c.least, c.most)
				}
			})
		})
	}
}

// The driver may miss that a cluster was gone for a moment, and then takes it for unusable until it is told otherwise.
func TestAClusterThatComesBackIsProbedIfItCouldNotBeUsed(t *testing.T) {
	told := map[bool]int{}
	j := judging(func(e driver.Event) { told[e.(driver.Health).Usable]++ }, func(do func()) { do() })
	add := func(s *fakeServer) (remove func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		addCluster(ctx, t, j.clusters, "west", rest.Config{Host: "https://a", Transport: s})
		connection := j.clusters.all()["west"].connection
		return func() { cancel(); j.clusters.remove("west", connection) }
	}
	remove := add(&fakeServer{code: -1})
	j.probe(t.Context(), "west")
	for range 2 {
		remove()
		now := time.Now()
		if names := j.due(now); len(names) > 0 {
			t.Errorf("%q are to be probed, and nothing is there", names)
		}
		remove = add(&fakeServer{uid: "w"})
		if why := j.usable(t.Context(), "west"); why != nil {
			t.Errorf("the cluster that has the name now is told to be unusable, as the one before was: %v", why)
		}
		for _, name := range j.due(now.Add(time.Second)) {
			j.probe(t.Context(), name)
		}
	}
	if told[false] != 1 || told[true] != 1 {
		t.Errorf("the driver was told %v: want once that it can't be used, and once that it can", told)
	}
	remove()
	add(&fakeServer{code: -1})
	j.probe(t.Context(), "west")
	j.clusters.remove("west", j.clusters.all()["west"].connection)
	j.due(time.Now())
	if j.due(time.Now().Add(troubleKept + 2*time.Second)); len(j.verdicts) != 0 {
		t.Error("a verdict on a cluster that is gone is kept for ever")
	}
}

// The driver asks about a cluster that goes in that moment, and is back before the driver hears of it.
func TestAClusterThatIsAskedForAsItGoesIsAskedWhenItIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int64
		j := judging(func(driver.Event) { told.Add(1) }, func(do func()) { go do() })
		for _, name := range []keyspace.ClusterName{"west", "gone"} {
			j.probe(t.Context(), name)
		}
		addCluster(t.Context(), t, j.clusters, "west", rest.Config{Host: "https://a", Transport: &fakeServer{uid: "w"}})
		time.Sleep(2 * heardOf)
		if n := told.Load(); n != 1 {
			t.Errorf("the driver got %d answers, want that about west", n)
		}
	})
}

// A large fleet's clusters are probed less often. An answer must count until the next one is due, or whoever wants to
// know would ask in between. Clusters without shards here aren't probed regularly.
func TestAnAnswerToAProbeCountsUntilTheNextOneIsDue(t *testing.T) {
	for _, c := range []struct {
		watched     int
		here        bool
		proven, not time.Duration
	}{
		{1, true, 14 * time.Second, 15 * time.Second},
		{500, true, 14 * time.Second, 15 * time.Second},
		{1500, true, 44 * time.Second, 45 * time.Second},
		{1500, false, 14 * time.Second, 15 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			j := judging(func(driver.Event) {}, func(func()) {})
			addCluster(t.Context(), t, j.clusters, "west", rest.Config{Host: "https://a"})
			known, _ := j.clusters.known("west")
			if j.watched = c.watched; c.here {
				j.roster.put("west/", &engagement{id: keyspace.ShardID{Cluster: "west"}})
			}
			j.conclude("west", known.connection, nil)
			for _, after := range []time.Duration{c.proven, c.not} {
				if time.Sleep(after - time.Since(j.verdicts["west"].probed)); j.proven("west") != (after == c.proven) {
					t.Errorf("%+v: %v after the answer: proven: %t", c, after, j.proven("west"))
				}
			}
			if next := j.verdicts["west"].next.Sub(j.verdicts["west"].probed); c.here && next > c.proven {
				t.Errorf("%+v: the next probe is due after %v", c, next)
			}
		})
	}
}

func TestWhoeverWantsToKnowGetsOneVerdict(t *testing.T) {
	var asked, code atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(int(code.Load()))
	}))
	t.Cleanup(server.Close)
	told := map[bool]int{}
	j := judging(func(e driver.Event) { told[e.(driver.Health).Usable]++ }, func(do func()) { do() })
	addCluster(t.Context(), t, j.clusters, "west", rest.Config{Host: server.URL})
	_, traffic := j.clusters.get("west")
	state := func() ClusterStatus {
		s := j.clusters.status()["west"]
		j.verdictOn("west", &s)
		return s
	}
	code.Store(http.StatusForbidden)
	if err := j.usable(t.Context(), "west"); err != nil || asked.Load() != 1 {
		t.Errorf("%v after %d questions; any answer will do", err, asked.Load())
	}
	j.due(time.Now())
	j.probe(t.Context(), "west")
	if err := j.usable(t.Context(), "west"); err != nil || asked.Load() != 2 || !j.proven("west") {
		t.Errorf("%v after %d questions, though it answered a probe just now", err, asked.Load())
	}
	j.verdicts["west"].probed = time.Now().Add(-(idleFactor + 1) * j.every)
	if err := j.usable(t.Context(), "west"); err != nil || asked.Load() != 3 || j.proven("west") {
		t.Errorf("%v after %d questions, the last long ago", err, asked.Load())
	}
	answered(&traffic.Breaker, http.StatusOK, 1)
	if err := j.usable(t.Context(), "west"); err != nil || asked.Load() != 3 || !j.proven("west") {
		t.Errorf("%v after %d questions, though it answered a shard just now", err, asked.Load())
	}
	for status, want := range map[int64]engage.Cause{
		401: engage.Unauthorized, 503: engage.Unavailable, 404: engage.Unavailable, 302: engage.Unavailable,
		200: engage.Unavailable, // and no version: it is no API server's
	} {
		code.Store(status)
		j.probe(t.Context(), "west")
		now := asked.Load()
		if err := j.usable(t.Context(), "west"); err == nil || asked.Load() != now {
			t.Errorf("%d: %v, asked again: %t", status, err, asked.Load() != now)
		}
		if j.proven("west") {
			t.Errorf("%d: proven to be usable", status)
		}
		if apierrors.IsUnauthorized(j.usable(t.Context(), "west")) != (status == 401) {
			t.Errorf("%d: can't be told from others: %v", status, j.usable(t.Context(), "west"))
		}
		if s := state(); s.State != protocol.ClusterOpen || s.Cause != string(want) || s.Unusable == "" {
			t.Errorf("%d: %s, %s, %q", status, s.State, s.Cause, s.Unusable)
		}
	}
	server.Close()
	j.probe(t.Context(), "west")
	if err := j.usable(t.Context(), "west"); err == nil || told[false] != 6 || told[true] != 1 {
		t.Errorf("without a server: %v; the driver was told %v", err, told)
	}
	if err := j.usable(t.Context(), "nowhere"); !errors.Is(err, multicluster.ErrClusterNotFound) {
		t.Errorf("of another one: %v", err)
	}
}

// A cluster that can't serve anything says so to the lists of caches, too, which are asked for again and again.
func TestRefusalsOfEverythingDoNotShowThatAClusterCanBeUsed(t *testing.T) {
	for status, usable := range map[int]bool{
		200: true, 429: true, 500: true, 401: false, 503: false, 302: false, 404: false, // a proxy's own 302 and 404
	} {
		clusters := newClusterSet(logr.Discard(), 0, kubeconfig.Limits{})
		var traffic *engage.Traffic
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			list, _ := http.NewRequest(http.MethodGet, "/api/v1/pods", nil) // while somebody probes
			res, err := engage.Unfenced(answer{code: status}, &traffic.Breaker).RoundTrip(list)
			if err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		t.Cleanup(server.Close)
		addCluster(t.Context(), t, clusters, "west", rest.Config{Host: server.URL})
		var c realCluster
		c, traffic = clusters.get("west")
		if err := ask(t.Context(), c, &traffic.Breaker); (err == nil) != usable {
			t.Errorf("%d to lists, and 503 to a probe: %v", status, err)
		}
	}
}

func TestCredentialsThatAreRefusedToRequestsAreProbed(t *testing.T) {
	synctest.Test(t, refusedCredentials)
}

func refusedCredentials(t *testing.T) {
	j := judging(func(driver.Event) {}, func(func()) {})
	addCluster(t.Context(), t, j.clusters, "west", rest.Config{Host: "http://127.0.0.1:1"})
	j.roster.put("west/", &engagement{id: keyspace.ShardID{Cluster: "west"}})
	_, traffic := j.clusters.get("west")
	for _, status := range []int{http.StatusOK, http.StatusTooManyRequests, http.StatusUnauthorized} {
		traffic.Breaker = engage.Breaker{}
		answered(&traffic.Breaker, http.StatusOK, 1)
		time.Sleep(2 * engage.FirstPause)
		answered(&traffic.Breaker, status, 5)
		if got := len(j.due(time.Now())) == 1; got != (status == http.StatusUnauthorized) {
			t.Errorf("%d: probed: %t; it answers, so a probe explains refused credentials only", status, got)
		}
	}
	c, _ := j.clusters.get("west")
	j.conclude("west", c.connection, nil)
	if len(j.due(time.Now())) > 0 {
		t.Error("probed again at once, though that explained nothing")
	}
	if j.conclude("west", c.connection+1, errors.New("refused")) {
		t.Error("a probe over another connection was taken for one over this")
	}
	if why := j.trouble("west"); why != nil {
		t.Errorf("west is in trouble by a probe over another connection: %v", why)
	}
	j.clusters.clusters["west"].connection++ // and no probe was due since
	if j.conclude("west", c.connection, errors.New("dead")) {
		t.Error("a probe over the connection before was taken for one over the new one")
	}
}

// Nothing else logs it in a library user's program. Command tenure tells these lines by the logger's name.
func TestThatAClusterCanNoLongerBeUsedIsLoggedOnceAndThatItCanAgain(t *testing.T) {
	clusters, lines := newClusterSet(logr.Discard(), 0, kubeconfig.Limits{}), []string{}
	addCluster(t.Context(), t, clusters, "west", rest.Config{Host: "http://127.0.0.1:1"})
	log := funcr.New(func(logger, args string) { lines = append(lines, logger+": "+args) }, funcr.Options{})
	j := newJudge(clusters, newRoster(Config{}), 20*time.Second, log.WithName("shard"), func(driver.Event) {},
		func(func()) {})
	c, _ := clusters.get("west")
	j.due(time.Now())
	for _, trouble := range []error{errors.New("dead"), errors.New("still dead"), nil, nil} {
		j.conclude("west", c.connection, trouble)
	}
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "shard/judge: ") || !strings.Contains(lines[0], `"error"="dead"`) ||
		!strings.Contains(lines[1], "can be used from here again") {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}

// Such a cluster answers everything else, so nothing but this says why nobody serves it.
func TestAClusterThatDoesNotSayWhichItIsCannotBeUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := judging(func(driver.Event) {}, func(func()) {})
		server := &fakeServer{name: "1", uid: "w", code: http.StatusInternalServerError}
		addCluster(t.Context(), t, j.clusters, "west", rest.Config{Host: "https://a", Transport: server})
		j.clusters.start(t.Context(), func(f func()) { go f() }, func() {})
		synctest.Wait()
		status := ClusterStatus{}
		j.verdictOn("west", &status)
		err := j.usable(t.Context(), "west")
		if !tells(err, "which cluster it is") || status.Unusable != err.Error() {
			t.Errorf("got %v, and in the status %q", err, status.Unusable)
		}
		server.mended.Store(true)
		pass(2 * lastAskPause)
		status = ClusterStatus{}
		if j.verdictOn("west", &status); status.Unusable != "" {
			t.Errorf("once it says so: %q", status.Unusable)
		}
		if err := j.usable(t.Context(), "west"); err != nil {
			t.Errorf("once it says so: %v", err)
		}
	})
}

// A server that is dead behind a load balancer leaves its connections open, and HTTP/2 would keep to them.
func TestADeadConnectionIsNotTheCluster(t *testing.T) {
	var dead, last atomic.Value // far ends of connections
	over := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last.Store(r.RemoteAddr)
		if dead.CompareAndSwap(nil, r.RemoteAddr) || dead.Load() != r.RemoteAddr {
			_, _ = io.WriteString(w, `{"gitVersion":"v1.37.2"}`)
			return
		}
		select {
		case <-r.Context().Done():
		case <-over:
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	defer close(over)
	config := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	via, err := engage.Connect(fakeCluster{config: config})
	must.Succeed(t, err)
	c, heard, silent := realCluster{via: via}, &engage.Breaker{}, &engage.Breaker{}
	req, _ := http.NewRequest(http.MethodGet, "https://a/api/v1/pods/a", nil)
	if _, err := engage.Unfenced(&fakeServer{code: -1}, silent).RoundTrip(req); err == nil {
		t.Fatal("a server that isn't there answers")
	}
	for _, at := range []struct {
		when    string
		breaker *engage.Breaker
		fails   bool
	}{
		{"the connection is sound", heard, false}, {"it has died, and nobody knows", heard, true},
		{"another is used", heard, false}, {"that has died, and requests have found out", silent, false},
	} {
		if strings.HasPrefix(at.when, "that") {
			dead.Store(last.Load())
		}
		if err := ask(t.Context(), c, at.breaker); (err != nil) != at.fails {
			t.Errorf("%s: %v", at.when, err)
		}
	}
}
