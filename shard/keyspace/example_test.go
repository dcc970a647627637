package keyspace_test

import (
	"fmt"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// A cluster of four shards, and the one that an object belongs to.
func Example() {
	const uid = "6c84fb90-12c4-11e1-840d-7b25c5ee775a"
	fmt.Println("slot", keyspace.SlotOf(uid))
	for _, prefix := range keyspace.Partition(2) {
		first, last := prefix.Slots()
		id := keyspace.ShardID{Cluster: "west", Prefix: prefix}
		fmt.Println(id, first, last, id.Contains(uid))
	}
	// Output:
	// slot 55
	// west/00 00 3f false
	// west/01 40 7f true
	// west/10 80 bf false
	// west/11 c0 ff false
}

// What an API server is asked for that filters watches.
func ExamplePrefix_Selector() {
	prefix, err := keyspace.ParsePrefix("01")
	fmt.Println(prefix.Selector(), err)
	// Output: shardRange(object.metadata.uid, '0x4000000000000000', '0x8000000000000000') <nil>
}
