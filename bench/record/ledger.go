package record

import (
	"sync"
	"time"

	"github.com/tenure-dev/tenure/bench/load"
	"github.com/tenure-dev/tenure/bench/load/feed"
	"github.com/tenure-dev/tenure/bench/stats"
)

// Ledger knows of each object of the load what was intended and what was seen: of an At when it was DONE, of a
// Deployment when its last copy was there. It is safe for concurrent use.
type Ledger struct {
	mu      sync.Mutex // guards all below
	ats     map[load.Ref]*life
	open    int // expected and not DONE yet
	changed chan struct{}
}

// life is one object as it was seen.
type life struct {
	load.Arrival
	running, done time.Time       // running stays zero for a Deployment
	pods          map[string]bool // by UID
	early         bool
	copies        map[string]*copied // of a Deployment, by cluster
}

// NewLedger makes an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{ats: map[load.Ref]*life{}, changed: make(chan struct{}, 1)}
}

// Expect enters an At that is about to be asked for.
func (l *Ledger) Expect(a load.Arrival) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ats[a.Ref] == nil {
		l.ats[a.Ref] = &life{Arrival: a, pods: map[string]bool{}, copies: map[string]*copied{}}
		l.open++
	}
}

// Sent notes when the API server had it.
func (l *Ledger) Sent(a load.Arrival) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.ats[a.Ref]; at != nil {
		at.Sent, at.Answered = a.Sent, a.Answered
	}
}

// At enters a change of an At, and reports whether it made the At DONE.
func (l *Ledger) At(cluster string, e feed.Event) (done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.ats[load.RefOf(cluster, e.Object.Metadata.Namespace, e.Object.Metadata.Name)]
	if at == nil || e.Type == "DELETED" {
		return false
	}
	phase := e.Object.Status.Phase
	if phase != "" && phase != "PENDING" && at.running.IsZero() {
		at.running = e.At
		at.early = at.early || e.At.Before(at.Due)
	}
	if phase == "DONE" && at.done.IsZero() {
		at.done = e.At
		l.close()
		return true
	}
	return false
}

// close notes that one thing that was waited for has happened. The lock must be held.
func (l *Ledger) close() {
	l.open--
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// Pod enters a change of a Pod.
func (l *Ledger) Pod(cluster string, e feed.Event) {
	if e.Type != "ADDED" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.ats[load.RefOf(cluster, e.Object.Metadata.Namespace, e.Object.Owner())]
	if at == nil {
		return
	}
	at.pods[e.Object.Metadata.UID] = true
	at.early = at.early || e.At.Before(at.Due)
}

// Open is how much is still waited for: Ats that must become DONE, Deployments that must have all their copies, and
// changes of copies that must be undone.
func (l *Ledger) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// Done is how many objects are complete (Ats that are DONE, Deployments with all their copies), less the changes of
// copies that are still to be undone.
func (l *Ledger) Done() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, len(l.ats)-l.open)
}

// Changed gets a message when an At becomes DONE, a Deployment has all its copies or a change is undone. Messages
// that nobody has read yet are merged into one.
func (l *Ledger) Changed() <-chan struct{} { return l.changed }

// Lives is what a round looks like from outside.
type Lives struct {
	Objects, Lost, Duplicates, Early int
	Converge, Lateness               stats.Latencies
	// Copies of Deployments, how often one was changed by a stranger, and how long it took until that was undone.
	Copies, Drifts int
	Repair         stats.Latencies
	// Ats are the arrivals, by the samples' key.
	Ats map[uint64]load.Arrival
	// Last is when the last At was DONE.
	Last time.Time
	// Dones are when Ats became DONE, in no order.
	Dones []time.Time
}

// Unlogged counts the objects of a namespace that are done and that audit logs don't show as served: an At itself, a
// Deployment in each cluster that has a copy of it.
func (l *Ledger) Unlogged(namespace string, served map[load.Ref]bool) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ref, at := range l.ats {
		shown := len(at.copies) > 0 || served[ref]
		for cluster := range at.copies {
			shown = shown && served[load.Ref{Cluster: cluster, Namespace: ref.Namespace, Name: ref.Name}]
		}
		if ref.Namespace == namespace && !at.done.IsZero() && !shown {
			n++
		}
	}
	return n
}

// Sum sums up all objects of a namespace, or of all if it is empty; keyOf names them as the samples do.
func (l *Ledger) Sum(namespace string, only func(load.Arrival) bool, keyOf func(load.Ref) uint64) Lives {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Lives{Ats: map[uint64]load.Arrival{}}
	for ref, at := range l.ats {
		if namespace != "" && ref.Namespace != namespace || only != nil && !only(at.Arrival) {
			continue
		}
		s.Objects++
		s.Ats[keyOf(ref)] = at.Arrival
		if at.early {
			s.Early++
		}
		s.Duplicates += max(0, len(at.pods)-1)
		s.addCopies(at)
		if at.done.IsZero() {
			s.Lost++
			continue
		}
		s.Converge.Add(at.done.Sub(at.Intended))
		if !at.running.IsZero() {
			s.Lateness.Add(at.running.Sub(at.Due))
		}
		s.Dones = append(s.Dones, at.done)
		if at.done.After(s.Last) {
			s.Last = at.done
		}
	}
	return s
}
