package engage

import (
	"context"
	"slices"
	"sync"
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
	if err := t.fills.enter(ctx, fillsAtOnce); err != nil {
		return nil, err
	}
	leave := sync.OnceFunc(t.fills.leave)
	over := time.AfterFunc(fillTurn, leave)
	return func() {
		over.Stop()
		leave()
	}, nil
}

// turnstile lets so many through at a time, the others in turn. The zero value is ready. It is safe for concurrent use.
type turnstile struct {
	mu     sync.Mutex // guards all below
	most   int        // inside; 0 is any number
	inside int
	queue  []chan struct{} // of those that wait; closed for the one that gets a place
}

// enter waits for a place among so many, which leave gives back.
func (t *turnstile) enter(ctx context.Context, most int) error {
	t.mu.Lock()
	t.most = most
	if len(t.queue) == 0 && t.free() {
		t.inside++
		t.mu.Unlock()
		return nil
	}
	place := make(chan struct{})
	t.queue = append(t.queue, place)
	t.admit()
	t.mu.Unlock()
	select {
	case <-place:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.queue, place); i >= 0 {
		t.queue = slices.Delete(t.queue, i, i+1)
	} else { // it got the place meanwhile
		t.inside--
		t.admit()
	}
	return ctx.Err()
}

func (t *turnstile) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inside--
	t.admit()
}

// resize changes how many may be inside. Those that are stay.
func (t *turnstile) resize(most int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.most = most
	t.admit()
}

// count is how many are inside, and how many wait.
func (t *turnstile) count() (inside, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inside, len(t.queue)
}

// free and admit: call them with the lock held.
func (t *turnstile) free() bool { return t.most == 0 || t.inside < t.most }

func (t *turnstile) admit() {
	for len(t.queue) > 0 && t.free() {
		close(t.queue[0])
		t.queue = slices.Delete(t.queue, 0, 1)
		t.inside++
	}
}
