package localplane

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
)

// DefaultNodes is the number of fake nodes of a workload cluster that asks for none in particular.
const DefaultNodes = 3

// NoNodes is the number of nodes of a workload cluster that has none.
const NoNodes = -1

// maxNodes keeps a typing error from filling etcd: KWOK carries thousands of nodes, a laptop does not need more.
const maxNodes = 5000

// Config says which control planes to start and where to put what they write.
type Config struct {
	// Dir holds certificates, kubeconfigs, logs, audit logs and etcd's data, one folder per cluster, and stays. A
	// folder of an earlier run is taken up again: same certificates, same data. Empty: a new temporary folder.
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
	// Nodes is the number of fake nodes of a workload cluster; 0 means DefaultNodes. With NoNodes there is no scheduler
	// and no KWOK either: Pods stay Pending until somebody else ends them.
	Nodes int
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
		if cluster.Nodes < 0 && cluster.Nodes != NoNodes || cluster.Nodes > maxNodes {
			violations = append(violations, fmt.Errorf("%s: nodes: %d is not between 0 and %d", at, cluster.Nodes, maxNodes))
		}
		if cluster.Nodes != 0 && !cluster.Workload {
			violations = append(violations, fmt.Errorf("%s: nodes: only a workload cluster has nodes", at))
		}
		for _, gate := range slices.Sorted(maps.Keys(cluster.FeatureGates)) {
			if gate == "" {
				violations = append(violations, fmt.Errorf("%s: featureGates: empty name", at))
			}
		}
	}
	if c.GarbageFrom < 0 {
		violations = append(violations, fmt.Errorf("garbageFrom: %d is negative", c.GarbageFrom))
	}
	if info, err := os.Stat(c.Dir); c.Dir != "" && err == nil && !info.IsDir() {
		violations = append(violations, fmt.Errorf("dir: %s is not a folder", c.Dir))
	}
	return errors.Join(violations...)
}

// nodes is the number of fake nodes after defaulting.
func (c ClusterConfig) nodes() int {
	switch {
	case !c.Workload, c.Nodes == NoNodes:
		return 0
	case c.Nodes == 0:
		return DefaultNodes
	default:
		return c.Nodes
	}
}
