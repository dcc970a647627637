package shard

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

func TestOnlyAClusterOfWhichSomethingIsHeldKeepsAConnection(t *testing.T) {
	clusters, roster := newFleet(logr.Discard(), 0), newRoster(Config{})
	opened, closed := map[keyspace.ClusterName]*atomic.Int64{}, map[keyspace.ClusterName]*atomic.Int64{}
	for _, name := range []keyspace.ClusterName{"held", "other"} {
		in, out := &atomic.Int64{}, &atomic.Int64{}
		opened[name], closed[name] = in, out
		server := httptest.NewUnstartedServer(http.NotFoundHandler())
		server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				in.Add(1)
			case http.StateClosed:
				out.Add(1)
			}
		}
		server.Start()
		t.Cleanup(server.Close)
		if err := clusters.add(t.Context(), name, fakeCluster{config: &rest.Config{Host: server.URL}}); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(name keyspace.ClusterName) {
		c, _ := clusters.get(name)
		_, _ = c.via.Identify(t.Context()) // any answer will do
	}
	ask("held")
	ask("other")
	roster.put("held/", &engagement{id: keyspace.ShardID{Cluster: "held"}})
	j := newJudge(clusters, roster, 10*time.Second, logr.Discard(), func(driver.Event) {}, func(func()) {})
	now := time.Now()
	for range 3 {
		j.due(now)
		now = now.Add(restsAfter*j.every + time.Second)
	}
	for end := time.Now().Add(time.Minute); closed["other"].Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the connection to the other cluster stays open")
		}
	}
	ask("held")
	if n := opened["held"].Load(); n != 1 {
		t.Errorf("%d connections to the cluster that is held, one after the other", n)
	}
}
