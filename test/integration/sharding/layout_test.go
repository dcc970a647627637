package sharding

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/must"
)

// A record beside those of the layout must never be claimed: its epoch would keep the rightful holders from
// writing.
func TestARecordThatTheLayoutDoesNotListIsNeverServedAndTold(t *testing.T) {
	r := newRig(t)
	const flag = "--lease-duration=10s" // a busy machine alone makes nobody lapse
	a := r.start("layout-a", flag)
	r.start("layout-b", flag)
	r.settle()
	before, home := r.holders(), r.Client(lab.Home)
	foreign := r.record("west.p0")
	foreign.Spec = tenurev1alpha1.ShardSpec{Cluster: "west", Prefix: "0", Assignee: "layout-a"}
	must.Succeed(t, home.Create(t.Context(), foreign))
	r.eventually("it is retired, unheld", func() error {
		err := home.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign)
		if err == nil && (foreign.Status.Phase != tenurev1alpha1.ShardRetired || foreign.Status.Holder != "" ||
			foreign.Status.Epoch != 0) {
			err = fmt.Errorf("it is %+v", foreign.Status)
		}
		return err
	})
	r.eventually("a metric and an event tell", func() error {
		odd, err := r.odd(a)
		events := &eventsv1.EventList{}
		if err == nil && odd != 1 {
			err = fmt.Errorf("%v odd records", odd)
		}
		if err := errors.Join(err, home.List(t.Context(), events, client.InNamespace(lab.Namespace))); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == inspect.Foreign && e.Regarding.Name == foreign.Name {
				return nil
			}
		}
		return fmt.Errorf("none of %d events tells", len(events.Items))
	})
	layout := r.record("west.layout")
	must.Succeed(t, home.Get(t.Context(), client.ObjectKeyFromObject(layout), layout))
	must.Succeed(t, home.Delete(t.Context(), layout))
	again := r.record("west.layout")
	r.eventually("the layout is made again, as it was", func() error {
		err := home.Get(t.Context(), client.ObjectKeyFromObject(again), again)
		if err == nil && (again.UID == layout.UID || cmp.Diff(layout.Spec, again.Spec) != "") {
			err = fmt.Errorf("it is %+v", again.Spec.Layout)
		}
		return err
	})
	must.Succeed(t, home.Delete(t.Context(), foreign))
	r.eventually("nothing is odd any more", func() error {
		odd, err := r.odd(a)
		if err == nil && odd != 0 {
			err = fmt.Errorf("%v odd records", odd)
		}
		return err
	})
	r.serves()
	expect.Equal(t, "shards have moved", before, r.holders(), cmp.AllowUnexported(tenure{}))
}

func (r *rig) record(name string) *tenurev1alpha1.Shard {
	return &tenurev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Namespace: lab.Namespace, Name: name}}
}

// odd returns how many records a replica counts as foreign.
func (r *rig) odd(a *lab.Replica) (float64, error) {
	m, err := a.Metrics(r.t.Context())
	if err != nil {
		return 0, err
	}
	return m.Sum("tenure_odd_records", nil)
}
