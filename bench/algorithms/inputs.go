package algorithms

import (
	"fmt"
	"math/rand/v2"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// newKeys is the shards of that many clusters, in order.
func newKeys(clusters, bits int) []Key {
	prefixes := keyspace.Partition(bits)
	keys := make([]Key, 0, clusters*len(prefixes))
	for i := range clusters {
		for _, prefix := range prefixes {
			id := keyspace.ShardID{Cluster: keyspace.ClusterName(fmt.Sprintf("cluster-%d", i)), Prefix: prefix}
			keys = append(keys, Key{Shard: id, Text: id.String()})
		}
	}
	return keys
}

// replicaNames is n different names.
func (c Config) replicaNames(n int) []string {
	random := rand.New(rand.NewPCG(c.Seed, 0))
	taken := make(map[string]bool, n)
	names := make([]string, 0, n)
	for len(names) < n {
		name := fmt.Sprintf("tenure-%d", len(names))
		if c.Names == Random {
			name = "tenure-7c6d9f5b8-" + randomSuffix(random)
		}
		if !taken[name] {
			taken[name] = true
			names = append(names, name)
		}
	}
	return names
}

func randomSuffix(random *rand.Rand) string {
	// The alphabet of the names that Kubernetes generates.
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	suffix := make([]byte, 5)
	for i := range suffix {
		suffix[i] = letters[random.IntN(len(letters))]
	}
	return string(suffix)
}
