package shard

import (
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
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
	// Shards that the replica holds or warms, sorted.
	Shards []ShardStatus
	// Unserved are the shards that nobody serves by the records, with when this replica noticed; Moving those that are
	// to go to another holder and haven't yet. Both are looked at about twice per lease.
	Unserved, Moving map[keyspace.ShardID]time.Time
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
	// Engaged is whether the provider still knows the cluster.
	Engaged bool
	// WatchMode is "server" while the API server filters watches, "client" where objects that weren't asked for arrived.
	WatchMode string
}

// loadSample is the last measurement of a shard.
type loadSample struct {
	objects int64
	busy    int64
	load    float64
}

// measure samples size and load of the active shards, about twice per lease.
func (s *session) measure() {
	since := time.Since(s.measured)
	if since < s.node.cfg.LeaseDuration/2 {
		return
	}
	first := s.measured.IsZero()
	s.measured = time.Now()
	s.survey(s.measured)
	for id, e := range s.shards {
		v := e.cluster()
		if v == nil || !e.gate.IsOpen() {
			continue
		}
		sample := s.load[id]
		busy := e.busy.Load()
		if !first && busy >= sample.busy {
			now := float64(busy-sample.busy) / float64(since)
			sample.load = (sample.load + now) / 2 // a half-life of one measurement smooths bursts
		}
		sample.busy, sample.objects = busy, v.Objects(s.ctx)
		s.load[id] = sample
		s.step(ownership.Measured{ID: id, Objects: sample.objects, Load: sample.load})
	}
}

// announce tells log and observer of a new tenure that was ready at the given time.
func (s *session) announce(e *engagement, epoch protocol.Epoch, ready time.Time) {
	a := Activation{Shard: e.id, Epoch: epoch, Incarnation: s.id, Objects: e.cluster().Objects(s.ctx)}
	rec := s.recordOf(e.id)
	if rec != nil {
		a.Record = rec.UID
	}
	if s.announced[e.id] == epoch { // it had begun to drain, and kept the shard after all: no move was made
		a.Kind = protocol.Resumed
		if ended := e.gate.Ended(); !ended.IsZero() {
			a.Gap = ready.Sub(ended)
		}
	} else if claim, ok := s.claims[e.id]; ok && claim.Shard.Epoch == epoch { // the watch may not have brought it yet
		a.Kind, a.From = claim.Kind.Move(), claim.From
	} else if rec != nil && rec.Status.LastMove != nil && protocol.Incarnation(rec.Status.LastMove.To) == s.id {
		move := rec.Status.LastMove
		a.Kind, a.From = protocol.MoveKind(move.Kind), protocol.Incarnation(move.From)
		a.Gap = ready.Sub(move.Time.Time)
	}
	s.announced[e.id] = epoch
	delete(s.claims, e.id)
	log := s.log
	if a.Gap > 0 {
		log = log.WithValues("gapMs", float64(a.Gap.Microseconds())/1000)
	}
	log.Info("shard active", "shard", e.id.String(), "epoch", int64(epoch), "kind", a.Kind, "from", string(a.From), "objects", a.Objects)
	s.node.cfg.Observer.Activated(a)
}

// publish makes the present state readable from elsewhere, but for the traffic, which can be read at any time.
func (s *session) publish() {
	st := &Status{
		Replica: s.node.cfg.Replica, Incarnation: s.id, Member: s.valid() && !s.done, Coordinator: s.machine.Leads(), Leaving: !s.leftAt.IsZero(),
		Unserved: s.unserved, Moving: s.moving,
	}
	if !s.done {
		for _, h := range s.machine.Holdings() {
			sample := s.load[h.ID]
			st.Shards = append(st.Shards, ShardStatus{ID: h.ID, Epoch: h.Epoch, Phase: h.Phase, Objects: sample.objects, Load: sample.load})
		}
	}
	s.node.status.Store(st)
	s.news, s.published = false, time.Now()
}
