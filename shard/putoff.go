package shard

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-dev/tenure/pkg/fairqueue"
	"github.com/tenure-dev/tenure/shard/internal/engage"
)

// putOff records which keys of a shard wait for their cluster, because it is overloaded, refused them or serves
// nothing now, and since when. Such a key holds no worker, and a workqueue can't tell it from a key whose time hasn't
// come. The zero value is empty. It is safe for concurrent use.
type putOff struct {
	mu      sync.Mutex
	keys    map[putOffKey]putOffSince
	refused int // how many of them were refused by 403 or 500
}

// putOffKey is a key of one of the controllers.
type putOffKey struct {
	controller *guard
	types.NamespacedName
}

// putOffSince is since when a key has been put off.
type putOffSince struct {
	since    time.Time
	alone    time.Time // since when its requests have failed while its cluster serves others; zero if they haven't
	refusals int       // by 403 or 500, which may be about the key itself
	until    time.Time // when a key that was refused so tries again, whatever becomes of others
}

// note records that a key is put off, for the first time or again, as all keys of its namespace are.
func (p *putOff) note(key putOffKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.enter(key)
	s.alone = time.Time{}
	p.keys[key] = s
}

// noteAlone records that a key is put off while its cluster serves others, and returns for how long that has been so.
func (p *putOff) noteAlone(key putOffKey) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.enter(key)
	if s.alone.IsZero() {
		s.alone = time.Now()
		p.keys[key] = s
	}
	return time.Since(s.alone)
}

// enter finds or makes a key's entry. Call it with the lock held.
func (p *putOff) enter(key putOffKey) putOffSince {
	if p.keys == nil {
		p.keys = map[putOffKey]putOffSince{}
	}
	s, known := p.keys[key]
	if !known {
		s.since = time.Now()
		p.keys[key] = s
	}
	return s
}

// refusedEach is what each refused key adds to the pause of all refused keys while the cluster serves nothing, so
// that they don't flood it when it serves again.
const refusedEach = 50 * time.Millisecond

// refuse records that the cluster refused a key by 403 or 500, and returns how long the key should wait. The wait
// doubles each time, but stays short if the cluster serves nothing else either.
func (p *putOff) refuse(key putOffKey, othersServed bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.enter(key)
	if s.refusals == 0 {
		p.refused++
	}
	pause := min(engage.FirstPause<<min(s.refusals, 9), engage.LongestAsked)
	s.until = time.Now().Add(min(engage.LastPause<<min(2*s.refusals, 9), engage.LongestAsked))
	s.refusals++
	p.keys[key] = s
	if !othersServed {
		pause = min(pause, max(engage.LastPause, time.Duration(p.refused)*refusedEach))
	}
	return pause
}

// waits reports whether a key that was refused by 403 or 500 waits like all others that were. Later it is tried
// whatever the cluster says to those: it may have been corrected since.
func (p *putOff) waits(key putOffKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.keys[key].until)
}

// wasRefused reports whether the cluster refused a key by 403 or 500 since it was put off.
func (p *putOff) wasRefused(key putOffKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keys[key].refusals > 0
}

// forget removes a key that isn't put off any more.
func (p *putOff) forget(key putOffKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keys[key].refusals > 0 {
		p.refused--
	}
	if delete(p.keys, key); len(p.keys) == 0 {
		p.keys = nil // a map keeps the room that it once needed
	}
}

// backlog returns the keys that wait for the cluster.
func (p *putOff) backlog(cluster string) fairqueue.Backlog {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := fairqueue.Backlog{Cluster: cluster, Ready: len(p.keys)}
	spaces := map[string]fairqueue.Waiting{}
	for key, s := range p.keys {
		w := spaces[key.Namespace]
		w.Namespace, w.Ready, w.Wait = key.Namespace, w.Ready+1, max(w.Wait, time.Since(s.since))
		spaces[key.Namespace] = w
	}
	for _, w := range spaces {
		all.Enter(w)
	}
	return all
}
