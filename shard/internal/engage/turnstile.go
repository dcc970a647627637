package engage

import (
	"context"
	"sync"
)

// listsAtOnce is how many lists a replica asks one cluster for at a time.
const listsAtOnce = 4

// turnstile lets a few through at a time, the others in turn. The zero value is ready. Without it a replica lists all its
// shards side by side when an API server was restarted; where that can't filter, each list is all of the kind, and those
// that don't end in time are asked for again.
type turnstile struct {
	once   sync.Once
	places chan struct{}
}

// enter waits for a place, which leave gives back.
func (t *turnstile) enter(ctx context.Context) (leave func(), err error) {
	t.once.Do(func() { t.places = make(chan struct{}, listsAtOnce) })
	select {
	case t.places <- struct{}{}:
		return func() { <-t.places }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
