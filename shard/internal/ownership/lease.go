package ownership

import (
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/plan"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// ownLease is this incarnation's own membership.
type ownLease struct {
	member  bool    // a write of the lease is known to have committed, so start counts
	askedAt Instant // when the lease's creation was first sent; zero before that
	version Version // newest version known
	renewal uint64  // number of the last renewal known to have committed
	start   Instant // when the last renewal known to have committed was sent
	last    []sent  // the last such renewals, oldest first
	firstAt Instant // when the renewal in flight was first sent
	tries   int     // attempts since a renewal was last committed
	seq     uint64  // the last write of the lease
	renewAt Instant // when the next renewal is due
	w       *write
	leaving bool          // the lease says that this replica leaves
	unfit   plan.UnfitFor // the clusters that, by the lease, this replica can't serve
}

// sent is a renewal that is known to have committed.
type sent struct {
	version Version
	at      Instant
}

// mostSent is how many renewals are kept in mind: those of two lease durations. A watch may show them that late.
const mostSent = 8

// Asked reports whether the incarnation has sent the creation of its lease. The lease may then exist even if no answer
// said so.
func (r *Replica) Asked() bool { return !r.own.askedAt.IsZero() }

// Valid reports whether the incarnation may act at that instant (rule R1). The driver asks again at every gate with a
// fresh reading of the clocks, since a process can be paused between two instructions.
func (r *Replica) Valid(now Instant) bool {
	return !r.over && r.own.member && now.AtMost(r.own.start) < r.cfg.LeaseDuration-r.cfg.Margin
}

// ValidUntil returns the instant at which the incarnation lapses unless a renewal commits first.
func (r *Replica) ValidUntil() Instant { return r.own.start.Add(r.cfg.LeaseDuration - r.cfg.Margin) }

// late reports whether the lease's creation took too long. If it was committed and the answer lost, a peer may have
// sealed and removed the lease by now. Creating it again would revive a name that others know to be dead.
func (o *ownLease) late(now Instant, cfg Config) bool {
	return !o.member && !o.askedAt.IsZero() && now.AtMost(o.askedAt) >= cfg.LeaseDuration-cfg.Margin
}

// renew sends the renewal that is due. Its validity counts from before it was sent.
func (r *Replica) renew() {
	if r.own.member && r.watchStale() {
		return
	}
	if r.own.w != nil {
		if r.own.w.waits() && r.now.AtLeast(r.own.w.retryAt) >= 0 {
			// Base and content stay the same. If the lost attempt was committed, this one is rejected, and ownSeen finds the
			// renewal in the record.
			r.own.w.retryAt = Instant{}
			r.emit(r.own.w.effect)
		}
		return
	}
	if r.own.member && r.own.unfit != r.fit.statement && r.own.tries == 0 { // tell peers soon
		r.own.renewAt = earliest(r.own.renewAt, r.own.firstAt.Add(r.cfg.RetryEvery))
	}
	if r.now.AtMost(r.own.renewAt) < 0 {
		return // AtMost, as for validity: a machine that slept renews at once
	}
	r.own.firstAt = r.now
	if !r.Asked() {
		r.own.askedAt = r.now
		r.caughtUp = [watches]Instant{r.now, r.now} // it can't get a shard before this
	}
	r.own.w = r.send(r.own.version, nil, func(seq uint64) Effect {
		r.own.seq = seq
		return WriteLease{Seq: seq, Base: r.own.version, Lease: Lease{
			ID: r.cfg.ID, Replica: r.cfg.Replica, Duration: r.cfg.LeaseDuration,
			Weight: r.cfg.Weight, Build: r.cfg.Build, Protocol: protocol.Version, Kinds: r.cfg.Kinds,
			Container: r.cfg.Container, Unfit: r.fit.statement, Fresh: !r.watched, Leaving: r.leaving, Renewal: seq,
		}}
	})
}

// ownWritten handles the answer to a creation or renewal.
func (r *Replica) ownWritten(in Written) {
	if in.Outcome == Rejected {
		// A peer sealed the lease (then we will see that and lapse), or a user wrote it. Go on from the newer version.
		// If the driver couldn't read it yet, try again a little later.
		base := r.own.w.base
		r.own.w = nil
		r.own.renewAt = r.now
		if r.own.version <= base {
			r.own.renewAt = r.now.Add(r.renewBackoff(in))
		}
		return
	}
	r.renewed(in.Version)
}

// unrenewed returns why the lease wasn't renewed in time.
func (r *Replica) unrenewed() string {
	paused := r.now.AtMost(r.listAskedAt) >= r.cfg.WatchTimeout/4
	if r.own.w == nil && r.watchStale() && !paused {
		return "lease not renewed, since the records couldn't be read in time"
	}
	return "lease not renewed in time"
}

// renewed records that the renewal in flight was committed. Which of its attempts was committed can't be known, so
// validity counts from the first.
func (r *Replica) renewed(v Version) {
	lease := r.own.w.effect.(WriteLease).Lease
	first, told := !r.own.member, r.own.leaving
	r.own.w = nil
	r.own.member = true
	r.own.version = max(r.own.version, v)
	r.own.start, r.own.tries = r.own.firstAt, 0
	if len(r.own.last) == mostSent {
		r.own.last = slices.Delete(r.own.last, 0, 1)
	}
	r.own.last = append(r.own.last, sent{v, r.own.start})
	r.own.renewal = lease.Renewal
	r.own.renewAt = r.own.start.Add(r.cfg.RenewEvery)
	r.own.leaving, r.own.unfit = lease.Leaving, lease.Unfit
	if r.leaving && !lease.Leaving {
		r.own.renewAt = r.now
	}
	if first {
		r.touchAll()
	}
	if r.own.leaving && !told {
		// by then, replicas that were told to leave at the same time have said so, too
		r.replan, r.planAfter = true, r.now.Add(r.cfg.PlanEvery)
	}
}

// ownSeen handles a version of this incarnation's lease that was read or watched.
func (r *Replica) ownSeen(l Lease) {
	if l.Sealed {
		r.lapse("lease sealed by a peer")
		return
	}
	if l.Version <= r.own.version {
		return
	}
	if l.Renewal != 0 && l.Renewal < r.own.renewal {
		r.goneBack("our lease shows renewal %d, but renewal %d was committed", l.Renewal, r.own.renewal)
		return
	}
	r.own.version = l.Version
	w := r.own.w
	switch {
	case !w.settled(l.Version):
	case l.Renewal == w.seq:
		// The record shows our renewal, whatever becomes of its answer. So a home cluster that answers too late doesn't
		// prevent renewals.
		r.forget(w)
		r.renewed(l.Version)
	case w.waits(): // a user wrote first, so the renewal will never be committed (a pending answer is waited for)
		r.forget(w)
		r.own.w = nil
		r.own.renewAt = r.now
	}
}

func (o *ownLease) wake(cfg Config, watchStale bool) time.Duration {
	at := o.renewAt.Mono
	switch {
	case o.member && watchStale:
		at = o.start.Mono + cfg.LeaseDuration // the next input wakes us
	case o.w != nil:
		at = o.firstAt.Mono + 2*cfg.LeaseDuration // the answer wakes us
		if o.w.waits() {
			at = o.w.retryAt.Mono
		}
	}
	switch {
	case o.member:
		at = min(at, o.start.Mono+cfg.LeaseDuration-cfg.Margin)
	case !o.askedAt.IsZero():
		at = min(at, o.askedAt.Mono+cfg.LeaseDuration-cfg.Margin)
	}
	return at
}
