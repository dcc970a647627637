package ownership

import (
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/shard/plan"
)

// peer is what this replica has observed of another incarnation. A missing lease that a record names counts as standing
// still: it runs out like any other, and is sealed by creating it sealed.
type peer struct {
	id      Incarnation
	lease   Lease   // newest version seen; Version 0 while missing
	changed Instant // when a new version of it was last seen, on this replica's clock
	seal    *write
	sealAt  Instant // when it is this replica's turn to seal the lease; set once that has run out
	late    bool    // a renewal is overdue, while leases of others were seen
	expired bool    // it stood still for its whole duration, as far as this replica saw, or is proven to have ended
	endedAt Instant // when its container was first seen to have ended; zero if it wasn't

	absent  bool    // a read didn't find its lease, or the lease was deleted
	seekAt  Instant // when to read its lease next, while it was never seen
	unknown bool    // a whole duration has passed without a read that shows whether it has a lease

	forgetAt Instant // when to request the removal of its sealed lease
	forgets  int     // how often that was requested
}

// peer returns the state of an incarnation. An unknown one is added, as if its lease had changed now.
func (r *Replica) peer(id Incarnation) *peer {
	p := r.peers[id]
	if p == nil {
		p = &peer{id: id, changed: r.now}
		r.peers[id] = p
		at, _ := slices.BinarySearchFunc(r.peerOrder, id, comparePeer)
		r.peerOrder = slices.Insert(r.peerOrder, at, p)
	}
	return p
}

// named returns the state of an incarnation that a record names, and adds it if it is unknown; nil for none and for
// this replica. The state stays the same as long as a record names it.
func (r *Replica) named(id Incarnation) *peer {
	if id == "" || id == r.cfg.ID {
		return nil
	}
	return r.peer(id)
}

func (r *Replica) leaseSeen(l Lease) {
	r.noteLeaseEvent()
	if l.ID == r.cfg.ID {
		r.ownSeen(l)
		return
	}
	p := r.peer(l.ID)
	if l.Version <= p.lease.Version {
		return
	}
	if p.lease.Sealed {
		p.absent = false // a seal is final, so the rest of it doesn't matter
		return
	}
	if l.Sealed {
		p.forgetAt = r.now.Add(r.cfg.LeaseDuration)
	}
	was := p.lease
	if l.Unreadable && was.Version != 0 { // somebody else wrote it: what its owner said counts
		version := l.Version
		l = was
		l.Version = version
	}
	news := p.expired || was.Version == 0 || l.Sealed || was.Unreadable != l.Unreadable ||
		was.Leaving != l.Leaving || was.Fresh != l.Fresh || was.Weight != l.Weight
	p.lease = l
	if was.Unfit != l.Unfit {
		r.namesStale = true
		r.statementChanged(was.Unfit, l.Unfit, true)
	}
	p.changed = r.since(l)
	p.expired, p.absent, p.unknown = false, false, false
	r.prove(p)
	r.settle(&p.seal, l.Version)
	if news {
		r.touchAll()
	}
}

func (r *Replica) leaseGone(id Incarnation) {
	if id == r.cfg.ID {
		if r.own.member {
			r.lapseAfresh("lease deleted") // the home cluster may have been set up again from nothing
		}
		return
	}
	p := r.peers[id]
	if p == nil {
		return
	}
	if r.forgetPeer(p) || p.lease.Sealed {
		p.absent = true
		r.touchAll()
		return // a clean exit, or a cleanup
	}
	if p.absent {
		return // known, and its time runs
	}
	p.lease = Lease{Duration: p.lease.Duration} // it may still act for that long
	p.changed = r.since(Lease{ID: id})
	p.expired, p.absent, p.unknown = false, true, false
	r.drop(&p.seal)
	r.touchAll()
}

// forgetPeer drops the state of an incarnation without lease, unless a record still names it.
func (r *Replica) forgetPeer(p *peer) bool {
	if r.isNamed(p.id) {
		return false
	}
	r.forget(p.seal)
	delete(r.peers, p.id)
	at, _ := slices.BinarySearchFunc(r.peerOrder, p.id, comparePeer)
	r.peerOrder = slices.Delete(r.peerOrder, at, at+1)
	return true
}

