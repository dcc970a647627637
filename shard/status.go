package shard

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/member"
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
	// Unserved are the shards that have no live holder by the records, with the time when this replica noticed.
	// Moving are those whose assignee isn't their holder yet. Both are updated about twice per lease duration.
	Unserved, Moving map[keyspace.ShardID]time.Time
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

	lease *lease // of the incarnation
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
	kinds     string // that this program shards
	status    *atomic.Pointer[Status]
	stale     bool // requests were carried out since the last publication
	published time.Time
	took      time.Duration // the last publication
	// What the last survey found; the maps are never changed, only replaced.
	unserved, moving, stuck map[keyspace.ShardID]time.Time
	odd                     []inspect.Odd
	lost                    int
	there                   map[string]types.UID // the records of the last survey
	changed                 atomic.Bool          // a record or the clusters changed since the last survey began
	peers                   map[protocol.Incarnation]peer
	led, calm               bool // it ran in the coordinator; it found nothing
	warner                  *warner
}

// publish publishes the present state after requests were carried out, and once a second for what changes otherwise.
// Traffic can be read at any time.
func (r *report) publish(d *driver.Driver, l *lease, g *engager) {
	began := time.Now()
	if r.wait(began) > 0 {
		return
	}
	st := &Status{
		Replica: r.replica, Incarnation: d.ID(), Coordinator: d.Leads(), Leaving: d.Leaving(),
		Unserved: r.unserved, Moving: r.moving, Odd: r.odd, Lost: r.lost, Aliases: d.Aliases(), lease: l,
	}
	before, now := r.stuck, time.Now()
	r.stuck = map[keyspace.ShardID]time.Time{}
	for _, h := range d.Holdings() {
		s := g.status(h)
		st.Shards = append(st.Shards, s)
		if !h.Held {
			continue
		}
		if from := g.stuck(s, now); !from.IsZero() {
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

// touch says that a record or the clusters have changed. It is safe for concurrent use.
func (r *report) touch() { r.changed.Store(true) }

// survey looks through all records for shards without a live holder, unfinished moves and odd records. It is for
// people and alerts; the protocol doesn't depend on it. The caches must be filled, otherwise survey waits for them.
// There may be tens of thousands of records. So where the last survey found nothing, and nothing that it goes by has
// changed, it isn't made again.
func (r *report) survey(ctx context.Context, records client.Reader, cfg Config, d *driver.Driver,
	clusters map[keyspace.ClusterName]realCluster) {
	changed := r.changed.Swap(false) // first: a change that comes while it reads counts for the next one
	// They are only read, so there is no need to copy them.
	leases, err := member.List(ctx, records, cfg.Namespace, cfg.Fleet, client.UnsafeDisableDeepCopy)
	peers := peersOf(leases)
	if err == nil && !changed && r.calm && r.led == d.Leads() && maps.Equal(peers, r.peers) {
		return
	}
	r.calm = false
	all, err := inspect.Read(ctx, records, cfg.Namespace, cfg.Fleet, client.UnsafeDisableDeepCopy)
	if err != nil {
		return // what the last survey found stays
	}
	now := time.Now()
	counting, odd, missing := all.Sort()
	unserved, moving := unservedAndMoving(all.Fleet, counting, peers, r.unserved, r.moving, now)
	for _, id := range missing {
		unserved[id] = since(r.unserved, id, now)
	}
	// The records of a cluster that was removed stay for their epochs, and nobody is to hold them.
	maps.DeleteFunc(unserved, func(id keyspace.ShardID, _ time.Time) bool {
		_, known := clusters[id.Cluster]
		return !known
	})
	r.unserved, r.moving = unserved, moving
	r.odd = odd
	gone, there := lost(r.there, all)
	r.lost, r.there = r.lost+len(gone), there
	r.peers, r.led = peers, d.Leads()
	r.calm = len(unserved)+len(moving)+len(odd)+len(gone) == 0
	if !r.led {
		return
	}
	for name, served := range d.Aliases() {
		odd = append(odd, inspect.Odd{
			Record: keyspace.LayoutName(cfg.Fleet, served), Reason: "ClusterHasTwoNames",
			Note: fmt.Sprintf("cluster %s is cluster %s under another name, and is served under that: find out which Secret is "+
				"right, and remove the other", name, served),
			Cause: string(name),
		})
	}
	r.warner.warnAll(ctx, slices.Concat(odd, gone), now)
	// These members joined although they don't fit: at the same moment, or because their version doesn't check.
	misfits := append(member.MisfitsAmong(all.Leases, r.kinds), tooOld(all)...)
	r.calm = r.calm && len(odd)+len(misfits) == 0
	for _, m := range misfits {
		r.warner.warnAbout(ctx, about(m), misfitReplica, m.Why, "", now)
	}
}
