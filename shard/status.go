package shard

import (
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Status is what a replica holds and does, at one moment.
type Status struct {
	Replica     string
	Incarnation protocol.Incarnation
	// Member is whether the incarnation's lease is valid.
	Member      bool
	Coordinator bool
	Leaving     bool
	// MemoryNeeded is the part of the memory limit (GOMEMLIMIT) that the process needs, 1 for all of it; 0 if there
	// is no limit. From 0.8 on, it fills the caches of one shard at a time.
	MemoryNeeded float64
	// Shards that the replica holds or warms, sorted.
	Shards []ShardStatus
	// WithoutHolder are the shards that have no live holder by the records, of the clusters that this replica knows, with
	// the time when it noticed. A cluster's second name doesn't count, nor does a name that another cluster had until its
	// new layout is made.
	// Moving are those whose assignee isn't their holder yet. Both are updated about twice per lease duration.
	WithoutHolder, Moving map[keyspace.ShardID]time.Time
	// Stuck are the shards that the replica holds and can't serve or keep up to date, with the time since when: its caches
	// of them aren't filled, the lists or watches of a kind fail, or their cluster can't be used from here.
	Stuck map[keyspace.ShardID]time.Time
	// Odd are the records with which something is wrong.
	Odd []inspect.Odd
	// Lost counts the records that were seen to be deleted since the process began.
	Lost int
	// Aliases has, for each name under which a cluster isn't served, the name under which it is.
	Aliases map[keyspace.ClusterName]keyspace.ClusterName
	// Clusters that the provider knows, and a few that it removed, with their traffic.
	Clusters map[keyspace.ClusterName]ClusterStatus

	validity *validity // of the incarnation
}

// ShardStatus is one shard at one replica.
type ShardStatus struct {
	ID      keyspace.ShardID
	Epoch   protocol.Epoch
	Phase   string  // warming, warm, active, draining, drained
	Objects int64   // of primary kinds, when it was last measured
	Load    float64 // reconcile seconds per second
}

// Served reports whether the replica reconciles the shard's keys. A draining shard counts, since those that workers
// have are still finished.
func (s ShardStatus) Served() bool { return s.Phase == "active" || s.Phase == "draining" }

// ClusterStatus is how one workload cluster stands at this replica: traffic, answers, credentials.
type ClusterStatus struct {
	// ListWatchBytes were received in answers to reads and watches. Of the objects and events in them, Kept belonged to
	// the shard that asked, and Discarded to other shards.
	ListWatchBytes  uint64
	Kept, Discarded uint64
	// FencedWrites were refused before they were sent, because their shard wasn't held any more.
	FencedWrites uint64
	// UnansweredWrites were sent, and it is unknown whether they were carried out.
	UnansweredWrites uint64
	// Abandoned are the reconciles that run on although their context has ended long ago; their writes are refused.
	Abandoned int64
	// Writes were sent and not answered yet; WaitingWrites wait for their turn by the limits.
	Writes, WaitingWrites int
	Limits                kubeconfig.Limits
	// State is judged by the cluster's answers to this replica's requests of the last seconds. An Unusable cluster is
	// open or half-open. Cause is why it isn't closed: silent, unavailable, throttling, unauthorized, failing, forbidding
	// or late.
	State protocol.ClusterState
	Cause string
	// Unusable is why the cluster can't be used from this replica; "" if it can, or if the replica didn't probe it
	// because it has nothing to do there.
	Unusable string
	// Known is whether the provider knows the cluster, or did within the removal grace.
	Known bool
	// Refused says why the connection that the provider gave last isn't used; "" if it is, or may yet be.
	Refused string
	// CredentialsExpire is when the credentials in use expire; zero if they don't say.
	CredentialsExpire time.Time
	// WatchMode is "server" while the API server filters watches. It is "client" from the first object that wasn't
	// asked for until the process ends, since nothing shows that a server has learned to filter.
	WatchMode string
}

// report is the state that the loop publishes for other goroutines.
type report struct {
	replica   string
	status    *atomic.Pointer[Status]
	stale     bool // requests were carried out since the last publication
	published time.Time
	took      time.Duration                  // the last publication
	stuck     map[keyspace.ShardID]time.Time // never changed, only replaced
	judged    time.Time                      // when it was found last which shards are stuck; once a second
}

// publish publishes the present state after requests were carried out, and once a second for what changes otherwise.
// Traffic can be read at any time.
func (r *report) publish(d *driver.Driver, l *validity, g *engager, found *surveyor) {
	began := time.Now()
	if r.wait(began) > 0 {
		return
	}
	st := &Status{
		Replica: r.replica, Incarnation: d.ID(), Coordinator: d.Leads(), Leaving: d.Leaving(),
		WithoutHolder: found.orphans, Moving: found.moving, Odd: found.odd, Lost: found.lost, Aliases: d.Aliases(),
		validity: l,
	}
	before, judge := r.stuck, began.Sub(r.judged) >= time.Second
	r.stuck = map[keyspace.ShardID]time.Time{}
	if judge {
		r.judged = began
	}
	for _, h := range d.Holdings() {
		e := g.of(h.ID)
		s := statusOf(h, e)
		st.Shards = append(st.Shards, s)
		if !h.Held {
			continue
		}
		from := before[h.ID]
		if judge {
			from = g.stuck(s, e, began)
		}
		if !from.IsZero() {
			r.stuck[h.ID] = since(before, h.ID, from)
		}
	}
	st.Stuck = r.stuck
	r.status.Store(st)
	r.stale, r.published = false, time.Now()
	r.took = r.published.Sub(began)
}

// wait returns how long the published state may stay as it is.
func (r *report) wait(now time.Time) time.Duration {
	least := time.Second
	if r.stale {
		least = pauseAfter(r.took)
	}
	return least - now.Sub(r.published)
}

// statusOf describes what is warm or held here. The engagement is nil where there is none.
func statusOf(h ownership.Holding, e *engagement) ShardStatus {
	s := ShardStatus{ID: h.ID, Epoch: h.Epoch, Phase: h.Phase}
	if e != nil {
		s.Objects, s.Load = e.sample.objects, e.sample.load
	}
	return s
}
