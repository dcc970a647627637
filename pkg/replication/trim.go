package replication

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// TrimSource is a cache transform for the cluster of the sources. Of a Deployment that isn't a source it keeps what
// shows that it once was one: all Deployments of a cluster could be large.
func TrimSource(object any) (any, error) {
	d, ok := object.(*appsv1.Deployment)
	if !ok || IsSource(d) {
		return object, nil
	}
	d.ManagedFields, d.Spec = nil, appsv1.DeploymentSpec{}
	maps.DeleteFunc(d.Annotations, func(key, _ string) bool { return !strings.HasPrefix(key, prefix) })
	return d, nil
}

// TrimCopy is a cache transform for copies. It drops what no decision from a cache depends on, which is about half of a
// Deployment's memory. Metadata and status alone wouldn't do: drift is found by comparing the spec. Of the managed
// fields, a cache is only asked who owns spec.replicas; of the conditions, whether a rollout is stalled.
func TrimCopy(object any) (any, error) {
	d, ok := object.(*appsv1.Deployment)
	if !ok {
		return object, nil // a tombstone, say
	}
	d.Status.Conditions = slices.DeleteFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type != appsv1.DeploymentProgressing
	})
	for i, c := range d.Status.Conditions {
		d.Status.Conditions[i] = appsv1.DeploymentCondition{Type: c.Type, Status: c.Status, Reason: c.Reason}
	}
	d.ManagedFields = slices.DeleteFunc(d.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		// Our own entry stays, emptied: it shows that managed fields were present.
		return entry.Manager != FieldManager && !holdsReplicas(entry)
	})
	for i := range d.ManagedFields {
		entry := &d.ManagedFields[i]
		entry.Time = nil
		if entry.FieldsV1 = nil; entry.Manager != FieldManager {
			entry.FieldsV1 = &metav1.FieldsV1{Raw: replicasOnly}
		}
	}
	return d, nil
}

var (
	replicasField = fieldpath.MakePathOrDie("spec", "replicas")
	replicasOnly  = []byte(`{"f:spec":{"f:replicas":{}}}`)
)

// holdsReplicas reports whether a managed-fields entry has spec.replicas.
func holdsReplicas(entry metav1.ManagedFieldsEntry) bool {
	if entry.FieldsV1 == nil {
		return false
	}
	set := &fieldpath.Set{}
	err := set.FromJSON(strings.NewReader(string(entry.FieldsV1.Raw)))
	return err == nil && set.Has(replicasField)
}
