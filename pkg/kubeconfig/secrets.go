package kubeconfig

import (
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Secrets selects the kubeconfig Secrets of a namespace: those whose [Label] is "true".
func Secrets(namespace string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == namespace && o.GetLabels()[Label] == "true"
	})
}
