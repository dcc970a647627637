package lab_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
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
	t.Run("what it shows is late, and what it is asked for is current", func(t *testing.T) { late(t, f, second) })
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

// late watches ConfigMaps through both API servers while one is made.
func late(t *testing.T, f *lab.Fleet, server *localplane.Second) {
	ctx, cancel := context.WithTimeout(t.Context(), labtest.Patience)
	defer cancel()
	clients, streams := map[string]client.WithWatch{}, map[string]watch.Interface{}
	for name, config := range map[string]*rest.Config{"first": f.Planes.Cluster(lab.Home).RESTConfig(),
		"second": server.RESTConfig()} {
		var err error
		clients[name], err = client.NewWithWatch(config, client.Options{Scheme: lab.Scheme()})
		must.Succeed(t, err)
		streams[name], err = clients[name].Watch(ctx, &corev1.ConfigMapList{}, client.InNamespace("default"))
		must.Succeed(t, err)
		defer streams[name].Stop()
	}
	// arrival returns a channel that gets the time at which a server's watch shows an object. It is closed if the
	// watch ends before that.
	arrival := func(server, name string) <-chan time.Time {
		at := make(chan time.Time, 1)
		go func() {
			defer close(at)
			for e := range streams[server].ResultChan() {
				if m, ok := e.Object.(*corev1.ConfigMap); ok && m.Name == name {
					at <- time.Now()
					return
				}
			}
		}()
		return at
	}
	type look struct {
		name string
		lag  time.Duration
	}
	looks := []look{{"at-once", 0}, {"late", behind}, {"at-once-again", 0}}
	for tries := 0; len(looks) > 0; {
		c := looks[0]
		c.name = fmt.Sprint(c.name, "-", tries)
		server.Lag(c.lag)
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: c.name}}
		began, first, second := time.Now(), arrival("first", c.name), arrival("second", c.name)
		must.Succeed(t, clients["first"].Create(ctx, made))
		if c.lag > 0 { // its cache doesn't have the object yet, but a read that must be current gets it
			cached := &corev1.ConfigMapList{}
			err := clients["second"].List(ctx, cached, client.InNamespace("default"),
				&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}})
			stale := true
			for _, m := range cached.Items {
				stale = stale && m.Name != c.name
			}
			if err == nil && !stale && time.Since(began) < c.lag {
				err = errors.New("the cache of the second API server doesn't lag")
			}
			if err == nil {
				err = clients["second"].Get(ctx, client.ObjectKeyFromObject(made), made)
			}
			if err != nil {
				t.Error(err)
			}
		}
		firstAt, there := <-first
		secondAt, thereToo := <-second
		switch after := secondAt.Sub(began); {
		case !there || !thereToo:
			t.Fatalf("%s: a watch ended before it showed it", c.name)
		case after < c.lag:
			t.Errorf("%s: the second API server showed it after %v, want at least %v", c.name, after, c.lag)
		case c.lag == 0 && secondAt.Sub(firstAt) > behind && tries < 4: // a lag that stays would show each time
			tries++
			continue
		case c.lag == 0 && secondAt.Sub(firstAt) > behind:
			t.Errorf("%s: the second API server showed it %v after the first", c.name, secondAt.Sub(firstAt))
		}
		looks, tries = looks[1:], 0
	}
}
