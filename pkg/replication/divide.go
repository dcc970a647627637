package replication

import (
	"cmp"
	"maps"
	"slices"

	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// divide splits a total among clusters by weight, by the method of the largest remainder. Each gets its exact share
// rounded down. What is left goes, one each, to those with the largest remainders, the first by name among equals. The
// sum is the total, and nothing but total, names and weights matters. If all weights are 0, they count as equal.
func divide(total int32, weights map[multicluster.ClusterName]int64) map[multicluster.ClusterName]int32 {
	shares := make(map[multicluster.ClusterName]int32, len(weights))
	var sum int64
	for _, weight := range weights {
		sum += weight
	}
	if len(weights) == 0 {
		return shares
	}
	if sum == 0 {
		equal := make(map[multicluster.ClusterName]int64, len(weights))
		for name := range weights {
			equal[name] = 1
		}
		return divide(total, equal)
	}
	names := sortedKeys(weights)
	remainder := make(map[multicluster.ClusterName]int64, len(weights))
	left := total
	for _, name := range names {
		exact := int64(total) * weights[name]
		shares[name] = int32(exact / sum)
		remainder[name] = exact % sum
		left -= shares[name]
	}
	// Stable, so that equals stay in the order of their names.
	slices.SortStableFunc(names, func(a, b multicluster.ClusterName) int {
		return cmp.Compare(remainder[b], remainder[a])
	})
	for _, name := range names[:left] {
		shares[name]++
	}
	return shares
}

// shares returns how many replicas each target should have; nil: as many as the source.
func (w wish) shares(targets, givenUp []multicluster.ClusterName) map[multicluster.ClusterName]*int32 {
	result := make(map[multicluster.ClusterName]*int32, len(targets))
	for _, name := range targets {
		result[name] = w.Overrides[name].Replicas
	}
	if !w.Divide {
		return result
	}
	weights := map[multicluster.ClusterName]int64{}
	equal := !slices.ContainsFunc(targets, func(name multicluster.ClusterName) bool { return w.weight(name) > 0 })
	var sum int64
	for _, name := range targets {
		if slices.Contains(givenUp, name) {
			continue
		}
		if weights[name] = w.weight(name); equal { // as divide takes them
			weights[name] = 1
		}
		sum += weights[name]
	}
	if sum == 0 && len(givenUp) > 0 {
		// No target is left to take over, so nothing moves.
		return w.shares(targets, nil)
	}
	shares := divide(w.Total, weights)
	for _, name := range targets {
		result[name] = new(shares[name]) // 0 for those given up
	}
	return result
}

func (w wish) weight(name multicluster.ClusterName) int64 {
	if weight, found := w.Weights[name]; found {
		return weight
	}
	return 1
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
