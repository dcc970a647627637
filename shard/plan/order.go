package plan

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// canonicalOrder returns the indices of the shards in the order of their IDs. It is fastest if the shards are sorted
// already.
func canonicalOrder(shards []Shard) []int32 {
	order := make([]int32, len(shards))
	sorted := true
	for i := range shards {
		order[i] = int32(i)
		sorted = sorted && (i == 0 || inOrder(&shards[i-1], &shards[i]))
	}
	if !sorted {
		sortShards(order, shards)
	}
	return order
}

func inOrder(x, y *Shard) bool {
	if x.ID.Cluster != y.ID.Cluster {
		return x.ID.Cluster < y.ID.Cluster
	}
	return compareWithinCluster(x, y) <= 0
}

// sortShards fills order. Comparing names would dominate the cost of sorting, so only the clusters' names are sorted,
// and shards are counted into place.
func sortShards(order []int32, shards []Shard) {
	groups := make(map[keyspace.ClusterName]int32)
	for i := range shards {
		groups[shards[i].ID.Cluster]++
	}
	start := int32(0)
	for _, cluster := range slices.Sorted(maps.Keys(groups)) {
		size := groups[cluster]
		groups[cluster] = start
		start += size
	}
	for i := range shards {
		next := groups[shards[i].ID.Cluster]
		order[next] = int32(i)
		groups[shards[i].ID.Cluster]++
	}
	for first := 0; first < len(order); {
		// Each group's counter now stands at its end.
		end := int(groups[shards[order[first]].ID.Cluster])
		slices.SortFunc(order[first:end], func(x, y int32) int { return compareWithinCluster(&shards[x], &shards[y]) })
		first = end
	}
}

// compareWithinCluster compares more than the prefix so that slots that are given twice don't make the plan depend on
// the order of its inputs.
func compareWithinCluster(x, y *Shard) int {
	if order := x.ID.Prefix.Compare(y.ID.Prefix); order != 0 {
		return order
	}
	return cmp.Or(cmp.Compare(x.ID.Generation, y.ID.Generation), cmp.Compare(x.Holder, y.Holder),
		cmp.Compare(x.Assignee, y.Assignee), cmp.Compare(x.Pin, y.Pin))
}
