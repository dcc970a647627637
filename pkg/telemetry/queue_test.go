package telemetry

import (
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// newToldRig makes a rig that keeps what it tells of reconciles.
func newToldRig(t *testing.T, settings Settings) (*rig, *[]Reconciled) {
	t.Helper()
	list := &[]Reconciled{}
	return newRig(t, Config{Settings: settings, Reconciled: func(r Reconciled) { *list = append(*list, r) }}), list
}

func TestWhyAndWhenAKeyIsReady(t *testing.T) {
	low := -100
	type queue = priorityqueue.PriorityQueue[mcreconcile.Request]
	for name, c := range map[string]struct {
		add              func(q queue)
		delay            time.Duration // from add to ready
		trigger, attempt string
	}{
		"an event":   {func(q queue) { q.Add(testKey) }, 0, "event", "1"},
		"a due time": {func(q queue) { q.AddAfter(testKey, 50*time.Millisecond) }, 50 * time.Millisecond, "timer", "1"},
		"an event before a timer": {func(q queue) { q.AddAfter(testKey, time.Hour); q.Add(testKey) },
			0, "event", "1"},
		"a timer that comes later": {func(q queue) { q.Add(testKey); q.AddAfter(testKey, time.Hour) },
			0, "event", "1"},
		"a failure": {func(q queue) { q.AddRateLimited(testKey) }, time.Millisecond, "retry", "2"},
		"a failure, with options": {func(q queue) { q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, testKey) },
			time.Millisecond, "retry", "2"},
		"an event before a retry": {func(q queue) { q.AddRateLimited(testKey); q.Add(testKey) }, 0, "event", "2"},
		"a shard that came": {func(q queue) { q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, testKey) },
			0, "backfill", "1"},
		"a shard that came, then an event": {func(q queue) {
			q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, testKey)
			q.Add(testKey)
		}, 0, "event", "1"},
	} {
		for _, settings := range []Settings{{}, always()} {
			t.Run(fmt.Sprintf("%s, traced %v", name, settings.Enabled), func(t *testing.T) {
				r, list := newToldRig(t, settings)
				before := time.Now()
				c.add(r.queue)
				r.reconcile(t, fine)
				if len(*list) != 1 {
					t.Fatalf("told of %d reconciles, want 1", len(*list))
				}
				got := (*list)[0]
				if got.ReadyUnknown || got.Backfill != (c.trigger == "backfill") || got.Request != testKey {
					t.Errorf("told of %+v by %s", got, c.trigger)
				}
				if got.Ready.Before(before.Add(c.delay)) || got.Ready.After(got.Start) || got.Start.After(got.End) {
					t.Errorf("ready %v after it was added and %v before it was taken; want at least %v after",
						got.Ready.Sub(before), got.Start.Sub(got.Ready), c.delay)
				}
				if !settings.Enabled {
					return
				}
				traced := attributes(find(t, r.sent(t), "reconcile At"))
				if traced["tenure.trigger"] != c.trigger || traced["tenure.attempt"] != c.attempt {
					t.Errorf("trigger %s, attempt %s", traced["tenure.trigger"], traced["tenure.attempt"])
				}
			})
		}
	}
}

func TestAKeyAddedWhileItIsInWorkIsAReconcileOfItsOwn(t *testing.T) {
	r, list := newToldRig(t, Settings{})
	r.queue.Add(testKey)
	key, _ := r.queue.Get()
	r.queue.Add(testKey)
	time.Sleep(40 * time.Millisecond)
	r.queue.Done(key)
	r.reconcile(t, fine)
	if len(*list) != 1 {
		t.Fatalf("told of %d reconciles, want 1", len(*list))
	}
	if wait := (*list)[0].Start.Sub((*list)[0].Ready); wait < 39*time.Millisecond {
		t.Errorf("the second waited %v: it was ready while the first was in work", wait)
	}
}

// A provider's names may have slashes: its clusters aren't one for that.
func TestAClusterWithSlashesInItsNameIsOneOfItsOwn(t *testing.T) {
	for name, want := range map[multicluster.ClusterName]struct{ cluster, shard string }{
		"west":              {"west", ""},
		"west/":             {"west", "west/"},
		"west/01@2":         {"west", "west/01@2"},
		"team/west":         {"team/west", ""},
		"team/west/01":      {"team/west", "team/west/01"},
		"team/west-1/101@3": {"team/west-1", "team/west-1/101@3"},
	} {
		t.Run(string(name), func(t *testing.T) {
			r := newRig(t, Config{Settings: always()})
			key := testKey
			key.ClusterName = name
			r.queue.Add(key)
			if all := r.Backlogs(); len(all) != 1 || all[0].Cluster != want.cluster {
				t.Errorf("the queue has %+v, want a key of %s", all, want.cluster)
			}
			r.reconcile(t, fine)
			got := attributes(find(t, r.sent(t), "reconcile At"))
			if got["k8s.cluster.name"] != want.cluster || got["tenure.shard"] != want.shard {
				t.Errorf("the trace is about shard %q of cluster %q, want %q of %q",
					got["tenure.shard"], got["k8s.cluster.name"], want.shard, want.cluster)
			}
		})
	}
}
