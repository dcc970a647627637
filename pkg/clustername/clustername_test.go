package clustername

import (
	"testing"

	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// Shards of one cluster are named CLUSTER/PREFIX, and a provider's own names may have slashes, too.
func TestARequestIsAboutTheClusterWhoseShardItNames(t *testing.T) {
	for name, want := range map[multicluster.ClusterName]multicluster.ClusterName{
		"": "", "/": "/", "/01": "/01",
		"west": "west", "west/": "west", "west/01": "west", "west/01@2": "west", "west/@12": "west",
		"team/west": "team/west", "team/west/": "team/west", "team/west/0110@3": "team/west", "team/10b": "team/10b",
		"team/01010101": "team", "team/010101010": "team/010101010", "a/01/1": "a/01",
		"west/01@": "west/01@", "west/01@0": "west/01@0", "west/01@1": "west/01@1", "west/01@02": "west/01@02",
		"west/01@+2": "west/01@+2", "west/01@2x": "west/01@2x", "west/01@2@3": "west/01@2@3", "west/@10": "west",
		"west/01@999999999": "west", "west/01@1000000000": "west/01@1000000000",
	} {
		if got := Real(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
		parsed := name
		if id, err := keyspace.ParseShardID(string(name)); err == nil {
			parsed = multicluster.ClusterName(id.Cluster)
		}
		if parsed != want {
			t.Errorf("%q: package keyspace says %q, want %q", name, parsed, want)
		}
	}
}
