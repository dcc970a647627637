package telemetry

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// newToldRig makes a rig that keeps what it tells of reconciles.
func newToldRig(t *testing.T) (*rig, *[]Reconciled) {
	t.Helper()
	list := &[]Reconciled{}
	return newRig(t, Config{Reconciled: func(r Reconciled) { *list = append(*list, r) }}), list
}

func TestAKeyIsReadyWhenItsEarliestAdditionIsDue(t *testing.T) {
	low := -100
	type queue = priorityqueue.PriorityQueue[mcreconcile.Request]
	for name, c := range map[string]struct {
		add      func(q queue)
		delay    time.Duration // from add to ready
		backfill bool
	}{
		"at once": {add: func(q queue) { q.Add(testKey) }},
		"after a delay": {add: func(q queue) { q.AddAfter(testKey, 50*time.Millisecond) },
			delay: 50 * time.Millisecond},
		"a delay cut short":         {add: func(q queue) { q.AddAfter(testKey, time.Hour); q.Add(testKey) }},
		"a delay after an addition": {add: func(q queue) { q.Add(testKey); q.AddAfter(testKey, time.Hour) }},
		"after a failure":           {add: func(q queue) { q.AddRateLimited(testKey) }, delay: time.Millisecond},
		"after a failure, with options": {add: func(q queue) {
			q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, testKey)
		}, delay: time.Millisecond},
		"as backfill": {add: func(q queue) {
			q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, testKey)
		}, backfill: true},
		"as backfill, then by an event": {add: func(q queue) {
			q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, testKey)
			q.Add(testKey)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, list := newToldRig(t)
			before := time.Now()
			c.add(r.queue)
			r.reconcile(t, fine)
			if len(*list) != 1 {
				t.Fatalf("told of %d reconciles, want 1", len(*list))
			}
			got := (*list)[0]
			if got.ReadyUnknown || got.Backfill != c.backfill || got.Request != testKey {
				t.Errorf("told of %+v; want backfill %v", got, c.backfill)
			}
			if got.Ready.Before(before.Add(c.delay)) || got.Ready.After(got.Start) || got.Start.After(got.End) {
				t.Errorf("ready %v after it was added and %v before it was taken; want at least %v after", got.Ready.Sub(before),
					got.Start.Sub(got.Ready), c.delay)
			}
		})
	}
}

func TestAKeyAddedWhileItIsInWorkIsAReconcileOfItsOwn(t *testing.T) {
	r, list := newToldRig(t)
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
