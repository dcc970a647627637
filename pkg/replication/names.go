package replication

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// Keys that the owner of a source sets on it.
const (
	// LabelReplicate asks for replication when its value is "true".
	LabelReplicate = "tenure.dev/replicate"
	// AnnotationClusters names the targets: * for all, or "west,east".
	AnnotationClusters = "tenure.dev/clusters"
	// AnnotationReplicas is duplicate (the default) or divide.
	AnnotationReplicas = "tenure.dev/replicas"
	// AnnotationTotal is what divide splits.
	AnnotationTotal = "tenure.dev/total"
	// AnnotationWeights says how divide splits: "west=3,east=1". The default weight is 1.
	AnnotationWeights = "tenure.dev/weights"
	// AnnotationOverrides is JSON: {"west":{"replicas":5,"images":{"container":"image"}}}.
	AnnotationOverrides = "tenure.dev/overrides"
)

// LabelTarget is what the owner of a namespace in a target sets on it to allow copies there. Its value is
// [TargetConfined] or [TargetUnrestricted].
const LabelTarget = "tenure.dev/replication-target"

// Keys that record state on a source.
const (
	// Finalizer keeps a source until its copies are deleted.
	Finalizer = "tenure.dev/replication"
	// AnnotationCopies names the clusters that may have a copy. It is written before the first request that could make
	// one. A name is removed when the API server there has said that it has no copy. A cluster with several names is
	// there under the one that AnnotationClusters uses, if it uses one alone.
	AnnotationCopies = "tenure.dev/copies"
	// AnnotationGivenUp names the targets whose share of a divided total has moved to the others.
	AnnotationGivenUp = "tenure.dev/given-up"
)

// Keys on a copy.
const (
	// AnnotationOwnerUID is the UID of the source. A sharded client derives the slot label from it.
	AnnotationOwnerUID = "tenure.dev/owner-uid"
	// AnnotationSource is the source as cluster/namespace/name.
	AnnotationSource = "tenure.dev/source"
	// AnnotationSourceCluster is the UID of the source's cluster, that of its namespace kube-system: other fleets may
	// have a cluster of the same name. A copy without it belongs to any source of the right name.
	AnnotationSourceCluster = "tenure.dev/source-cluster-uid"
	// AnnotationApplied is a digest of what was applied, so that a field that the source no longer has is noticed.
	AnnotationApplied = "tenure.dev/applied"
)

// FieldManager owns the fields of copies, and the condition of sources.
const FieldManager = "tenure-replication"

// prefix begins all labels and annotations of Tenure. They aren't copied.
const prefix = "tenure.dev/"

// labelSlot is the label that a sharded client sets on copies, and by which its caches select them.
const labelSlot = prefix + "slot"

// SourceOf returns the source that a copy belongs to: it has the same namespace and name. It returns false for a
// Deployment that carries none of our keys. That is good for enqueueing, and no proof of ownership.
func SourceOf(d client.Object) (types.NamespacedName, bool) {
	annotations, labels := d.GetAnnotations(), d.GetLabels()
	_, owned := annotations[AnnotationOwnerUID]
	_, sourced := annotations[AnnotationSource]
	_, applied := annotations[AnnotationApplied]
	// A sharded client's label is the only key left if a user removed the annotations.
	_, slotted := labels[labelSlot]
	return client.ObjectKeyFromObject(d), owned || sourced || applied || slotted
}

// IsSource reports whether a Deployment is to be copied, or was, and its copies aren't deleted yet.
func IsSource(d client.Object) bool {
	return d.GetLabels()[LabelReplicate] == "true" || slices.Contains(d.GetFinalizers(), Finalizer)
}

// sourceKey returns the value of AnnotationSource.
func sourceKey(cluster multicluster.ClusterName, key types.NamespacedName) string {
	return string(cluster) + "/" + key.Namespace + "/" + key.Name
}