// isNamed reports whether a record names the incarnation as holder, or may do so through a write under way. Assignee
// and warm entries don't count: they grant nothing and need no cleanup.
func (r *Replica) isNamed(id Incarnation) bool {
	return r.lead.rec.Holder == id || slices.ContainsFunc(r.order, func(t *shardState) bool {
		return t.known && (t.rec.Holder == id || t.w.names(id))
	})
}

// peersSynced starts the wait for each incarnation that a record names and whose lease isn't in the first listing.
func (r *Replica) peersSynced() {
	for _, p := range r.peers {
		if p.lease.Version == 0 {
			p.changed = r.now
		}
	}
}

// duration returns how long a peer's lease may stand still: what it says, and at least this replica's own duration.
func (p *peer) duration(cfg Config) time.Duration {
	return max(p.lease.Duration, cfg.LeaseDuration)
}

// watchPeers seals each peer that stood still for too long or is proven to have ended (rule R3). Every live replica
// does this. The coordinator goes first and the others follow in turn a little later, so there is usually one write and
// no election.
func (r *Replica) watchPeers() {
	if !r.synced {
		return
	}
	for i := 0; i < len(r.peerOrder); i++ {
		p := r.peerOrder[i]
		r.judgeLate(p)
		if p.lease.Sealed {
			if r.forgetSealed(p) {
				i--
			}
			continue
		}
		r.seek(p)
		if r.now.Mono < p.due(r.cfg) || p.unreadable() {
			continue
		}
		if p.lease.Version == 0 {
			if r.forgetPeer(p) {
				i--
				r.replan = true
				continue
			}
			if !p.absent {
				if !p.unknown { // it still gets no shards, but moves don't wait for it any longer
					p.unknown, r.replan = true, true
				}
				continue
			}
		}
		if !p.expired {
			p.expired = true
			p.sealAt = r.now.Add(r.turn())
			r.touchAll()
		}
		if p.seal == nil && r.now.AtLeast(p.sealAt) >= 0 {
			p.seal = r.send(p.lease.Version, nil, func(seq uint64) Effect {
				return SealLease{Seq: seq, Base: p.lease.Version, ID: p.id, Ended: p.ended()}
			})
		}
	}
}

// seek reads a lease that a record names and that was never seen. The watch may just be late, so the lease's time
// doesn't run until a read has shown that it is missing.
func (r *Replica) seek(p *peer) {
	if p.lease.Version == 0 && !p.absent && r.now.AtLeast(p.seekAt) >= 0 && r.isNamed(p.id) {
		p.seekAt = r.now.Add(r.cfg.LeaseDuration / 20)
		r.emit(FindLease{ID: p.id})
	}
}

// forgetSealed removes, as coordinator, a sealed lease that no record names. It waits for a lease duration. Until
// then a holder that hasn't seen the seal may repeat a handoff to that incarnation. A replica that then sees the
// name must find the seal beside it. If the lease is still there afterwards, its removal is requested again later.
// What a replica knows of a sealed incarnation whose lease has gone is dropped once no record names it; gone is true
// then.
func (r *Replica) forgetSealed(p *peer) (gone bool) {
	switch {
	case r.now.AtLeast(p.forgetAt) < 0:
		return false
	case p.absent:
		p.forgetAt = r.now.Add(r.cfg.LeaseDuration)
		return r.forgetPeer(p)
	case !r.Leads():
		return false
	}
	p.forgetAt = r.now.Add(r.cfg.LeaseDuration / 20) // looking for it among all records takes long
	if !r.isNamed(p.id) {
		p.forgetAt = r.now.Add(doubled(r.cfg.LeaseDuration, p.forgets))
		p.forgets++
		r.emit(ForgetLease{ID: p.id})
	}
	return false
}

// longestTurn is enough for a seal to be written and seen before the next replica's turn.
const longestTurn = 50 * time.Millisecond

// lastTurn is the place of all replicas from the ninth on. Those that leave come after it, one after the other, since
// the whole fleet may leave.
const lastTurn = 8

// turn returns how long this replica waits for others to seal first.
func (r *Replica) turn() time.Duration {
	if r.lead.rec.Holder == r.cfg.ID {
		return 0
	}
	place := slices.Index(r.candidates(), r.cfg.ID)
	if place < 0 {
		others, _ := slices.BinarySearchFunc(r.peerOrder, r.cfg.ID, comparePeer)
		place = lastTurn + 1 + min(others, lastTurn)
	} else {
		place = min(place, lastTurn)
	}
	return time.Duration(1+place) * min(r.cfg.LeaseDuration/200, longestTurn)
}

