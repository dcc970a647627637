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

// absence is since when a target has been missing, and when that was last asked.
type absence struct{ since, asked time.Time }

// missing returns how much of the grace is left.
func (m *connections) missing(c connection, now time.Time) time.Duration {
	return max(0, m.since(c, now).Add(connectGrace).Sub(now))
}

// since returns since when a target has been missing. Call it only while the target is missing.
func (m *connections) since(c connection, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.missed == nil {
		m.missed = map[connection]absence{}
	}
	a, found := m.missed[c]
	if !found || now.Sub(a.asked) >= noteLife {
		a.since = now
	}
	a.asked = now
	m.missed[c] = a
	if now.Sub(m.swept) >= noteLife {
		m.swept = now
		maps.DeleteFunc(m.missed, func(_ connection, a absence) bool { return now.Sub(a.asked) >= noteLife })
	}
	return a.since
}

func (m *connections) made(c connection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.missed, c)
}
