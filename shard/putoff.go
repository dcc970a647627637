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
	mu    sync.Mutex // guards all below
	keys  map[putOffKey]putOffSince
	early int       // retries granted ahead of time: servedAdmits for each early retry that succeeded
	paced time.Time // without a grant, the next early retry is allowed from this time on
}

// putOffKey is a key of one of the controllers.
type putOffKey struct {
	controller *guard
	types.NamespacedName
}

// putOffSince is since when a key has been put off.
type putOffSince struct {
	since        time.Time
	alone        time.Time // since when its requests have failed while its cluster serves others; zero if they haven't
	refusals     int       // by 403 or 500, which may be about the key itself
	until        time.Time // when a key that was refused so tries again, whatever becomes of others
	retriesEarly bool      // it was refused while the cluster served nothing, so it is retried now and then
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

const (
	// refusedEvery is the time between two trials of keys that were refused while the cluster served nothing, once it
	// serves something. That may be something else, and then they would all be refused again.
	refusedEvery = 50 * time.Millisecond
	// servedAdmits is how many of these keys are tried for each of them that was served. So their number doubles again
	// and again in a cluster that has recovered, and what it still refuses costs it little.
	servedAdmits = 2
)

// refuse records that the cluster refused a key by 403 or 500, and returns how long the key should wait. The wait
// doubles each time. But if the cluster serves nothing else either, the key is soon retried: that may be over.
func (p *putOff) refuse(key putOffKey, othersServed bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.enter(key)
	pause := min(engage.FirstPause<<min(s.refusals, 9), engage.LongestAsked)
	s.until = time.Now().Add(min(engage.LastPause<<min(2*s.refusals, 9), engage.LongestAsked))
	s.refusals++
	s.retriesEarly = !othersServed
	p.keys[key] = s
	if !othersServed {
		pause = min(pause, engage.LastPause)
	}
	return pause
}

// admits reports whether a key that its cluster doesn't put off now is tried. A key that was refused while nothing was
// served may have to wait longer: its early retries are paced.
func (p *putOff) admits(key putOffKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch s := p.keys[key]; {
	case !s.retriesEarly || !now.Before(s.until):
	case p.early > 0:
		p.early--
	case now.Before(p.paced):
		return false
	default:
		p.paced = now.Add(refusedEvery)
	}
	return true
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

// serve removes a key whose reconcile had no error that its cluster may be to blame for.
func (p *putOff) serve(key putOffKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keys[key].retriesEarly {
		p.early += servedAdmits
	}
	p.remove(key)
}

// forget removes a key that isn't put off any more.
func (p *putOff) forget(key putOffKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(key)
}

// remove removes a key. Call it with the lock held.
func (p *putOff) remove(key putOffKey) {
	delete(p.keys, key)
	if len(p.keys) == 0 {
		p.keys, p.early = nil, 0 // a map keeps the room that it once needed
	}
}

// backlog returns the keys of a controller that wait for the cluster; nil for those of all controllers. A key that was
// refused while others were served isn't among them: it backs off like after any other error.
func (p *putOff) backlog(cluster string, of *guard) fairqueue.Backlog {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := fairqueue.Backlog{Cluster: cluster}
	spaces := map[string]fairqueue.Waiting{}
	for key, s := range p.keys {
		if of != nil && key.controller != of || s.refusals > 0 && !s.retriesEarly {
			continue
		}
		all.Ready++
		w := spaces[key.Namespace]
		w.Namespace, w.Ready, w.Wait = key.Namespace, w.Ready+1, max(w.Wait, time.Since(s.since))
		spaces[key.Namespace] = w
	}
	for _, w := range spaces {
		all.Enter(w)
	}
	return all
}
