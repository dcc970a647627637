package replication

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// converter knows the Deployment's schema: which lists are keyed, and by what.
var converter = newConverter()

func newConverter() managedfields.TypeConverter {
	scheme := runtime.NewScheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		panic(err) // A programming error: registering these types can't fail.
	}
	return applyconfigurations.NewTypeConverter(scheme)
}

// differences returns the fields of a configuration that a copy lacks or has with another value. Other fields of the
// copy don't count: defaults, sidecars, annotations of others.
func differences(config *unstructured.Unstructured, d *appsv1.Deployment) ([]string, error) {
	want, err := converter.ObjectToTyped(config, typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("comparing: what is wanted: %w", err)
	}
	have, err := typedCopy(d)
	if err != nil {
		return nil, err
	}
	comparison, err := want.Compare(have)
	if err != nil {
		return nil, fmt.Errorf("comparing: %w", err)
	}
	missing := comparison.Removed.Union(comparison.Modified).Leaves()
	var paths []string
	for path := range missing.All() {
		paths = append(paths, strings.TrimPrefix(path.String(), "."))
	}
	slices.Sort(paths)
	return append(paths, disordered(config, d)...), nil
}

// disordered returns the lists of a configuration whose entries a copy has in another order: containers that run one
// after the other, and variables that name each other. What the copy has beside them doesn't count.
func disordered(config *unstructured.Unstructured, d *appsv1.Deployment) (paths []string) {
	const pod = "spec.template.spec."
	spec, _, _ := unstructured.NestedFieldNoCopy(config.Object, "spec", "template", "spec")
	pods, _ := spec.(map[string]any)
	for list, have := range map[string][]corev1.Container{
		"initContainers": d.Spec.Template.Spec.InitContainers, "containers": d.Spec.Template.Spec.Containers,
	} {
		want, _ := pods[list].([]any)
		var names []string
		for _, c := range have {
			names = append(names, c.Name)
			of := slices.IndexFunc(want, func(w any) bool { return nameOf(w) == c.Name })
			if of < 0 {
				continue
			}
			env, _ := want[of].(map[string]any)["env"].([]any)
			var variables []string
			for _, v := range c.Env {
				variables = append(variables, v.Name)
			}
			if !inOrder(env, variables) {
				paths = append(paths, fmt.Sprintf("%s%s[name=%q].env", pod, list, c.Name))
			}
		}
		if !inOrder(want, names) {
			paths = append(paths, pod+list)
		}
	}
	slices.Sort(paths)
	return paths
}

// inOrder reports whether the entries that two lists have in common are in the same order.
func inOrder(want []any, have []string) bool {
	at := 0
	for _, w := range want {
		i := slices.Index(have, nameOf(w))
		if i >= 0 && i < at {
			return false
		}
		at = max(at, i)
	}
	return true
}

func nameOf(entry any) string {
	m, _ := entry.(map[string]any)
	name, _ := m["name"].(string)
	return name
}

func typedCopy(d *appsv1.Deployment) (*typed.TypedValue, error) {
	// Status and managed fields aren't compared, and converting them is expensive.
	bare := &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name, Labels: d.Labels,
			Annotations: d.Annotations},
		Spec: d.Spec,
	}
	value, err := converter.ObjectToTyped(bare, typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("comparing: the copy: %w", err)
	}
	return value, nil
}

// DefaultScalers are the field managers whose spec.replicas is left alone. A HorizontalPodAutoscaler writes as the
// program that it runs in: the controller manager, or all of k3s or MicroK8s.
var DefaultScalers = []string{"kube-controller-manager", "k3s", "kubelite"}

// replicasTaken reports whether spec.replicas of a copy belongs to somebody else: a scaler, or anybody who set it by
// server-side apply. A plain write by anybody else (kubectl scale, kubectl edit) is drift.
func replicasTaken(fields []metav1.ManagedFieldsEntry, scalers []string) bool {
	return slices.ContainsFunc(fields, func(entry metav1.ManagedFieldsEntry) bool {
		theirs := entry.Operation == metav1.ManagedFieldsOperationApply || slices.Contains(scalers, entry.Manager)
		return entry.Manager != FieldManager && theirs && holdsReplicas(entry)
	})
}

// appliedByUs reports whether our field manager has applied a Deployment as a copy. The status that it applies to a
// source says nothing of the kind.
func appliedByUs(fields []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(fields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply &&
			entry.Subresource == ""
	})
}
