package plan_test

import (
	"fmt"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
)

// A second replica has joined the one that holds all four shards of a cluster.
func ExamplePlan() {
	var shards []plan.Shard
	for _, prefix := range keyspace.Partition(2) {
		id := keyspace.ShardID{Cluster: "west", Prefix: prefix}
		shards = append(shards, plan.Shard{ID: id, Holder: "a-1"})
	}
	replicas := []plan.Replica{{ID: "a-1", Name: "a"}, {ID: "b-1", Name: "b"}}
	for _, move := range plan.Plan(shards, replicas) {
		fmt.Println(move.Shard, move.From, "to", move.To, move.Reason)
	}
	// Output:
	// west/11 a-1 to b-1 balance
	// west/10 a-1 to b-1 balance
}
