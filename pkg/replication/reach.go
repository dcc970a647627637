package replication

import (
	"sync"
	"time"

	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// connectGrace is how long a cluster may take to be connected, after a start or a handoff, before sources show it.
const connectGrace = 10 * time.Second

// connection is a target as seen by the cluster, or shard, of a source.
type connection struct{ from, to multicluster.ClusterName }

// connections remembers since when targets are missing.
type connections struct {
	mu    sync.Mutex // guards since
	since map[connection]time.Time
}

// missing is how much of the grace is left.
func (m *connections) missing(c connection, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.since == nil {
		m.since = map[connection]time.Time{}
	}
	if _, found := m.since[c]; !found {
		m.since[c] = now
	}
	return max(0, m.since[c].Add(connectGrace).Sub(now))
}

func (m *connections) made(c connection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.since, c)
}

// breaker remembers which targets don't answer, so that not every source waits for the same timeout.
type breaker struct {
	mu      sync.Mutex // guards targets
	targets map[multicluster.ClusterName]trip
}

type trip struct {
	until    time.Time
	failures int
	probing  bool // somebody was let through, who knows by until
}

// longestTrip bounds how long a target that answers again may go unnoticed.
const longestTrip = 15 * time.Second

// open is how long a target is to be left out; 0: it may be asked. Once a trip is over, one caller is let through to find
// out for all, and must end that with settled: else every worker would wait for the same timeout.
func (b *breaker) open(name multicluster.ClusterName, now time.Time, timeout time.Duration) (wait time.Duration, probe bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, tripped := b.targets[name]
	if left := t.until.Sub(now); !tripped || left > 0 {
		return max(0, left), false
	}
	t.until, t.probing = now.Add(timeout), true
	b.targets[name] = t
	return 0, true
}

// settled ends a probe, whatever came of it.
func (b *breaker) settled(name multicluster.ClusterName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.targets[name]; t.probing {
		t.until, t.probing = time.Time{}, false
		b.targets[name] = t
	}
}

func (b *breaker) failed(name multicluster.ClusterName, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.targets == nil {
		b.targets = map[multicluster.ClusterName]trip{}
	}
	t := b.targets[name]
	if t.probing || !now.Before(t.until) { // else another source failed in the same outage
		t.until, t.probing = now.Add(min(delay(t.failures), longestTrip)), false
		t.failures++
	}
	b.targets[name] = t
	return t.until.Sub(now)
}

func (b *breaker) succeeded(name multicluster.ClusterName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.targets, name)
}
