package deploy

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
)

// A cluster that is home and workload at a time gets both folders. Its controllers aggregate roles, and make the Pods
// of our Deployment, in a namespace that enforces the Pod Security level restricted. Replicas have no more rights there
// than they need.
func TestUsersGetTheirRightsThroughKubernetesOwnRoles(t *testing.T) {
	plane := labtest.Workload(t, "both")
	labtest.Kubectl(t, plane, "apply", "--validate=strict", "-k", "../../config/replication/home")
	c := labtest.Client(t, plane)
	for _, role := range []string{"view", "edit", "admin"} {
		create(t, c, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "test-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: role}},
		})
	}
	ats, shards := "ats.cnat.programming-kubernetes.info", "shards.tenure.dev"
	for _, want := range []struct {
		user, verb, resource string
		allowed              bool
	}{
		{"view", "list", ats, true}, {"edit", "list", ats, true}, {"admin", "list", ats, true},
		{"view", "create", ats, false}, {"edit", "create", ats, true}, {"admin", "create", ats, true},
		{"edit", "deletecollection", ats, true}, {"admin", "update", ats + "/status", false},
		{"view", "watch", shards, true}, {"edit", "get", shards, true}, {"admin", "get", shards, true},
		{"view", "patch", shards, false}, {"edit", "patch", shards, true}, {"admin", "patch", shards, true},
		{"admin", "delete", shards, false}, {"admin", "create", shards, false}, {"admin", "repair", shards, false},
		{"admin", "patch", shards + "/status", false},
		{lab.AccountUser, "patch", shards, true}, {lab.AccountUser, "delete", shards, false},
		{lab.AccountUser, "repair", shards, false}, {lab.AccountUser, "delete", "secrets", false},
		{lab.AccountUser, "patch", "deployments.apps", true}, {lab.AccountUser, "delete", "deployments.apps", false},
		{lab.AccountUser, "create", "pods", true}, {lab.AccountUser, "delete", "pods", false},
	} {
		labtest.Eventually(t, fmt.Sprintf("may %s %s %s", want.user, want.verb, want.resource), func() error {
			return labtest.Allowed(t.Context(), c, want.allowed, want.user, want.verb, want.resource, lab.Namespace)
		})
	}
	labtest.Eventually(t, "the Deployment gets its Pods", func() error {
		deployment := &appsv1.Deployment{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: lab.Namespace, Name: "tenure"}, deployment); err != nil {
			return err
		}
		if n := deployment.Status.Replicas; n != 3 {
			return fmt.Errorf("%d Pods, want 3: %+v", n, deployment.Status.Conditions)
		}
		return nil
	})
}
