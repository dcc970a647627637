package lab

import (
	"slices"
	"strings"
)

// ReplicaEnvironment is an environment without the variables that would set a replica's flags, its clusters or its
// tracing behind the caller's back.
func ReplicaEnvironment(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(entry string) bool {
		return slices.ContainsFunc([]string{"TENURE_", "OTEL_", "KUBECONFIG="}, func(prefix string) bool { return strings.HasPrefix(entry, prefix) })
	})
}
