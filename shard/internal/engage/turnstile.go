package engage

import (
	"context"
	"slices"
	"sync"
)

// listsAtOnce is how many lists a replica asks one cluster for at a time. Without a bound it lists all its shards side by side
// when an API server was restarted; where that can't filter, each list is all of the kind, and those that don't end in time
// are asked for again.
const listsAtOnce = 4

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
