package turnstile

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Turnstile bounds how many callers are inside at a time; the others wait in turn. The zero value is ready. It is
// safe for concurrent use.
type Turnstile struct {
	mu     sync.Mutex // guards all below
	most   int        // inside at a time; 0 for any number
	inside int
	queue  []chan struct{} // of callers that wait; closed for the one that gets a place
}

// Enter waits for a place among this many, 0 for any number; Leave gives it back. The number also holds for callers
// that wait already. It fails only with the context's error.
func (t *Turnstile) Enter(ctx context.Context, most int) error {
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

// Leave gives a place back.
func (t *Turnstile) Leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inside--
	t.admit()
}

// Turn waits for a place as Enter does. The place is given back when done is called, or after length, since the
// caller's work may never end. In the second case late is called first, unless it is nil.
func (t *Turnstile) Turn(ctx context.Context, most int, length time.Duration, late func()) (done func(), err error) {
	if err := t.Enter(ctx, most); err != nil {
		return nil, err
	}
	leave := sync.OnceFunc(t.Leave)
	over := time.AfterFunc(length, func() {
		if late != nil {
			late()
		}
		leave()
	})
	return func() {
		over.Stop()
		leave()
	}, nil
}

// Resize changes how many may be inside. Callers that are inside stay.
func (t *Turnstile) Resize(most int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.most = most
	t.admit()
}

// Count returns how many callers are inside, and how many wait.
func (t *Turnstile) Count() (inside, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inside, len(t.queue)
}

// free reports whether there is a place. Call it with the lock held.
func (t *Turnstile) free() bool { return t.most == 0 || t.inside < t.most }

// admit gives free places to callers that wait. Call it with the lock held.
func (t *Turnstile) admit() {
	for len(t.queue) > 0 && t.free() {
		close(t.queue[0])
		t.queue = slices.Delete(t.queue, 0, 1)
		t.inside++
	}
}
