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

const (
	// listsTogether is how many lists a replica requests from all clusters together at a time. Without a bound it would
	// hold those of a thousand clusters in memory at once at a cold start.
	listsTogether = 64
	// listTurn is how long a list keeps those of other clusters waiting: its cluster may be slow, or never answer.
	listTurn = time.Second
)

// list waits until one more list may be requested; call leave after it. It waits for the cluster first, so a slow one
// has listsAtOnce of all places at most. It fails only with the context's error.
func (t *Traffic) list(ctx context.Context) (leave func(), err error) {
	if err := t.lists.Enter(ctx, listsAtOnce); err != nil {
		return nil, err
	}
	// A silent cluster sends nothing, so its list costs nothing.
	if open, why := t.Breaker.Open(); t.Together == nil || open && why == Silence {
		return t.lists.Leave, nil
	}
	done, err := t.Together.Turn(ctx, listsTogether, listTurn, nil)
	if err != nil {
		t.lists.Leave()
		return nil, err
	}
	return func() { done(); t.lists.Leave() }, nil
}
