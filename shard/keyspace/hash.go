package keyspace

import "fmt"

// SlotLabel is the label key under which an owned object carries its owner's slot. The object's own UID doesn't show
// its owner's shard.
const SlotLabel = "tenure.dev/slot"

// ClusterName is the name under which a workload cluster is known to all replicas.
type ClusterName string

// Slot is one of 256 equal parts of a cluster's hash space.
type Slot uint8

// FNV-1a-64, http://www.isthe.com/chongo/tech/comp/fnv/.
const (
	fnvOffset uint64 = 0xcbf29ce484222325
	fnvPrime  uint64 = 0x100000001b3
)

// Hash returns the API server's shard hash of a UID. It doesn't use hash/fnv, because it runs for every event and must
// not allocate.
func Hash(uid string) uint64 {
	h := fnvOffset
	for i := 0; i < len(uid); i++ {
		h ^= uint64(uid[i])
		h *= fnvPrime
	}
	return h
}

// SlotOf returns the slot of an object with this UID.
func SlotOf(uid string) Slot { return slotOfHash(Hash(uid)) }

func slotOfHash(hash uint64) Slot { return Slot(hash >> (64 - MaxBits)) }

// String returns two lower-case hex digits, the value of [SlotLabel].
func (s Slot) String() string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[s>>4], digits[s&0xf]})
}

// ParseSlot parses what [Slot.String] writes, and refuses everything else: a label that another tool wrote as "A" or
// "0xa" wouldn't match any selector either.
func ParseSlot(text string) (Slot, error) {
	if len(text) != 2 {
		return 0, fmt.Errorf("slot %q: want two lower-case hex digits", text)
	}
	hi, okHi := hexDigit(text[0])
	lo, okLo := hexDigit(text[1])
	if !okHi || !okLo {
		return 0, fmt.Errorf("slot %q: want two lower-case hex digits", text)
	}
	return Slot(hi<<4 | lo), nil
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}
