package kubeconfig

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// RolesAnnotation of a cluster's Secret says what the cluster is for: roles, separated by commas. A cluster whose
// Secret doesn't say it may be for anything.
const RolesAnnotation = "tenure.dev/cluster-roles"

// RoleDeployments is the role of a cluster that keeps copies of Deployments.
const RoleDeployments = "deployments"

// KeepsCopies reports whether the cluster of a Secret may be for copies of Deployments.
func KeepsCopies(secret *corev1.Secret) bool {
	roles := secret.Annotations[RolesAnnotation]
	return roles == "" || slices.ContainsFunc(strings.Split(roles, ","), func(role string) bool {
		return strings.TrimSpace(role) == RoleDeployments
	})
}
