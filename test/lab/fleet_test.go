package lab_test

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
)

// allowed asks an API server what the replicas' account may do, with the account's own kubeconfig.
func allowed(t *testing.T, f *lab.Fleet, cluster, verb, group, resource, namespace string) bool {
	t.Helper()
	path, err := f.Kubeconfig(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource,
			Namespace: namespace},
	}}
	answer, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Allowed
}

func TestReplicasFindWhatConfigShipsAndNoMore(t *testing.T) {
	f := labtest.Fleet(t, lab.Options{
		Workloads: []string{"west"}, Bare: true, Untold: true, Direct: true, Replication: true, Tenure: "none is started",
	})
	t.Run("rights", func(t *testing.T) {
		for _, c := range []struct {
			cluster, verb, group, resource, namespace string
			want                                      bool
		}{
			{lab.Home, "patch", "tenure.dev", "shards", lab.Namespace, true},
			{lab.Home, "delete", "tenure.dev", "shards", lab.Namespace, false},
			{lab.Home, "repair", "tenure.dev", "shards", "", false},
			{lab.Home, "patch", "apps", "deployments", "shop", true},
			{lab.Home, "delete", "apps", "deployments", "shop", false},
			{lab.Home, "delete", "", "secrets", lab.Namespace, false},
			{"west", "create", "", "pods", "shop", true},
			{"west", "delete", "", "pods", "shop", false},
		} {
			if got := allowed(t, f, c.cluster, c.verb, c.group, c.resource, c.namespace); got != c.want {
				t.Errorf("%s %s in %s: allowed = %v, want %v", c.verb, c.resource, c.cluster, got, c.want)
			}
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
