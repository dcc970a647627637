package kubeconfig

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAClusterKeepsCopiesUnlessItsRolesSayOtherwise(t *testing.T) {
	for roles, want := range map[string]bool{
		"": true, "deployments": true, "ats,deployments": true, "ats, deployments": true,
		"ats": false, "ats,deployment-source": false, " , ": true, "ats,one of a later version": false,
	} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{RolesAnnotation: roles}}}
		if got := KeepsCopies(secret); got != want {
			t.Errorf("roles %q: %v", roles, got)
		}
	}
	if !KeepsCopies(&corev1.Secret{}) {
		t.Error("without the annotation, as in a Secret that somebody made by hand, the cluster keeps none")
	}
}
