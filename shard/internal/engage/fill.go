package engage

import (
	"context"
	"time"
)

// listsAtOnce is how many lists a replica asks one cluster for at a time. Without a bound it lists all its shards side
// by side when an API server was restarted; where that can't filter, each list is all of the kind, and those that don't
// end in time are asked for again.
const listsAtOnce = 4

const (
	// fillsAtOnce is how many shards of one cluster a replica fills the caches of at a time. Without a bound a replica
	// that takes thousands over has all their goroutines to run at once, and the loop that renews its Lease waits among
	// them. More at a time wouldn't be filled sooner: see listsAtOnce.
	fillsAtOnce = 2 * listsAtOnce
	// fillTurn is for how long a shard keeps others waiting: the caches of one may never be filled.
	fillTurn = 5 * time.Second
)

// Fill waits for a turn to fill the caches of a shard. The turn ends when done is called, or by itself after a while.
// It fails only with the context.
func (t *Traffic) Fill(ctx context.Context) (done func(), err error) {
	return t.fills.Turn(ctx, fillsAtOnce, fillTurn, nil)
}
