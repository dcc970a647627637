package informer

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

var _ cache.Informer = (*Store)(nil)

var (
	errStopped  = errors.New("the informer has stopped: it takes no more handlers")
	errIndexers = errors.New("this informer has field indexes only: use IndexField")
)

// registration is a handler that receives changes. It received all objects that existed when it was added.
type registration struct {
	of      *Store
	handler toolscache.ResourceEventHandler
	removed atomic.Bool
}

func (r *registration) HasSynced() bool { return toolscache.IsDone(r.HasSyncedChecker()) }

// HasSyncedChecker is done when the handler has received the first list.
func (r *registration) HasSyncedChecker() toolscache.DoneChecker {
	return closed{"handler of " + r.of.cfg.Kind.Kind, r.of.shown}
}

// AddEventHandler adds a handler. It shows it all objects that exist before it returns, and then every change.
func (s *Store) AddEventHandler(handler toolscache.ResourceEventHandler) (
	toolscache.ResourceEventHandlerRegistration, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.IsStopped() {
		return nil, errStopped
	}
	r := &registration{of: s, handler: handler}
	for o := range s.All() {
		r.handler.OnAdd(o, true)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers = append(slices.Clip(s.handlers), r)
	return r, nil
}

// AddEventHandlerWithResyncPeriod is AddEventHandler: there are no resyncs.
func (s *Store) AddEventHandlerWithResyncPeriod(handler toolscache.ResourceEventHandler,
	_ time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandler(handler)
}

// AddEventHandlerWithOptions is AddEventHandler: there are no resyncs.
func (s *Store) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler,
	_ toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandler(handler)
}

// RemoveEventHandler removes a handler. A change that is being shown to it just now isn't interrupted.
func (s *Store) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	r, ok := handle.(*registration)
	if !ok || r.of != s {
		return errors.New("the handler is another informer's")
	}
	r.removed.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers = slices.DeleteFunc(slices.Clone(s.handlers), func(other *registration) bool { return other == r })
	return nil
}

// AddIndexers refuses: what they would index by can't be read through a cache.Cache.
func (s *Store) AddIndexers(toolscache.Indexers) error { return errIndexers }

// HasSynced reports whether the first list is in.
func (s *Store) HasSynced() bool { return toolscache.IsDone(s.HasSyncedChecker()) }

// HasSyncedChecker is done when HasSynced.
func (s *Store) HasSyncedChecker() toolscache.DoneChecker {
	return closed{"informer of " + s.cfg.Kind.Kind, s.synced}
}

// IsStopped reports whether Run has returned.
func (s *Store) IsStopped() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// closed is done when a channel is closed.
type closed struct {
	name string
	when <-chan struct{}
}

func (c closed) Name() string { return c.name }

func (c closed) Done() <-chan struct{} { return c.when }

// listeners returns the handlers that a change is shown to.
func (s *Store) listeners() []*registration {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.handlers
}

// show shows a change to all handlers. Call it with the turn held, once the change is made.
func (s *Store) show(c change, first bool) {
	listeners := s.listeners()
	if len(listeners) == 0 {
		return
	}
	old, now := opened(c.old), opened(c.now)
	for _, r := range listeners {
		switch {
		case r.removed.Load():
		case old == nil:
			r.handler.OnAdd(now, first)
		default:
			r.handler.OnUpdate(old, now)
		}
	}
}

func (r *registration) deleted(what any) {
	if !r.removed.Load() {
		r.handler.OnDelete(what)
	}
}
