package lab

import (
	"context"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenure-dev/tenure/test/lab/localplane"
)

func startForTest(t *testing.T) *Site {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	planes, err := localplane.Start(ctx, localplane.Config{
		Clusters: []localplane.ClusterConfig{{Name: Home}, {Name: "west"}}, TmpfsData: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := planes.Stop(); err != nil {
			t.Error(err)
		}
	})
	f, err := Install(ctx, planes, SiteConfig{Replication: true, UserAgent: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// allowed asks an API server what the replicas' account may do, with the account's own kubeconfig.
func allowed(t *testing.T, f *Site, cluster, verb, group, resource, namespace string) bool {
	t.Helper()
	path, err := f.Kubeconfig(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Namespace: namespace},
	}}
	answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Allowed
}

func TestReplicasFindWhatConfigShipsAndNoMore(t *testing.T) {
	f := startForTest(t)
	t.Run("rights", func(t *testing.T) {
		for _, c := range []struct {
			cluster, verb, group, resource, namespace string
			want                                      bool
		}{
			{Home, "update", "tenure.dev", "shards", Namespace, true},
			{Home, "patch", "apps", "deployments", "shop", true},
			{Home, "delete", "apps", "deployments", "shop", false},
			{Home, "delete", "", "secrets", Namespace, false},
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
			if err := f.AddCluster(t.Context(), "west"); err != nil {
				t.Fatal(err)
			}
		}
		clusters := func() int {
			list, err := f.Client(Home).CoreV1().Secrets(Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: ClusterLabel + "=true"})
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
		if err := f.AddNamespace(t.Context(), "west", "shop"); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Client("west").CoreV1().ServiceAccounts("shop").Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})
}
