package telemetry

import (
	"strings"

	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// clusterOf returns the real cluster of a request, and whether the request is for a shard of it. Providers may give
// names with slashes, so what follows one is a shard's only where it reads so.
func clusterOf(name multicluster.ClusterName) (cluster string, sharded bool) {
	if strings.IndexByte(string(name), '/') >= 0 { // else an error would be made for nothing
		if id, err := keyspace.ParseShardID(string(name)); err == nil {
			return string(id.Cluster), true
		}
	}
	return string(name), false
}
