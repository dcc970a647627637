package lab_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
)

func TestReplicasFindWhatConfigShipsAndNoMore(t *testing.T) {
	f := labtest.Fleet(t, lab.Options{
		Workloads: []string{"west"}, Bare: true, Untold: true, Direct: true, Replication: true, Tenure: "none is started",
	})
	t.Run("rights", func(t *testing.T) {
		for _, c := range []struct {
			cluster, verb, what, namespace string
			want                           bool
		}{
			{lab.Home, "patch", "shards.tenure.dev", lab.Namespace, true},
			{lab.Home, "delete", "shards.tenure.dev", lab.Namespace, false},
			{lab.Home, "repair", "shards.tenure.dev", "", false},
			{lab.Home, "patch", "deployments.apps", "shop", true},
			{lab.Home, "delete", "deployments.apps", "shop", false},
			{lab.Home, "delete", "secrets", lab.Namespace, false},
			{"west", "create", "pods", "shop", true},
			{"west", "delete", "pods", "shop", false},
		} {
			labtest.Eventually(t, "in "+c.cluster, func() error {
				return labtest.Allowed(t.Context(), f.Client(c.cluster), c.want, lab.AccountUser, c.verb, c.what, c.namespace)
			})
		}
	})
	t.Run("clusters come, are told of anew, and go", func(t *testing.T) {
		for range 2 {
			if err := f.AddCluster(t.Context(), "west", "west"); err != nil {
				t.Fatal(err)
			}
		}
		clusters := func() int {
			list := &corev1.SecretList{}
			err := f.Client(lab.Home).List(t.Context(), list, client.InNamespace(lab.Namespace),
				client.MatchingLabels{lab.ClusterLabel: "true"})
			if err != nil {
				t.Fatal(err)
			}
			return len(list.Items)
		}
		if n := clusters(); n != 1 {
			t.Errorf("%d clusters, want 1", n)
		}
		if err := f.RemoveCluster(t.Context(), "west"); err != nil {
			t.Fatal(err)
		}
		if n := clusters(); n != 0 {
			t.Errorf("%d clusters after the removal, want 0", n)
		}
	})
	t.Run("a namespace takes Pods although no controller manager runs", func(t *testing.T) {
		if err := lab.AddNamespace(t.Context(), f.Client("west"), "shop"); err != nil {
			t.Fatal(err)
		}
		account := &corev1.ServiceAccount{}
		if err := f.Client("west").Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "default"},
			account); err != nil {
			t.Error(err)
		}
	})
}
