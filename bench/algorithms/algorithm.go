package algorithms

import (
	"strconv"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// Key is what is assigned: a shard, with the text that is hashed for it.
type Key struct {
	Shard keyspace.ShardID
	Text  string
}

// nowhere stands for no replica.
const nowhere = int32(-1)

// Algorithm assigns every key to one of the replicas.
type Algorithm struct {
	Name string
	// prepare converts the inputs for the algorithm and returns the decision. Only the decision is timed. There must be
	// at least one replica. before gives the keys' present replicas; only the planner uses it.
	prepare func(keys []Key, replicas []string, before []int32) decision
}

// decision is one run of an algorithm: decide does the work, once or more, and places returns the index of each key's
// replica as it was decided last.
type decision struct {
	decide func()
	places func() []int32
}

// All is every algorithm, the planner first.
func All() []Algorithm {
	return []Algorithm{
		{"planner", preparePlanner},
		stateless("ring-"+strconv.Itoa(tokens), placeOnRing),
		stateless("rendezvous-fnv", placeByRendezvous(false)),
		stateless("rendezvous-mixed", placeByRendezvous(true)),
		stateless("modulo", placeByModulo),
		stateless("jump", placeByJump),
		stateless("bounded-"+strconv.FormatFloat(1+slack, 'g', -1, 64), placeBounded),
	}
}

// stateless is an algorithm that needs only the keys and the replicas.
func stateless(name string, place func([]Key, []string) []int32) Algorithm {
	return Algorithm{name, func(keys []Key, replicas []string, _ []int32) decision {
		var places []int32
		return decision{
			decide: func() { places = place(keys, replicas) },
			places: func() []int32 { return places },
		}
	}}
}

// placeEach assigns key by key.
func placeEach(keys []Key, choose func(hash uint64) int32) []int32 {
	places := make([]int32, len(keys))
	for i, key := range keys {
		places[i] = choose(keyspace.Hash(key.Text))
	}
	return places
}

// mix makes every bit of the result depend on every bit of h, which FNV-1a alone
// doesn't: the last bytes of its input hardly reach the top bits. It is the
// finalizer of MurmurHash3.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
