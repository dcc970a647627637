package clustername

import (
	"testing"

	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// Shards of one cluster are named CLUSTER/PREFIX, and a provider's own names may have slashes, too.
func TestARequestIsAboutTheClusterWhoseShardItNames(t *testing.T) {
	for name, want := range map[multicluster.ClusterName]multicluster.ClusterName{
		"": "", "west": "west", "west/": "west", "west/01": "west", "west/01@2": "west", "west/@12": "west",
		"team/west": "team/west", "team/west/": "team/west", "team/west/0110@3": "team/west", "team/10b": "team/10b",
	} {
		if got := Real(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