// sealWritten handles a seal of this replica's that was committed.
func (r *Replica) sealWritten(p *peer, v Version) {
	p.seal = nil
	p.lease.ID = p.id
	p.lease.Sealed = true
	p.lease.Version = v
	p.forgetAt, p.absent = r.now.Add(r.cfg.LeaseDuration), false
	r.touchAll()
}

// unreadable reports whether this replica can't know how long the incarnation may act without being seen, because its
// lease is unreadable.
func (p *peer) unreadable() bool { return p.lease.Unreadable && !p.ended() }

// unsealable reports whether the API server refused the last attempt to seal the incarnation. Somebody may have
// written a name into a record that no Lease can have, or this replica isn't allowed to seal. After a conflict the
// Lease is read, which settles the seal, unless it is another program's. Only people can help then.
func (p *peer) unsealable() bool {
	return p.seal != nil && (p.seal.cause == Refused || p.seal.cause == Conflict)
}

// dead reports whether the incarnation can never act again: its lease is sealed.
func (p *peer) dead() bool { return p.lease.Sealed }

// takes reports whether an incarnation can be given shards: it is alive, as far as this replica sees, and isn't
// leaving.
func (r *Replica) takes(id Incarnation) bool {
	if id == r.cfg.ID {
		return !r.leaving
	}
	p := r.peers[id]
	return p != nil && p.lease.Version != 0 && !p.lease.Sealed && !p.lease.Unreadable && !p.expired &&
		!p.ended() && !p.lease.Leaving
}

// candidates lists, sorted, the incarnations that can be given shards.
func (r *Replica) candidates() []Incarnation {
	var ids []Incarnation
	if r.takes(r.cfg.ID) {
		ids = append(ids, r.cfg.ID)
	}
	for _, p := range r.peerOrder {
		if r.takes(p.id) {
			ids = append(ids, p.id)
		}
	}
	slices.Sort(ids)
	return ids
}

// replicas describes the live incarnations to the planner. A suspect, which stopped renewing but isn't sealed yet,
// still holds its shards: like a leaving one it gets nothing new. gone selects the peers to leave out. suspects
// reports whether there are suspects, apart from incarnations whose lease no read has shown for a whole duration, and
// from those that can't be sealed. The slice is valid until the next call.
func (r *Replica) replicas(gone func(*peer) bool) (all []plan.Replica, suspects bool) {
	all = append(slices.Grow(r.planBuffer.replicas[:0], 1+len(r.peerOrder)), plan.Replica{
		ID: r.cfg.ID, Name: r.cfg.Replica, Weight: r.cfg.Weight, Leaving: r.leaving,
		Unfit: r.fit.statement,
	})
	for _, p := range r.peerOrder {
		l := p.lease
		if gone(p) {
			continue
		}
		suspect := p.expired || p.ended() || l.Version == 0
		suspects = suspects || suspect && (p.expired || !p.unknown) && !p.unsealable()
		all = append(all, plan.Replica{
			ID: p.id, Name: l.Replica, Weight: l.Weight, Leaving: l.Leaving || l.Unreadable || suspect,
			Unfit: l.Unfit,
		})
	}
	r.planBuffer.replicas = all
	return all, suspects
}

func comparePeer(p *peer, id Incarnation) int { return strings.Compare(string(p.id), string(id)) }

func (p *peer) wake(r *Replica) time.Duration {
	switch {
	case p.lease.Sealed:
		if at := p.forgetAt.Mono; r.Leads() && at > r.now.Mono {
			return at
		}
		return r.now.Mono + time.Hour
	case p.seal != nil, p.unreadable():
		return r.now.Mono + time.Hour // an answer, its repeat or a Lease event comes first
	case p.expired:
		return p.sealAt.Mono
	}
	if p.lease.Version == 0 && !p.absent {
		return max(r.now.Mono+r.cfg.LeaseDuration/40, min(p.seekAt.Mono, p.changed.Mono+p.duration(r.cfg)))
	}
	if !p.late {
		if at := max(p.changed.Mono, r.hearingSince.Mono) + lateAfter(p.duration(r.cfg)); at > r.now.Mono {
			return min(at, p.due(r.cfg))
		}
	}
	return p.due(r.cfg)
}
