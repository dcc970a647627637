package integration

import (
	"fmt"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
)

// The same binary, with the same rights, elects a leader instead of sharing the work.
func TestAReplicaWithoutShardingLeads(t *testing.T) {
	f := labtest.Fleet(t, lab.Options{Workloads: []string{"west"}, Direct: true})
	labtest.Replica(t, f, "r1", "--sharding=off")
	status := wantResult(t, f.Client("west"), newAt(t, f.Client("west"), "led", nil), cnatv1alpha1.AtSucceeded)
	if status.Epoch != 0 {
		t.Errorf("epoch %d without a tenure", status.Epoch)
	}
	lease := &coordinationv1.Lease{}
	if err := f.Client(lab.Home).Get(t.Context(), client.ObjectKey{Namespace: lab.Namespace, Name: "tenure-leader"},
		lease); err != nil {
		t.Error(err)
	}
	labtest.Eventually(t, "an event names the leader", func() error {
		events := &eventsv1.EventList{}
		if err := f.Client(lab.Home).List(t.Context(), events, client.InNamespace(lab.Namespace)); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == "LeaderElection" {
				return nil
			}
		}
		return fmt.Errorf("%d events, none of them that", len(events.Items))
	})
}
