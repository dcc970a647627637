package shard

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// What a shard's caches hold is enqueued at the time that it is due, the longest overdue first, and otherwise behind what
// is live.
func TestBackfillKeepsToWhatIsDueWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := priorityqueue.New[mcreconcile.Request]("test")
		defer q.ShutDown()
		now := time.Now()
		dues := map[string]time.Time{"later": now.Add(time.Minute), "overdue": now.Add(-time.Second), "long overdue": now.Add(-time.Hour)}
		s := &kindSource{
			keys: ownKey, filter: predicate.And[client.Object](), queue: q,
			due: func(o client.Object) time.Time { return dues[o.GetName()] },
		}
		var objects []client.Object
		for _, name := range []string{"untimed", "later", "overdue", "long overdue"} {
			o := &corev1.ConfigMap{}
			o.Name = name
			objects = append(objects, o)
		}
		e := &engagement{}
		s.backfill(e, slices.Values(objects))
		event := &corev1.ConfigMap{}
		event.Name = "event"
		s.enqueue(e, event, live)
		synctest.Wait()
		var got []string
		for range 5 {
			req, _ := q.Get()
			q.Done(req)
			got = append(got, req.Name)
		}
		if want := []string{"long overdue", "overdue", "event", "untimed", "later"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if waited := time.Since(now); waited != time.Minute {
			t.Errorf("the last came after %v", waited)
		}
	})
}
