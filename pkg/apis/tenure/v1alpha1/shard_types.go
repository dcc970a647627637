package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Shard records who owns one part of a cluster's hash space.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=shards,singular=shard,shortName=shd,scope=Namespaced,categories=tenure
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.cluster`
// +kubebuilder:printcolumn:name="Prefix",type=string,JSONPath=`.spec.prefix`
// +kubebuilder:printcolumn:name="Holder",type=string,JSONPath=`.status.holder`
// +kubebuilder:printcolumn:name="Epoch",type=integer,JSONPath=`.status.epoch`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Objects",type=integer,JSONPath=`.status.objects`
// +kubebuilder:printcolumn:name="Held",type=date,JSONPath=`.status.heldSince`
// +kubebuilder:printcolumn:name="Last-Move",type=string,JSONPath=`.status.lastMove.kind`
// +kubebuilder:printcolumn:name="Assignee",type=string,JSONPath=`.spec.assignee`,priority=1
// +kubebuilder:printcolumn:name="Warm",type=string,JSONPath=`.status.warm`,priority=1
// +kubebuilder:printcolumn:name="Load-Milli",type=integer,JSONPath=`.status.loadMilli`,priority=1
// +kubebuilder:printcolumn:name="Layout",type=integer,JSONPath=`.spec.layout.generation`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Shard struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what part of which cluster this is, and who should hold it.
	// +required
	Spec ShardSpec `json:"spec"`

	// status says who holds it. It is written by compare-and-swap only.
	// +optional
	// +kubebuilder:default={}
	Status ShardStatus `json:"status,omitempty"`
}

// ShardSpec says what part of which cluster this is, and who should hold it.
//
// +kubebuilder:validation:XValidation:rule="has(self.layout) == has(oldSelf.layout)",message="a shard can't become a layout, nor a layout a shard"
type ShardSpec struct {
	// cluster is the name of the workload cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cluster is immutable"
	Cluster string `json:"cluster"`

	// prefix is the binary prefix of the hash space: "" is all of the cluster,
	// "01" a quarter of it. An object belongs to the shard when the FNV-1a-64 hash
	// of its UID begins with these bits.
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:Pattern=`^[01]{0,8}$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="prefix is immutable"
	Prefix string `json:"prefix"`

	// assignee is the incarnation that the coordinator wants to hold the shard. It
	// is a proposal: only status.holder gives the right to act.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	Assignee string `json:"assignee,omitempty"`

	// generation is that of the cluster's layout that lists the shard. It is part of
	// the record's name from the second on.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=999999999
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="generation is immutable"
	Generation int64 `json:"generation,omitempty"`

	// layout makes this no shard, but the list of the shards that the cluster is
	// divided into. It is named CLUSTER.layout, and nobody holds it.
	// +optional
	Layout *ShardLayout `json:"layout,omitempty"`
}

// ShardLayout lists the shards that a cluster is divided into. It only excludes:
// a shard that it doesn't list is claimed by nobody, and held no longer than it
// takes to end that in order.
// +kubebuilder:validation:XValidation:rule="self.generation > oldSelf.generation || (self.generation == oldSelf.generation && self.prefixes == oldSelf.prefixes && (size(oldSelf.clusterUID) == 0 || self.clusterUID == oldSelf.clusterUID))",message="a layout is immutable; another one needs a higher generation"
// +kubebuilder:validation:XValidation:rule="self.prefixes.all(p, self.prefixes.exists_one(q, p.startsWith(q))) && self.prefixes.map(p, [256, 128, 64, 32, 16, 8, 4, 2, 1][size(p)]).sum() == 256",message="prefixes must cover the hash space, each part of it once"
type ShardLayout struct {
	// generation counts the layouts of the cluster. Its shards are named by it.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=999999999
	Generation int64 `json:"generation"`

	// prefixes are those of the shards, in order.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=8
	// +kubebuilder:validation:items:Pattern=`^[01]{0,8}$`
	Prefixes []string `json:"prefixes"`

	// clusterUID tells the cluster from others that had or have its name: the UID of
	// its namespace kube-system. It is empty while nobody could read that.
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=64
	ClusterUID string `json:"clusterUID"`
}

// ShardPhase sums the state of a shard up for a reader.
// +kubebuilder:validation:Enum=Pending;Held;Moving;Retired
type ShardPhase string

const (
	// ShardPending means that nobody has held the shard yet, or nobody does now.
	ShardPending ShardPhase = "Pending"
	// ShardHeld means that the holder serves it.
	ShardHeld ShardPhase = "Held"
	// ShardMoving means that it is on its way to another holder; until the
	// handoff the present one serves it.
	ShardMoving ShardPhase = "Moving"
	// ShardRetired means that nobody will ever hold the record again: the
	// cluster's layout doesn't list it.
	ShardRetired ShardPhase = "Retired"
)

// ShardMove is one change of holder.
type ShardMove struct {
	// kind is the cause: Join (nobody held it before), Planned (for balance),
	// Crash (the holder's Lease ran out) or Exit (the holder was told to stop).
	// +required
	// +kubebuilder:validation:Enum=Join;Planned;Crash;Exit
	Kind string `json:"kind"`

	// from is the incarnation that held the shard before; empty if none did.
	// +optional
	From string `json:"from,omitempty"`

	// to is the incarnation that holds it since.
	// +optional
	To string `json:"to,omitempty"`

	// time is when the record changed hands, on the writer's clock.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	Time metav1.MicroTime `json:"time"`
}

// ShardStatus says who holds the shard.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.phase) || oldSelf.phase != 'Retired' || (has(self.phase) && self.phase == 'Retired' && (!has(self.holder) || size(self.holder) == 0))",message="a retired record is never held again"
type ShardStatus struct {
	// holder is the incarnation that owns the shard; empty while nobody does.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	Holder string `json:"holder,omitempty"`

	// epoch grows with every new holder, and never falls. No fleet gets near the
	// maximum: a higher one was mistyped, and left none for the holders to come.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4611687117939015680
	// +kubebuilder:validation:XValidation:rule="self >= oldSelf",message="epoch never falls"
	Epoch int64 `json:"epoch,omitempty"`

	// phase sums the state up: Pending, Held, Moving or Retired.
	// +optional
	// +kubebuilder:default=Pending
	Phase ShardPhase `json:"phase,omitempty"`

	// warm is the incarnation whose caches of the shard are filled, so that it can
	// take over without a gap.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	Warm string `json:"warm,omitempty"`

	// objects is how many objects of the primary kinds the shard's holder has in its
	// cache: finished Ats aren't counted.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Objects int64 `json:"objects,omitempty"`

	// loadMilli is the time spent in reconciles: milliseconds per second.
	// +optional
	// +kubebuilder:validation:Minimum=0
	LoadMilli int64 `json:"loadMilli,omitempty"`

	// heldSince is when the present holder took over.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	HeldSince *metav1.MicroTime `json:"heldSince,omitempty"`

	// lastMove is the latest change of holder.
	// +optional
	LastMove *ShardMove `json:"lastMove,omitempty"`
}

// ShardList is a list of Shards.
//
// +kubebuilder:object:root=true
type ShardList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Shard `json:"items"`
}
