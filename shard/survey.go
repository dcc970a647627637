package shard

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/member"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// surveyor looks through all records for shards without a live holder, unfinished moves and odd records. It is for
// people and alerts; the protocol doesn't depend on it.
type surveyor struct {
	kinds  string // that this program shards
	warner *warner
	// What the last survey found; the maps are never changed, only replaced.
	orphans, moving map[keyspace.ShardID]time.Time
	odd             []inspect.Odd
	lost            int
	there           map[string]types.UID // the records of the last survey
	peers           map[protocol.Incarnation]peer
	aliases         map[keyspace.ClusterName]keyspace.ClusterName
	led, calm       bool        // it ran in the coordinator; it found nothing
	changed         atomic.Bool // a record or the clusters changed since the last survey began
}

// touch says that a record or the clusters have changed. It is safe for concurrent use.
func (s *surveyor) touch() { s.changed.Store(true) }

// survey looks through all records. The caches must be filled, otherwise it waits for them. There may be tens of
// thousands of records. So where the last survey found nothing, and nothing that it goes by has changed, it isn't made
// again.
//
// sharded reports whether a cluster is known and has kinds to divide into shards.
func (s *surveyor) survey(ctx context.Context, records client.Reader, cfg Config, d *driver.Driver,
	sharded func(keyspace.ClusterName) bool) {
	changed := s.changed.Swap(false) // first: a change that comes while it reads counts for the next one
	// They are only read, so there is no need to copy them.
	leases, err := member.List(ctx, records, cfg.Namespace, cfg.Fleet, client.UnsafeDisableDeepCopy)
	if err != nil {
		s.calm = false // so the next survey is made
		return         // what the last survey found stays
	}
	peers, aliases := peersOf(leases), d.Aliases()
	if !changed && s.calm && s.led == d.Leads() && maps.Equal(peers, s.peers) && maps.Equal(aliases, s.aliases) {
		return
	}
	s.calm = false
	all, err := inspect.Read(ctx, records, cfg.Namespace, cfg.Fleet, client.UnsafeDisableDeepCopy)
	if err != nil {
		return
	}
	now := time.Now()
	counting, odd, missing := all.Sort()
	orphans, moving := orphansAndMoving(all.Fleet, counting, peers, s.orphans, s.moving, now)
	for _, id := range missing {
		orphans[id] = since(s.orphans, id, now)
	}
	// Records stay for their epochs when a cluster is removed, isn't sharded any more or is served under another name.
	// They don't need a holder then.
	maps.DeleteFunc(orphans, func(id keyspace.ShardID, _ time.Time) bool {
		return aliases[id.Cluster] != "" || !sharded(id.Cluster)
	})
	s.orphans, s.moving = orphans, moving
	s.odd = odd
	gone, there := lost(s.there, all)
	s.lost, s.there = s.lost+len(gone), there
	s.peers, s.aliases, s.led = peers, aliases, d.Leads()
	s.calm = len(orphans)+len(moving)+len(odd)+len(gone) == 0
	if !s.led {
		return
	}
	for name, served := range aliases {
		odd = append(odd, inspect.Odd{
			Record: keyspace.LayoutName(cfg.Fleet, served), Reason: "ClusterHasTwoNames",
			Note: fmt.Sprintf("cluster %s is cluster %s under another name, and is served under that: find out which Secret is "+
				"right, and remove the other", name, served),
			Cause: string(name),
		})
	}
	s.warner.warnAll(ctx, slices.Concat(odd, gone), now)
	// These members joined although they don't fit: at the same moment, or because their version doesn't check.
	misfits := append(member.MisfitsAmong(all.Leases, s.kinds), tooOld(all, peers)...)
	s.calm = s.calm && len(odd)+len(misfits) == 0
	for _, m := range misfits {
		s.warner.warnAbout(ctx, about(m), misfitReplica, m.Why, "", now)
	}
}

