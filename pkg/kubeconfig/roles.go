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

// RolesOf returns the roles that a cluster's Secret says; none if it doesn't say any.
func RolesOf(secret *corev1.Secret) (roles []string) {
	for role := range strings.SplitSeq(secret.Annotations[RolesAnnotation], ",") {
		if role = strings.TrimSpace(role); role != "" {
			roles = append(roles, role)
		}
	}
	return roles
}

// KeepsCopies reports whether the cluster of a Secret may be for copies of Deployments. Roles that this version doesn't
// know are for something else.
func KeepsCopies(secret *corev1.Secret) bool {
	roles := RolesOf(secret)
	return len(roles) == 0 || slices.Contains(roles, RoleDeployments)
}
