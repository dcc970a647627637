package lab_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/bench/witness"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/must"
)

// behind is how far the second API server of home lags: long enough to be told from a busy machine, short enough for
// Leases to be renewed through it.
const behind = 1500 * time.Millisecond

func TestAReplicaBehindAnAPIServerThatLagsIsStillRight(t *testing.T) {
	f := labtest.Fleet(t, lab.Options{Workloads: []string{"west"}, LeaseDuration: 10 * time.Second})
	second, err := f.Planes.Cluster(lab.Home).StartSecond(t.Context())
	must.Succeed(t, err)
	if _, err := f.Planes.Cluster(lab.Home).StartSecond(t.Context()); err == nil {
		t.Error("a third API server was started")
	}
	t.Run("its cache is late, and what it reads from etcd isn't", func(t *testing.T) { late(t, f, second) })
	second.Lag(behind)
	labtest.Replica(t, f, "first")
	must.Succeed(t, f.PutBehind(second, "lagging"))
	labtest.Replica(t, f, "lagging")
	labtest.Settle(t, f, 2*labtest.Patience)
	var facts witness.Facts
	const ats = 40
	facts.Ats = labtest.CreateAts(t, f.Client("west"), "west", "at", ats, func(i int) time.Time {
		return time.Now().Add(time.Duration(i) * 500 * time.Millisecond)
	})
	// After a crash of first, the replica behind the lagging server gets all of its shards. Then third gets half of
	// them.
	f.Replicas()[0].Kill()
	labtest.Settle(t, f, 2*labtest.Patience)
	labtest.Replica(t, f, "third")
	labtest.Settle(t, f, 2*labtest.Patience)
	labtest.Done(t, f.Client("west"), ats, 2*labtest.Patience)
	labtest.Leave(t, f.Replicas()...)
	report := labtest.Judge(t, f, facts)
	if report.Moves.Crash == 0 {
		t.Error("nothing moved by a crash")
	}
}

func late(t *testing.T, f *lab.Fleet, second *localplane.Second) {
	through, err := client.New(second.RESTConfig(), client.Options{Scheme: lab.Scheme()})
	must.Succeed(t, err)
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late"}}
	first := f.Client(lab.Home)
	isCached := func(server client.Client) bool {
		var cached corev1.ConfigMapList
		must.Succeed(t, server.List(t.Context(), &cached, client.InNamespace("default"),
			&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}))
		return slices.ContainsFunc(cached.Items, func(m corev1.ConfigMap) bool { return m.Name == made.Name })
	}
	isCached(through) // it connects while nothing lags
	second.Lag(time.Hour)
	must.Succeed(t, first.Create(t.Context(), made))
	labtest.Until(t, "the first server's cache has the object", func() bool { return isCached(first) })
	time.Sleep(300 * time.Millisecond) // for a cache that doesn't lag to get it, too
	if isCached(through) {
		t.Error("the cache of the second API server doesn't lag")
	}
	second.Lag(behind)
	must.Succeed(t, through.Get(t.Context(), client.ObjectKeyFromObject(made), made))
	second.Lag(0)
	labtest.Until(t, "its cache has caught up", func() bool { return isCached(through) })
}
