package localplane

import (
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/util/validation"
)

// fakeNodes is how many nodes a workload cluster has, unless it has none.
const fakeNodes = 3

// Config says which control planes to start and where to put what they write.
type Config struct {
	// Dir holds certificates, kubeconfigs, logs, audit logs and etcd's data, one folder per cluster, and stays. A folder
	// of an earlier run is refused. Empty: a new temporary folder.
	Dir string
	// Binary is the multi-call control-plane binary. Empty: see FindBinary.
	Binary string
	// Clusters are the control planes to start, at least one.
	Clusters []ClusterConfig
	// TmpfsData puts etcd's data on /dev/shm where that exists, and turns its fsync off. For throughput runs,
	// which would otherwise measure the disk; such data never outlives Stop.
	TmpfsData bool
	// GarbageFrom makes API servers and etcds collect no garbage before each holds so many bytes, so that no
	// collection falls into one measurement and not into another. 0: they collect it as they go.
	GarbageFrom int64
	// Prepare, if there is one, is called when the folder is there and before anything runs. It may put there what the
	// API servers need, and returns flags for all of them, which come before ExtraAPIServerArgs.
	Prepare func(dir string) (apiServerArgs []string, err error)
	// Progress receives one line per step. Nil: silence.
	Progress io.Writer
}

// ClusterConfig describes one control plane.
type ClusterConfig struct {
	// Name of the cluster, a DNS label such as "west".
	Name string
	// Workload adds a controller manager, a scheduler, fake nodes and KWOK, so that Pods run to their end,
	// Deployments roll out and deleted owners take their dependents along. Without it the cluster is etcd and
	// an API server: enough for coordination records.
	Workload bool
	// NoNodes leaves out the fake nodes of a workload cluster, the scheduler and KWOK: Pods stay Pending until somebody
	// else ends them.
	NoNodes bool
	// FeatureGates are set on the API server. ShardedListAndWatch is on unless switched off here.
	FeatureGates map[string]bool
	// ExtraAPIServerArgs come last on the API server's command line, so they win over ours.
	ExtraAPIServerArgs []string
}

// Validate reports every violation at once and changes nothing.
func (c Config) Validate() error {
	var violations []error
	if len(c.Clusters) == 0 {
		violations = append(violations, errors.New("clusters: at least one is needed"))
	}
	seen := map[string]bool{}
	for i, cluster := range c.Clusters {
		at := fmt.Sprintf("clusters[%d] (%q)", i, cluster.Name)
		for _, reason := range validation.IsDNS1123Label(cluster.Name) {
			violations = append(violations, fmt.Errorf("%s: name: %s", at, reason))
		}
		if seen[cluster.Name] {
			violations = append(violations, fmt.Errorf("%s: name: used twice", at))
		}
		seen[cluster.Name] = true
	}
	return errors.Join(violations...)
}
