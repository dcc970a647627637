// Package keyspace says which shard an object belongs to. It is pure: no clock, no I/O, standard library only.
//
//	uid ──Hash──▶ 64 bits ──top byte──▶ Slot (256 of them) ──leading bits──▶ Prefix ──+cluster──▶ ShardID
//
// # The hash
//
// [Hash] is FNV-1a-64 over the object's UID, because that is what the API server computes for shardSelector (KEP-5866,
// k8s.io/apimachinery/pkg/sharding). Both must agree for ever, or one replica would watch an object that belongs to
// another's shard. The tests compare the two, and let the API server's own parser read every selector that this package
// writes.
//
// # Prefixes and shards
//
// A [Prefix] is zero to eight leading bits of the hash. The prefixes of a cluster's shards form a partition: every hash
// lies in exactly one of them. Splitting a prefix gives two that are disjoint and whose union it is, so any sequence of
// splits and merges keeps the partition. As a prefix never has more bits than a slot, a shard is always a whole run of
// slots, and the slot of an owner, stamped as a label on what it owns ([SlotLabel]), stays valid through every split
// and merge.
//
// # Considerations
//
// UIDs are hashed, not names. The API server can filter a watch by the UID's hash and by nothing finer. Ranges over
// hashed sequential names would also be badly skewed, since the last bytes of FNV-1a's input hardly reach the top bits.
// The UIDs that the API server gives out are random (version 4), so the top bytes of their hashes are spread evenly.
//
// The zero [Prefix] is the empty one and contains everything.
package keyspace
