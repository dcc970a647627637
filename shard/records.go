package shard

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/member"
)

// Records are the coordination records of the whole fleet.
type Records struct {
	Shards []tenurev1.Shard
	// Leases of the members and of the coordinator; see package member for what is on them.
	Leases []coordinationv1.Lease
}

// ErrNotStarted says that the manager doesn't watch the records yet, or not any more.
var ErrNotStarted = errors.New("the records of the home cluster aren't watched yet")

// Records returns what this replica's cache shows of the fleet, at the cost of no request. A cache may be behind; where
// the home cluster is away it shows the last that was seen. It waits for the cache to be filled, within the context.
func (m *Manager) Records(ctx context.Context) (Records, error) {
	records := m.node.records.Load()
	if records == nil {
		return Records{}, ErrNotStarted
	}
	return ReadRecords(ctx, *records, m.node.cfg.Namespace)
}

// ReadRecords reads the records of a namespace of the home cluster.
func ReadRecords(ctx context.Context, from client.Reader, namespace string) (Records, error) {
	shards, leases := &tenurev1.ShardList{}, &coordinationv1.LeaseList{}
	if err := from.List(ctx, shards, client.InNamespace(namespace)); err != nil {
		return Records{}, fmt.Errorf("listing the Shard records in namespace %s: %w", namespace, err)
	}
	if err := from.List(ctx, leases, client.InNamespace(namespace), client.HasLabels{member.RoleLabel}); err != nil {
		return Records{}, fmt.Errorf("listing the Leases in namespace %s: %w", namespace, err)
	}
	return Records{Shards: shards.Items, Leases: leases.Items}, nil
}
