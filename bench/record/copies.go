package record

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/bench/load"
	"github.com/tenure-dev/tenure/bench/load/feed"
)

// copied is one copy of a Deployment as it was seen.
type copied struct {
	drift   time.Time // when a stranger should have changed it; zero if none did
	changed bool      // whether that change was seen
	repair  time.Duration
}

// Copy enters a change of a Deployment in a workload cluster. Its source must have been expected in the cluster
// home. A source is complete once it has a copy in as many clusters as given.
func (l *Ledger) Copy(home, cluster string, clusters int, e feed.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	source := l.ats[load.Ref{Cluster: home, Namespace: e.Object.Metadata.Namespace, Name: e.Object.Metadata.Name}]
	if source == nil || e.Type == "DELETED" {
		return
	}
	right := e.Object.Spec.Replicas == load.Replicas
	c := source.copies[cluster]
	switch {
	case c == nil && right:
		source.copies[cluster] = &copied{}
		if len(source.copies) == clusters {
			source.done = e.At
			l.close()
		}
	case c == nil || c.drift.IsZero() || c.repair > 0:
	case !right:
		c.changed = true
	case c.changed:
		c.repair = e.At.Sub(c.drift)
		l.close()
	}
}

// Drift enters that a stranger is about to change an existing copy.
func (l *Ledger) Drift(source load.Ref, cluster string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.ats[source]; s != nil && s.copies[cluster] != nil && s.copies[cluster].drift.IsZero() {
		s.copies[cluster].drift = at
		l.open++
	}
}

// Complete lists the Deployments of a namespace that have all their copies, by name.
func (l *Ledger) Complete(namespace string) []load.Ref {
	l.mu.Lock()
	defer l.mu.Unlock()
	refs := slices.SortedFunc(maps.Keys(l.ats), func(a, b load.Ref) int { return strings.Compare(a.Name, b.Name) })
	return slices.DeleteFunc(refs, func(ref load.Ref) bool {
		return ref.Namespace != namespace ||
			l.ats[ref].done.IsZero()
	})
}

// addCopies sums up a Deployment's copies. A change that was never undone counts as a loss.
func (s *Lives) addCopies(of *life) {
	s.Copies += len(of.copies)
	for _, c := range of.copies {
		switch {
		case c.drift.IsZero():
			continue
		case c.repair == 0:
			s.Lost++
		default:
			s.Repair.Add(c.repair)
		}
		s.Drifts++
	}
}
