// Package keyspace says which shard an object belongs to. It is pure: no
// clock, no I/O, standard library only.
//
//	uid ──Hash──▶ 64 bits ──top byte──▶ Slot (256 of them) ──leading bits──▶ Prefix ──+cluster──▶ ShardID
//
// # The hash
//
// [Hash] is FNV-1a-64 over the object's UID, because that is what the API
// server computes for shardSelector (KEP-5866, k8s.io/apimachinery/pkg/sharding).
// Both must agree for ever, or an object would be watched by one replica and
// claimed by another; the tests compare the two, and the API server's own
// parser reads every selector this package writes.
//
// # Prefixes and shards
//
// A [Prefix] is zero to eight leading bits of the hash. The prefixes of a
// cluster's shards form a partition: every hash lies in exactly one of them.
// Splitting a prefix gives two that are disjoint and whose union it is, so any
// sequence of splits and merges keeps the partition. As a prefix never has more
// bits than a slot, a shard is always a whole run of slots, and the slot of an
// owner, stamped as a label on what it owns ([SlotLabel]), stays valid through
// every split and merge.
//
// # Considerations
//
// UIDs are hashed, not names: the API server can filter a watch by the UID's
// hash and by nothing finer, and ranges over hashed sequential names are badly
// skewed, as FNV-1a lets the last bytes of its input reach the top bits only
// weakly. The UIDs that the API server gives out are random (version 4), so
// their top bytes are even.
//
// The zero [Prefix] is the empty one and contains everything.
package keyspace
