package shard

import "testing"

// The protocol's loop publishes the state. Nothing is published while it stands still, and the lease ends all the same.
func TestAReplicaWhoseLeaseHasEndedIsNotReadyThoughNothingSaysSo(t *testing.T) {
	m := &Manager{node: &node{}}
	m.node.status.Store(&Status{Replica: "r1", Member: true, Coordinator: true, lease: &lease{}})
	if err := m.Ready(nil); err == nil {
		t.Error("it is ready")
	}
	if m.Coordinates() {
		t.Error("it coordinates")
	}
}
