package main

import (
	"context"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// askedFor are the clusters that a manager was asked for.
type askedFor []multicluster.ClusterName

func (a *askedFor) GetCluster(_ context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	*a = append(*a, name)
	return nil, multicluster.ErrClusterNotFound
}

// A copy carries the name of its source's cluster. With another name it would be a stranger's.
func TestTheHomeClusterHasItsNameWithoutShardingToo(t *testing.T) {
	var asked askedFor
	var requests []multicluster.ClusterName
	clusters := homeByName{&asked}
	r := fromHome(reconcile.TypedFunc[mcreconcile.Request](
		func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			requests = append(requests, req.ClusterName)
			_, _ = clusters.GetCluster(ctx, req.ClusterName)
			return reconcile.Result{}, nil
		}))
	for _, from := range []multicluster.ClusterName{"", "west"} {
		if _, err := r.Reconcile(t.Context(), mcreconcile.Request{ClusterName: from}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(requests, []multicluster.ClusterName{"home", "west"}) || !slices.Equal(asked, askedFor{"", "west"}) {
		t.Errorf("requests name %q, the manager is asked for %q", requests, asked)
	}
}
