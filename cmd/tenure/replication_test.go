package main

import (
	"context"
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
	nop "sigs.k8s.io/multicluster-runtime/providers/nop"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/shard"
	"github.com/tenure-dev/tenure/test/must"
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
		_, err := r.Reconcile(t.Context(), mcreconcile.Request{ClusterName: from})
		must.Succeed(t, err)
	}
	if !slices.Equal(requests, []multicluster.ClusterName{"home", "west"}) || !slices.Equal(asked, askedFor{"", "west"}) {
		t.Errorf("requests name %q, the manager is asked for %q", requests, asked)
	}
}

// The manager's own cache is bounded to Tenure's namespace, and the shards of home hold Deployments of all.
func TestHomeMayBeTheSourceThoughOnlyOneNamespaceOfItIsCached(t *testing.T) {
	o := optionsOf(t, nil, "--replica=r1", "--deployment-source=home")
	scheme := runtime.NewScheme()
	must.Succeed(t, errors.Join(clientgoscheme.AddToScheme(scheme), cnatv1alpha1.AddToScheme(scheme)))
	opts := managerOptions(o, scheme)
	opts.Metrics, opts.HealthProbeBindAddress, opts.PprofBindAddress = metricsserver.Options{BindAddress: "0"}, "0", "0"
	_, err := shard.NewManager(&rest.Config{Host: "127.0.0.1:1"}, nop.New(), opts, o.shardConfig())
	must.Succeed(t, err)
}

func TestOnlyTheSourcesHoldersNeedToKnowAllClusters(t *testing.T) {
	for _, c := range []struct {
		source, held string
		want         bool
	}{{"west", "west", true}, {"west", "east", false}, {"none", "none", false}} {
		o := optionsOf(t, nil, "--replica=r1", "--deployment-source="+c.source)
		if got := o.copiesFrom(func(cluster string) bool { return cluster == c.held }); got != c.want {
			t.Errorf("source %s, shards of %s here: %v", c.source, c.held, got)
		}
	}
}
