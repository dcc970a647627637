package replication

import (
	"maps"
	"sync"
	"time"

	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// connectGrace is how long after a start or a handoff a cluster may take to connect before sources show it as away.
const connectGrace = 10 * time.Second

// connection is a target as seen from the cluster, or shard, of a source.
type connection struct{ from, to multicluster.ClusterName }

// connections records since when targets are missing.
type connections struct {
	mu     sync.Mutex // guards all below
	missed map[connection]absence
	swept  time.Time
}

// absence is since when a target is missing, and when that was last asked.
type absence struct{ since, asked time.Time }

// missing returns how much of the grace is left.
func (m *connections) missing(c connection, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.missed == nil {
		m.missed = map[connection]absence{}
	}
	a, found := m.missed[c]
	if !found {
		a.since = now
	}
	a.asked = now
	m.missed[c] = a
	if now.Sub(m.swept) >= noteLife {
		m.swept = now
		maps.DeleteFunc(m.missed, func(_ connection, a absence) bool { return now.Sub(a.asked) >= noteLife })
	}
	return max(0, a.since.Add(connectGrace).Sub(now))
}

func (m *connections) made(c connection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.missed, c)
}

// breaker is a circuit breaker: it remembers which targets don't answer, so that not every source waits for the same
// timeout.
type breaker struct {
	mu      sync.Mutex // guards targets
	targets map[multicluster.ClusterName]trip
}

type trip struct {
	until    time.Time
	asked    time.Time // when it last failed, or a probe was let through
	failures int
	probing  bool // a probe was let through, and ends by until
}

// longestTrip bounds how long it goes unnoticed that a target answers again.
const longestTrip = 15 * time.Second

// open returns how long a target is left out; 0: it may be used. Once a trip is over, one caller is let through as a
// probe for all, and must end it with settled. Otherwise every worker would wait for the same timeout.
func (b *breaker) open(name multicluster.ClusterName, now time.Time, timeout time.Duration) (wait time.Duration, probe bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, tripped := b.targets[name]
	if left := t.until.Sub(now); !tripped || left > 0 {
		return max(0, left), false
	}
	t.until, t.asked, t.probing = now.Add(timeout), now, true
	b.targets[name] = t
	return 0, true
}

// settled ends a probe, whatever its result.
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
	if t.probing || !now.Before(t.until) { // otherwise another source failed in the same outage
		t.until, t.probing = now.Add(min(delay(t.failures), longestTrip)), false
		t.failures++
	}
	t.asked = now
	b.targets[name] = t
	maps.DeleteFunc(b.targets, func(_ multicluster.ClusterName, t trip) bool { // clusters that aren't asked for any more
		return now.Sub(t.asked) >= noteLife
	})
	return t.until.Sub(now)
}

func (b *breaker) succeeded(name multicluster.ClusterName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.targets, name)
}
