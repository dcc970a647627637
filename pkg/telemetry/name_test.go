package telemetry

import (
	"testing"

	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// A provider's names may have slashes: its clusters aren't one for that.
func TestAClusterWithSlashesInItsNameIsOneOfItsOwn(t *testing.T) {
	for name, want := range map[multicluster.ClusterName]struct{ cluster, shard string }{
		"west":              {"west", ""},
		"west/":             {"west", "west/"},
		"west/01@2":         {"west", "west/01@2"},
		"team/west":         {"team/west", ""},
		"team/west/01":      {"team/west", "team/west/01"},
		"team/west-1/101@3": {"team/west-1", "team/west-1/101@3"},
	} {
		t.Run(string(name), func(t *testing.T) {
			r := newRig(t, Config{Settings: always()})
			key := testKey
			key.ClusterName = name
			r.queue.Add(key)
			if all := r.Backlogs(); len(all) != 1 || all[0].Cluster != want.cluster {
				t.Errorf("the queue has %+v, want a key of %s", all, want.cluster)
			}
			r.reconcile(t, fine)
			got := attributes(find(t, r.sent(t), "reconcile At"))
			if got["k8s.cluster.name"] != want.cluster || got["tenure.shard"] != want.shard {
				t.Errorf("the trace is about shard %q of cluster %q, want %q of %q",
					got["tenure.shard"], got["k8s.cluster.name"], want.shard, want.cluster)
			}
		})
	}
}
