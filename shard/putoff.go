package shard

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-dev/tenure/pkg/fairqueue"
)

// putOff is which keys of a shard wait for their cluster, which serves nothing now, and since when. Such a key is in no
// worker's way, and a queue can't tell it from one whose time hasn't come. The zero value is empty. It is safe for
// concurrent use.
type putOff struct {
	mu    sync.Mutex
	since map[putOffKey]time.Time
}

// putOffKey is a key of one of the controllers.
type putOffKey struct {
	controller *guard
	types.NamespacedName
}

// note enters a key that is put off, for the first time or again, and returns for how long it has been.
func (p *putOff) note(key putOffKey) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since == nil {
		p.since = map[putOffKey]time.Time{}
	}
	if _, known := p.since[key]; !known {
		p.since[key] = time.Now()
	}
	return time.Since(p.since[key])
}

// has reports whether a key was put off when it was last seen.
func (p *putOff) has(key putOffKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.since[key]
	return known
}

// forget takes out a key that isn't put off any more.
func (p *putOff) forget(key putOffKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.since, key); len(p.since) == 0 {
		p.since = nil // a map keeps the room that it once needed
	}
}

// backlog is what waits for the cluster.
func (p *putOff) backlog(cluster string) fairqueue.Backlog {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := fairqueue.Backlog{Cluster: cluster, Ready: len(p.since)}
	spaces := map[string]fairqueue.Waiting{}
	for key, since := range p.since {
		w := spaces[key.Namespace]
		w.Namespace, w.Ready, w.Wait = key.Namespace, w.Ready+1, max(w.Wait, time.Since(since))
		spaces[key.Namespace] = w
	}
	for _, w := range spaces {
		all.Enter(w)
	}
	return all
}
