package shard

import (
	"context"
	"fmt"
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
	// Member is whether the incarnation's lease was valid when this was taken.
	Member      bool
	Coordinator bool
	Leaving     bool
	// MemoryNeeded is what the process needs of its memory limit (GOMEMLIMIT), 1 for all of it; 0 if there is no limit.
	// From 0.8 on it fills the caches of one shard at a time.
	MemoryNeeded float64
	// Shards that the replica holds or warms, sorted.
	Shards []ShardStatus
	// Unserved are the shards that nobody serves by the records, with when this replica noticed; Moving those that
	// are to go to another holder and haven't yet. Both are looked at about twice per lease.
	Unserved, Moving map[keyspace.ShardID]time.Time
	// Stuck are the shards that the replica holds and can't serve, since its caches of them aren't filled or their cluster
	// can't be used from here, with since when.
	Stuck map[keyspace.ShardID]time.Time
	// Odd are the records that something is wrong with.
	Odd []inspect.Odd
	// Lost counts the records that were seen to be deleted since the process began.
	Lost int
	// Aliases are the clusters that are served under another name, by the names that they aren't served under.
	Aliases map[keyspace.ClusterName]keyspace.ClusterName
	// Clusters that the provider knows, and the last that it knew, with what they sent.
	Clusters map[keyspace.ClusterName]ClusterStatus
}

// ShardStatus is one shard at one replica.
type ShardStatus struct {
	ID      keyspace.ShardID
	Epoch   protocol.Epoch
	Phase   string // warming, warm, active, draining, drained
	Objects int64
	Load    float64 // reconcile seconds per second
}

// ClusterStatus is what one workload cluster sent this replica.
type ClusterStatus struct {
	ListWatchBytes  uint64
	Kept, Discarded uint64
	// FencedWrites were refused before they were sent, because their shard wasn't held any more.
	FencedWrites uint64
	// UnansweredWrites were sent, and nobody knows whether they were carried out.
	UnansweredWrites uint64
	// Abandoned are the reconciles that run on although their context has ended long ago; their writes are refused.
	Abandoned int64
	// Writes were sent and not answered yet, WaitingWrites wait for their turn by the limits.
	Writes, WaitingWrites int
	Limits                kubeconfig.Limits
	// State is how the cluster stands by its answers to this replica's requests of the last seconds: closed, limited, open
	// or half-open. One that is Unusable is open. Cause is why it isn't closed: silent, unavailable, throttling,
	// unauthorized, failing, forbidding or late.
	State, Cause string
	// Unusable is why the cluster can't be used from this replica, and UnusableSince since when; "" where it can, or where
	// nobody looked because the replica has nothing to do there.
	Unusable      string
	UnusableSince time.Time
	// Engaged is whether the cluster is one of the fleet's: the provider knows it, or did until just now.
	Engaged bool
	// UID of the cluster, that of its namespace kube-system; "" while it isn't known.
	UID types.UID
	// Refused says why the connection that the provider gave last isn't used; "" if it is, or may yet be.
	Refused string
	// CredentialsExpire is when those in use do, as far as they say; zero where they don't.
	CredentialsExpire time.Time
	// WatchMode is "server" while the API server filters watches, "client" once objects that weren't asked for have
	// arrived: until the process ends, as nothing shows that a server has learned it since.
	WatchMode string
}

// report is what the loop makes readable from elsewhere.
type report struct {
	replica   string
	kinds     string // that this program shards
	status    *atomic.Pointer[Status]
	stale     bool // something was done since it was last published
	published time.Time
	took      time.Duration // to publish it
	// What the last survey found; the maps are never changed, only replaced.
	unserved, moving, stuck map[keyspace.ShardID]time.Time
	odd                     []inspect.Odd
	lost                    int
	there                   map[string]types.UID // the records of the last survey
	teller                  *teller              // nil until the first incarnation begins
}

// publishShare is how much of the loop's time may go into publishing: with thousands of shards it takes milliseconds.
const publishShare = 20

// publish makes the present state readable, when something was done, and now and then for what is counted. The
// traffic can be read at any time.
func (r *report) publish(d *driver.Driver, l *lease, g *engager) {
	began := time.Now()
	if r.wait(began) > 0 {
		return
	}
	st := &Status{
		Replica: r.replica, Incarnation: d.ID(), Member: l.valid(), Coordinator: d.Leads(), Leaving: d.Leaving(),
		Unserved: r.unserved, Moving: r.moving, Odd: r.odd, Lost: r.lost, Aliases: d.Aliases(),
	}
	before, now := r.stuck, time.Now()
	r.stuck = map[keyspace.ShardID]time.Time{}
	for _, h := range d.Holdings() {
		st.Shards = append(st.Shards, g.status(h))
		if h.Held && !g.serves(h) {
			r.stuck[h.ID] = since(before, h.ID, now)
		}
	}
	st.Stuck = r.stuck
	r.status.Store(st)
	r.stale, r.published = false, time.Now()
	r.took = r.published.Sub(began)
}

// wait is for how long what is published may stay as it is.
func (r *report) wait(now time.Time) time.Duration {
	least := time.Second
	if r.stale {
		least = publishShare * r.took
	}
	return least - now.Sub(r.published)
}

// survey looks over all records: for shards that nobody serves, for moves that haven't come about, for what is odd. It
// is for people and alerts: the protocol doesn't depend on it. The caches must be filled, or this waits for them.
func (r *report) survey(ctx context.Context, records client.Reader, cfg Config, d *driver.Driver) {
	// They are only read, so there is no need to copy them.
	all, err := inspect.Read(ctx, records, cfg.Namespace, cfg.Fleet, client.UnsafeDisableDeepCopy)
	if err != nil {
		return // what the last survey found stays
	}
	now := time.Now()
	counting, odd := all.Sort()
	r.unserved, r.moving = look(counting, alive(all.Leases), r.unserved, r.moving, now)
	r.odd = odd
	gone, there := lost(r.there, all)
	r.lost, r.there = r.lost+len(gone), there
	if r.teller == nil || !d.Leads() {
		return
	}
	for name, served := range d.Aliases() {
		odd = append(odd, inspect.Odd{
			Record: keyspace.LayoutName(cfg.Fleet, served), Reason: "ClusterHasTwoNames",
			Note: fmt.Sprintf("cluster %s is cluster %s under another name, and is served under that: remove the Secret %s",
				name, served, name),
		})
	}
	r.teller.tellAll(ctx, slices.Concat(odd, gone), now)
	// These joined all the same: at the same moment, or since they don't look.
	for _, m := range append(member.MisfitsAmong(all.Leases, r.kinds), tooOld(all)...) {
		r.teller.tellOf(ctx, about(m), misfitReplica, m.Why, now)
	}
}
