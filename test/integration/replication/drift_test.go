package replication

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

// drift is something that somebody does to a copy, and how one sees that it was undone.
type drift struct {
	name   string
	patch  string // a merge patch; "" deletes the copy
	undone func(now *appsv1.Deployment, before types.UID) bool
}

var drifts = []drift{
	{"replicas scaled", `{"spec":{"replicas":0}}`,
		func(d *appsv1.Deployment, _ types.UID) bool { return *d.Spec.Replicas == 1 }},
	{"image edited", `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"evil"}]}}}}`,
		func(d *appsv1.Deployment, _ types.UID) bool {
			return d.Spec.Template.Spec.Containers[0].Image == "web:1"
		}},
	{"label removed", `{"metadata":{"labels":{"team":null}}}`,
		func(d *appsv1.Deployment, _ types.UID) bool { return d.Labels["team"] == "shop" }},
	{"slot label removed", `{"metadata":{"labels":{"tenure.dev/slot":null}}}`,
		func(d *appsv1.Deployment, _ types.UID) bool { return d.Labels["tenure.dev/slot"] != "" }},
	{"copy deleted", "",
		func(d *appsv1.Deployment, before types.UID) bool { return d.UID != before }},
}

// driftsAreRepaired makes one drift after another. Most find the rollout of the one before still under way, so a repair
// races with the Deployment controller.
func driftsAreRepaired(t *testing.T, f *lab.Fleet) {
	var writes, repairs []time.Duration
	for _, target := range targets {
		for i := range sources {
			for _, d := range drifts {
				write, repair := suffer(t, f.Client(target), name(i), d)
				writes, repairs = append(writes, write), append(repairs, repair)
			}
		}
	}
	slices.Sort(writes)
	slices.Sort(repairs)
	// The test only distinguishes repairs that events cause from those that a timer causes: the shortest timer is 250 ms,
	// for a failure, and most are seconds. Added to that is the time that an API server takes for a write in the same
	// moment, for the few requests of a repair and as many of other controllers.
	for percent, most := range map[int]time.Duration{50: 250 * time.Millisecond, 99: 2 * time.Second} {
		at := len(repairs) * percent / 100
		if most += 10 * writes[at]; repairs[at] > most {
			t.Errorf("p%d of %d repairs: %v, want at most %v: this isn't repair by event", percent, len(repairs), repairs[at],
				most)
		}
	}
}

// suffer makes a drift and waits for its repair. It returns how long each took.
func suffer(t *testing.T, c client.Client, name string, d drift) (write, repair time.Duration) {
	t.Helper()
	ctx, key, copied := t.Context(), client.ObjectKey{Namespace: "default", Name: name}, &appsv1.Deployment{}
	must.Succeed(t, c.Get(ctx, key, copied))
	before, began := copied.UID, time.Now()
	if d.patch == "" {
		must.Succeed(t, c.Delete(ctx, copied))
	} else {
		must.Succeed(t, c.Patch(ctx, copied, client.RawPatch(types.StrategicMergePatchType, []byte(d.patch)),
			client.FieldOwner("kubectl-edit")))
	}
	committed := time.Now()
	labtest.Until(t, d.name+" of "+name+" is repaired", func() bool {
		now := &appsv1.Deployment{}
		return c.Get(ctx, key, now) == nil && d.undone(now, before)
	})
	return committed.Sub(began), time.Since(committed)
}
