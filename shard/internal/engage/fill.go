package engage

import (
	"context"
	"time"
)

// listsAtOnce is how many lists a replica requests from one cluster at a time. Without a bound it would list all its
// shards side by side after an API server was restarted. If that server can't filter, each list is all of the kind,
// and lists that don't end in time are requested again.
const listsAtOnce = 4

const (
	// fillsAtOnce is how many shards of one cluster a replica fills the caches of at a time. Without a bound, a
	// replica that takes over thousands of shards would run all their goroutines at once, and the loop that renews
	// its Lease would wait among them. More at a time wouldn't be filled sooner: see listsAtOnce.
	fillsAtOnce = 2 * listsAtOnce
	// fillTurn is how long a shard keeps others waiting: its caches may never be filled.
	fillTurn = 5 * time.Second
)

// Fill waits for a turn to fill the caches of a shard. The turn ends when done is called, or after fillTurn. It fails
// only with the context's error.
func (t *Traffic) Fill(ctx context.Context) (done func(), err error) {
	return t.fills.Turn(ctx, fillsAtOnce, fillTurn, nil)
}
