package algorithms

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// tokens is how many points each replica has on the ring.
const tokens = 100

type token struct {
	at      uint64
	replica int32
}

// newRing lays out the tokens, in the order of the ring. A token's place depends on its replica's name only, so no
// other token moves when a replica joins or leaves.
func newRing(replicas []string) []token {
	points := make([]token, 0, len(replicas)*tokens)
	for i, name := range replicas {
		for n := range tokens {
			points = append(points, token{mix(keyspace.Hash(name + "#" + strconv.Itoa(n))), int32(i)})
		}
	}
	slices.SortFunc(points, func(x, y token) int {
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(replicas[x.replica], replicas[y.replica]))
	})
	return points
}

// after is the position of the first token at or after the hash, going round.
func after(points []token, hash uint64) int {
	at, _ := slices.BinarySearchFunc(points, hash, func(t token, hash uint64) int { return cmp.Compare(t.at, hash) })
	return at % len(points)
}

// placeOnRing gives a key to the owner of the next token.
func placeOnRing(keys []Key, replicas []string) []int32 {
	points := newRing(replicas)
	return placeEach(keys, func(hash uint64) int32 { return points[after(points, mix(hash))].replica })
}

// slack is how far above the mean a replica may be filled: epsilon in the paper.
const slack = 0.25

// placeBounded gives a key to the owner of the next token that isn't full. Where room is short, the keys' hashes
// alone decide which key comes first, so the result doesn't depend on history.
func placeBounded(keys []Key, replicas []string) []int32 {
	points := newRing(replicas)
	hashes := make([]uint64, len(keys))
	order := make([]int, len(keys))
	for i, key := range keys {
		hashes[i], order[i] = mix(keyspace.Hash(key.Text)), i
	}
	slices.SortFunc(order, func(x, y int) int {
		return cmp.Or(cmp.Compare(mix(hashes[x]), mix(hashes[y])), cmp.Compare(keys[x].Text, keys[y].Text))
	})
	room := make([]int, len(replicas))
	for i := range room {
		room[i] = capacity(len(keys), len(replicas))
	}
	places := make([]int32, len(keys))
	for _, i := range order {
		at := after(points, hashes[i])
		for room[points[at].replica] == 0 {
			at = (at + 1) % len(points)
		}
		places[i] = points[at].replica
		room[places[i]]--
	}
	return places
}

// capacity is the most keys that one replica may have.
func capacity(keys, replicas int) int {
	return int(math.Ceil((1 + slack) * float64(keys) / float64(replicas)))
}
