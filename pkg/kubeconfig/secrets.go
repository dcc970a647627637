package kubeconfig

import (
	"bytes"
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Trim is a cache transform. Of a Secret it keeps the kubeconfig, and of one that is too long enough to be refused:
// whoever may create Secrets could fill the memory with the rest.
func Trim(object any) (any, error) {
	if s, ok := object.(*corev1.Secret); ok {
		text, found := s.Data[Key]
		s.ManagedFields, s.Data = nil, nil
		if found {
			s.Data = map[string][]byte{Key: bytes.Clone(text[:min(len(text), maxText+1)])}
		}
	}
	return object, nil
}

// List reads the kubeconfig Secrets of a namespace: those that [Secrets] selects.
func List(ctx context.Context, reader client.Reader, namespace string) ([]corev1.Secret, error) {
	all := &corev1.SecretList{}
	err := reader.List(ctx, all, client.InNamespace(namespace), client.MatchingLabels{Label: "true"})
	return all.Items, err
}

// Secrets selects the kubeconfig Secrets of a namespace: those whose [Label] is "true".
func Secrets(namespace string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == namespace && o.GetLabels()[Label] == "true"
	})
}
