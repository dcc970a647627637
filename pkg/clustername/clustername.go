// Package clustername finds the cluster that a request is about, for reconcilers that know nothing else of sharding.
package clustername

import (
	"context"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// Clusters finds the cluster of a request. A multicluster-runtime manager is one.
type Clusters interface {
	GetCluster(ctx context.Context, name multicluster.ClusterName) (cluster.Cluster, error)
}

// Real returns the name of the real cluster of a request, which may name a shard of it: "west/01", or "west/01@2". A
// cluster's own name may have slashes, so what follows the last one counts only if keyspace.ParseShardID would take it.
func Real(name multicluster.ClusterName) multicluster.ClusterName {
	slash := strings.LastIndexByte(string(name), '/')
	if slash <= 0 {
		return name
	}
	prefix, generation, later := strings.Cut(string(name[slash+1:]), "@")
	if len(prefix) > 8 || strings.Trim(prefix, "01") != "" || later && !isGeneration(generation) {
		return name
	}
	return name[:slash]
}

// isGeneration reports whether a text is a number from 2 to 999999999.
func isGeneration(text string) bool {
	return text != "" && len(text) <= 9 && strings.Trim(text, "0123456789") == "" && text[0] != '0' && text != "1"
}
