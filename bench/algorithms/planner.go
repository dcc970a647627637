package algorithms

import (
	"slices"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
)

// preparePlanner makes the planner's inputs, which a coordinator has at hand. All
// moves of its plan count as made at once.
func preparePlanner(keys []Key, replicas []string, before []int32) decision {
	live := make([]plan.Replica, len(replicas))
	for i, name := range replicas {
		live[i] = plan.Replica{ID: plan.Incarnation(name), Name: name}
	}
	shards := make([]plan.Shard, len(keys))
	for i, key := range keys {
		shards[i].ID = key.Shard
		if before[i] != nowhere {
			shards[i].Holder = live[before[i]].ID
		}
	}
	var moves []plan.Move
	return decision{
		decide: func() { moves = plan.Plan(shards, live) },
		places: func() []int32 { return apply(moves, keys, live, before) },
	}
}

// apply returns where the keys are after the moves.
func apply(moves []plan.Move, keys []Key, live []plan.Replica, before []int32) []int32 {
	index := make(map[plan.Incarnation]int32, len(live))
	for i := range live {
		index[live[i].ID] = int32(i)
	}
	position := make(map[keyspace.ShardID]int, len(keys))
	for i, key := range keys {
		position[key.Shard] = i
	}
	places := slices.Clone(before)
	for _, move := range moves {
		places[position[move.Shard]] = index[move.To]
	}
	return places
}