// peer is what a survey goes by in a Lease.
type peer struct {
	alive    bool // the Lease can be read and isn't sealed
	kinds    string
	protocol int
}

func peersOf(leases []coordinationv1.Lease) map[protocol.Incarnation]peer {
	all := make(map[protocol.Incarnation]peer, len(leases))
	for i := range leases {
		if seen, err := member.Seen(&leases[i]); err == nil {
			// A live owner's next renewal makes a Lease readable again.
			if l, ok := seen.(ownership.LeaseSeen); ok {
				all[l.Lease.ID] = peer{!l.Lease.Sealed && !l.Lease.Unreadable, l.Lease.Kinds, l.Lease.Protocol}
			}
		}
	}
	return all
}

// lost returns the records of the last survey that aren't there any more, and the records that are.
func lost(before map[string]types.UID, records inspect.Records) (odd []inspect.Odd, now map[string]types.UID) {
	now = make(map[string]types.UID, len(before))
	for _, all := range [][]tenurev1alpha1.Shard{records.Layouts, records.Shards} {
		for i := range all {
			now[all[i].Name] = all[i].UID
		}
	}
	for name, uid := range before {
		if now[name] != uid {
			odd = append(odd, inspect.Odd{
				Record: name, UID: uid, Reason: "RecordDeleted",
				Note: fmt.Sprintf("record %s was deleted; replicas never do that. It is made anew when its holder must have seen "+
					"that", name),
			})
		}
	}
	return odd, now
}

// tooOld returns the Leases of replicas whose version can't serve some cluster, because its layout isn't its first.
func tooOld(records inspect.Records, peers map[protocol.Incarnation]peer) (misfits []member.Misfit) {
	var clusters []string
	for i := range records.Layouts {
		if l := &records.Layouts[i]; l.Spec.Layout.Generation > 1 {
			clusters = append(clusters, l.Spec.Cluster)
		}
	}
	if len(clusters) == 0 {
		return nil
	}
	for i := range records.Leases {
		lease := &records.Leases[i]
		if p := peers[protocol.Incarnation(lease.Name)]; !p.alive || p.protocol >= protocol.Version {
			continue
		}
		misfits = append(misfits, member.Misfit{Lease: lease.Name, UID: lease.UID, Why: fmt.Sprintf(
			"lease %s: replica %s is of a version that can't serve %d cluster(s) whose layout isn't their first, such as %s: "+
				"don't roll back any further", lease.Name, lease.Labels[tenurev1alpha1.ReplicaLabel], len(clusters), clusters[0])})
	}
	return misfits
}

// orphansAndMoving returns the shards without a live holder, and those with an unfinished move, each with the time
// since when.
// It leaves the maps of the last survey as they are, since readers may hold them.
func orphansAndMoving(fleet keyspace.Fleet, shards []*tenurev1alpha1.Shard, peers map[protocol.Incarnation]peer,
	orphansBefore, movingBefore map[keyspace.ShardID]time.Time,
	now time.Time) (orphans, moving map[keyspace.ShardID]time.Time) {
	orphans, moving = map[keyspace.ShardID]time.Time{}, map[keyspace.ShardID]time.Time{}
	for _, s := range shards {
		holder := s.Status.Holder
		orphan := holder == "" || !peers[protocol.Incarnation(holder)].alive
		if !orphan && (s.Spec.Assignee == "" || s.Spec.Assignee == holder) {
			continue // as almost all are: it needn't be parsed
		}
		said, err := inspect.ReadShard(fleet, s)
		switch {
		case err != nil:
		case orphan:
			orphans[said.ID] = since(orphansBefore, said.ID, now)
		default:
			moving[said.ID] = since(movingBefore, said.ID, now)
		}
	}
	return orphans, moving
}

func since(before map[keyspace.ShardID]time.Time, id keyspace.ShardID, now time.Time) time.Time {
	if t, ok := before[id]; ok {
		return t
	}
	return now
}
