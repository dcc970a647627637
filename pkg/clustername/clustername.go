// Package clustername tells reconcilers, which know nothing else of sharding, which cluster a request is about.
package clustername

import (
	"regexp"

	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// suffix is what a sharded program appends to a cluster's name: "/01", or "/01@2". The name may have slashes, too.
var suffix = regexp.MustCompile(`/[01]*(@[0-9]+)?$`)

// Real returns the name of the real cluster of a request, which may name a shard of it.
func Real(name multicluster.ClusterName) multicluster.ClusterName {
	return multicluster.ClusterName(suffix.ReplaceAllString(string(name), ""))
}
