package v1alpha1

// Names on the Leases of the home cluster.
const (
	// RoleLabel tells Tenure's Leases from others; its value is RoleMember or RoleCoordinator.
	RoleLabel       = "tenure.dev/role"
	RoleMember      = "member"
	RoleCoordinator = "coordinator"
	// ReplicaLabel carries the stable name of the replica that the incarnation belongs to.
	ReplicaLabel = "tenure.dev/replica"
	// CoordinatorName is the name of the Lease that names the default fleet's coordinator, and what others begin with.
	CoordinatorName = "tenure-coordinator"
	// LeaseDurationAnnotation is how long the incarnation may be silent, as a Go duration.
	LeaseDurationAnnotation = "tenure.dev/lease-duration"
	// WeightAnnotation is the replica's share of the work relative to the others'; 1 where there is none.
	WeightAnnotation = "tenure.dev/weight"
	// BuildAnnotation is the version of the program.
	BuildAnnotation = "tenure.dev/build"
	// RenewalAnnotation numbers the owner's writes.
	RenewalAnnotation = "tenure.dev/renewal"
	// FreshAnnotation is "true" until the replica has watched this home cluster for a lease duration: it claims nothing
	// that was there before.
	FreshAnnotation = "tenure.dev/fresh"
	// LeavingAnnotation is "true" once the replica was told to stop.
	LeavingAnnotation = "tenure.dev/leaving"
	// PodAnnotation is the container that the incarnation runs in, as NAMESPACE/POD/UID/CONTAINER, where that is known.
	PodAnnotation = "tenure.dev/pod"
	// SealedAnnotation names the incarnation that declared this one dead, for ever.
	SealedAnnotation = "tenure.dev/sealed-by"
	// ProtocolAnnotation is the version of the protocol that the incarnation speaks; 1 where there is none.
	ProtocolAnnotation = "tenure.dev/protocol"
	// KindsAnnotation lists the kinds that the incarnation shards, sorted and separated by commas. Without it, the
	// incarnation hasn't said.
	KindsAnnotation = "tenure.dev/kinds"
	// UnfitAnnotation names the clusters that the incarnation can't serve, sorted and separated by commas; one with a plus
	// sign behind it keeps what it has of it and gets nothing more. After an exclamation mark, they are those that it can
	// serve, and it can't serve any other.
	UnfitAnnotation = "tenure.dev/unfit"
	// TroubleAnnotation is what the incarnation says of clusters that don't answer as they should, that it can't serve, or
	// whose keys wait, as JSON. It is for people: nothing depends on it.
	TroubleAnnotation = "tenure.dev/cluster-trouble"
	// FleetLabel names the fleet that a Lease or a Shard belongs to; the default fleet's have no such label. Leases of a
	// named fleet have no RoleLabel: replicas of version 1 would take them for theirs.
	FleetLabel = "tenure.dev/fleet"
)

// CoordinatorLease is the name of the Lease that names a fleet's coordinator; "" is the default fleet.
func CoordinatorLease(fleet string) string {
	if fleet == "" {
		return CoordinatorName
	}
	return CoordinatorName + "." + fleet
}

// Annotations of a Shard.
const (
	// PinAnnotation names the replica that should hold the shard whenever it can.
	PinAnnotation = "tenure.dev/pin"
	// FloorAnnotation is the first epoch that the record may have: above those of a record that it stands for. On the
	// coordinator's Lease it is that of the next record to be made.
	FloorAnnotation = "tenure.dev/epoch-floor"
)
