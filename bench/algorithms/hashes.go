package algorithms

import "github.com/tenure-dev/tenure/shard/keyspace"

// placeByRendezvous gives a key to the replica whose hash with it is highest.
func placeByRendezvous(mixed bool) func([]Key, []string) []int32 {
	return func(keys []Key, replicas []string) []int32 {
		places := make([]int32, len(keys))
		for i, key := range keys {
			places[i] = highestWith(key, replicas, mixed)
		}
		return places
	}
}

func highestWith(key Key, replicas []string, mixed bool) int32 {
	// FNV-1a goes byte by byte, so the hash of "key|" is common to all replicas.
	prefix := keyspace.Hash(key.Text + "|")
	best, highest := int32(0), uint64(0)
	for n, name := range replicas {
		score := extend(prefix, name)
		if mixed {
			score = mix(score)
		}
		if n == 0 || score > highest {
			best, highest = int32(n), score
		}
	}
	return best
}

// extend goes on with FNV-1a-64 where a hash ended.
func extend(hash uint64, text string) uint64 {
	for i := 0; i < len(text); i++ {
		hash = (hash ^ uint64(text[i])) * 0x100000001b3
	}
	return hash
}

// placeByModulo gives a key to the replica whose number is the hash's remainder.
func placeByModulo(keys []Key, replicas []string) []int32 {
	return placeEach(keys, func(hash uint64) int32 { return int32(hash % uint64(len(replicas))) })
}

// placeByJump gives a key to the last bucket that it jumps to. Buckets have
// numbers, not names: when one in the middle goes away, those after it change
// theirs.
func placeByJump(keys []Key, replicas []string) []int32 {
	return placeEach(keys, func(hash uint64) int32 { return jumpTo(hash, len(replicas)) })
}

// jumpTo follows the key's jumps: with j+1 buckets or fewer it is in bucket b, and
// the next one it moves to is j, drawn so that each size gets its fair part.
func jumpTo(key uint64, buckets int) int32 {
	b, j := int64(-1), int64(0)
	for j < int64(buckets) {
		b = j
		key = key*2862933555777941757 + 1
		j = int64(float64(b+1) * (float64(1<<31) / float64(key>>33+1)))
	}
	return int32(b)
}
