package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

func TestClustersThatComeAndGoLeaveLittleBehind(t *testing.T) {
	cs := newClusterSet(logr.Discard(), 0, kubeconfig.Limits{})
	add := func(ctx context.Context, name keyspace.ClusterName) {
		addCluster(ctx, t, cs, name, rest.Config{Host: "https://127.0.0.1:1"})
	}
	stay, leave := context.WithCancel(t.Context())
	defer leave()
	add(stay, "west")
	_, west := cs.get("west")
	west.Kept.Add(7)
	for i := range 50 * maxGone {
		name := keyspace.ClusterName(fmt.Sprint("cluster-", i))
		ctx, end := context.WithCancel(stay)
		add(ctx, name)
		_, traffic := cs.get(name)
		traffic.Kept.Add(1)
		cs.remove(name, cs.last)
		end()
		if i%maxGone == 0 { // a connection that is replaced
			cs.remove("west", cs.clusters["west"].clusterNo)
			add(stay, "west")
		}
		if n := len(cs.status()); n > maxGone+2 {
			t.Fatalf("after %d clusters that came and went, %d are remembered", i+1, n)
		}
	}
	if got := cs.status()["west"]; got.Kept != 7 || !got.Known {
		t.Errorf("the cluster that stayed: %+v", got)
	}
}

func TestARemovedClusterIsForgottenAfterAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := newClusterSet(logr.Discard(), 0, kubeconfig.Limits{})
		comeAndGo := func() {
			addCluster(t.Context(), t, cs, "west", rest.Config{Host: "https://127.0.0.1:1"})
			cs.remove("west", cs.last)
		}
		comeAndGo()
		_, west := cs.get("west")
		west.Kept.Add(7)
		for _, again := range []bool{true, false} {
			time.Sleep(goneFor - time.Minute)
			if again {
				comeAndGo()
			}
			if got := cs.status()["west"]; got.Kept != 7 {
				t.Errorf("before an hour is over, its counters are gone: %+v", got)
			}
		}
		time.Sleep(2 * time.Minute)
		if n := len(cs.status()) + len(cs.removed); n > 0 {
			t.Errorf("an hour after it was removed, %d things are remembered of it", n)
		}
	})
}

// Names may come from objects, and so be any and many.
func TestNamesThatAreAskedForAreNotRemembered(t *testing.T) {
	cs := newClusterSet(logr.Discard(), 0, kubeconfig.Limits{})
	m := &Manager{node: &node{clusters: cs}}
	m.node.judge.Store(newJudge(cs, newRoster(Config{}), DefaultLeaseDuration, logr.Discard(), nil, nil))
	for i := range 1000 {
		name := multicluster.ClusterName(fmt.Sprint("cluster-", i))
		if wait, trial := m.PutOff(name, "default"); wait != 0 || trial {
			t.Fatalf("a cluster that isn't there is put off for %v (on trial: %v)", wait, trial)
		}
		if err := m.Ask(t.Context(), name); !errors.Is(err, multicluster.ErrClusterNotFound) {
			t.Fatalf("a cluster that isn't there can be used? %v", err)
		}
	}
	if n := len(cs.status()); n != 0 {
		t.Errorf("%d clusters are told of, and there is none", n)
	}
}

func TestAClustersOwnLimitsReplaceThoseOfAll(t *testing.T) {
	all, own := kubeconfig.Limits{QPS: 10}, kubeconfig.Limits{Writes: 2}
	cs := newClusterSet(logr.Discard(), 0, all)
	limits := func(name keyspace.ClusterName) kubeconfig.Limits {
		_, traffic := cs.get(name)
		_, _, limits := traffic.Writes()
		return limits
	}
	cs.setLimits("east", &own) // before it is known
	if limits("west") != all || limits("east") != own {
		t.Errorf("%v and %v", limits("west"), limits("east"))
	}
	cs.setLimits("west", &own)
	cs.setLimits("east", nil)
	if limits("west") != own || limits("east") != all {
		t.Errorf("after a change: %v and %v", limits("west"), limits("east"))
	}
	m := &Manager{node: &node{clusters: cs, log: logr.Discard()}}
	for _, senseless := range []kubeconfig.Limits{{QPS: -1}, {Writes: -1}, {QPS: 1, Burst: -1}} {
		if m.SetLimits("west", &senseless); limits("west") != own {
			t.Errorf("%v was taken", senseless)
		}
	}
	if m.SetLimits("west", nil); limits("west") != all {
		t.Errorf("at last: %v", limits("west"))
	}
}

func TestOneClusterIsFoundWithoutCopyingAll(t *testing.T) {
	cs := newClusterSet(logr.Discard(), 0, kubeconfig.Limits{})
	for i := range 100 {
		name := keyspace.ClusterName(fmt.Sprint("c", i))
		addCluster(t.Context(), t, cs, name, rest.Config{Host: "https://127.0.0.1:1"})
	}
	m := &Manager{node: &node{clusters: cs}}
	if n := testing.AllocsPerRun(100, func() { _, _ = m.Unfenced("c7") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAClusterOfSeveralNamesIsUsedByOne(t *testing.T) {
	type names = map[multicluster.ClusterName]multicluster.ClusterName
	type decision = map[keyspace.ClusterName]keyspace.ClusterName
	given := func(uids ...types.UID) map[keyspace.ClusterName]realCluster {
		all := map[keyspace.ClusterName]realCluster{}
		for i, uid := range uids {
			all[keyspace.ClusterName(string(rune('a'+i)))] = realCluster{uid: uid}
		}
		return all
	}
	for what, c := range map[string]struct {
		given   map[keyspace.ClusterName]realCluster
		decided decision
		want    names
	}{
		"each its own":               {given: given("1", "2", "3")},
		"not identified":             {given: given("", "", "1")},
		"nothing is decided yet":     {given: given("1", "2", "1", "1"), want: names{"c": "a", "d": "a"}},
		"decided":                    {given("1", "2", "1"), decision{"a": "c"}, names{"a": "c"}},
		"decided of a name less":     {given("1", "2", "1", "1"), decision{"a": "c"}, names{"a": "c", "d": "c"}},
		"it has become another":      {given("1", "2", "3"), decision{"a": "c"}, nil},
		"the name decided on is not": {given("1", "1"), decision{"a": "z", "b": "z"}, names{"b": "a"}},
	} {
		if got := aliases(c.given, c.decided); !maps.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", what, got, c.want)
		}
	}
}
