package telemetry

import (
	"strings"

	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// clusterOf returns the real cluster of a request, and whether the request is for a shard of it. A provider's names
// may contain slashes, so what follows a slash counts as a shard only if it has a shard's form.
func clusterOf(name multicluster.ClusterName) (cluster string, sharded bool) {
	if strings.IndexByte(string(name), '/') >= 0 { // otherwise parsing would build an error each time
		if id, err := keyspace.ParseShardID(string(name)); err == nil {
			return string(id.Cluster), true
		}
	}
	return string(name), false
}
