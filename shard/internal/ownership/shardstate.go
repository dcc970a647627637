package ownership

import (
	"cmp"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
)

// phase is the state of a shard at this replica.
type phase uint8

const (
	idle     phase = iota // no caches, no work
	warming               // caches are filling, gates are closed
	warm                  // caches are synced, gates are closed
	active                // gates are open
	draining              // running reconciles end, no new ones start
	drained               // nothing runs, the fence is closed, the record still names this replica
)

func (p phase) String() string {
	return [...]string{"idle", "warming", "warm", "active", "draining", "drained"}[p]
}

// handsOff reports whether the phase is part of a handoff: no work starts, and the record still names this replica.
func (p phase) handsOff() bool { return p == draining || p == drained }

// shardState is what this replica knows and does about one shard.
type shardState struct {
	id     keyspace.ShardID
	layout *layout // of its cluster
	known  bool    // the record exists, as far as this replica has seen
	rec    Shard   // newest version seen
	holder *peer   // the holder that rec names; nil for none and for this replica
	floor  Epoch   // highest epoch seen, deleted records included; at least Floor-1 of each record
	top    Epoch   // highest epoch seen, deleted records included; ignores Floor, which users can edit
	seenAt Instant // when rec was seen
	cameAt Instant // when the record was first seen; again after a deletion
	// found: the record existed before the first listing, so it may come from a snapshot that was restored. A new epoch
	// shows that it doesn't.
	found    bool
	seenIn   uint64 // the step in which rec was seen
	phase    phase
	dirty    bool
	timed    bool // it is in the list of shards that wait for a time
	unserved bool // it is counted in Replica.orphans
	filling  bool // it is counted as a planned move whose successor isn't warm
	// excluded: the cluster's newest layout doesn't list this shard.
	excluded bool
	barred   bool // it is in its layout's list of barred claims
	// standby: the holder is late, and this replica would get the shard if that holder were dead.
	standby bool

	// goesTo is where the plan that was made in step goesIn moves it.
	goesTo Incarnation
	goesIn uint64

	w *write // the write under way, at most one
	// freeAt: until then the record isn't made again or claimed: it was deleted, or may come from a lost history, and its
	// old holder may not know that. Zero for no wait.
	freeAt   Instant
	orphanAt Instant // when the shard was first seen without a living holder; zero while it has one
	moveAt   Instant // when the assignee last changed
	warmAt   Instant // when the successor of its planned move was first seen to be warm; zero while it isn't
	// calledOff is when this replica, while leaving, last called off a move to itself. A coordinator that doesn't know
	// yet that this replica leaves plans the same move again at once. So the replica waits a while before it calls the
	// move off again. Zero when that wait is over.
	calledOff Instant

	fillFrom  Instant       // when the latest warm-up began
	warmingAt Instant       // when it began, or last missed its deadline
	fillTime  time.Duration // how long a warm-up may take, if that is more than FillTimeout
	probing   bool          // a claim waits for a probe of the cluster
	claimedAs Epoch         // the epoch of this replica's latest claim, committed or not; 0 once it was opened

	objects    int64
	load       float64
	reportedAt Instant
}

// Holding is one shard that a replica holds or prepares to hold.
type Holding struct {
	ID    keyspace.ShardID
	Epoch Epoch
	Phase string
	Held  bool // its record names this replica; otherwise the shard is only prepared here
}

// Holdings lists the shards that this replica holds or prepares, sorted.
func (r *Replica) Holdings() []Holding {
	var hs []Holding
	for _, t := range r.order {
		if r.holds(t) || t.phase != idle {
			hs = append(hs, Holding{ID: t.id, Epoch: t.rec.Epoch, Phase: t.phase.String(), Held: r.holds(t)})
		}
	}
	return hs
}

// Record returns the newest version of a shard's record that was seen. ok is false if there is none.
func (r *Replica) Record(id keyspace.ShardID) (_ Shard, ok bool) {
	t := r.shards[id]
	if t == nil || !t.known {
		return Shard{}, false
	}
	return t.rec, true
}

// orphan reports whether no replica can be serving the shard: its record names no holder, or a dead incarnation.
func (t *shardState) orphan() bool { return t.rec.Holder == "" || (t.holder != nil && t.holder.dead()) }

func (r *Replica) holds(t *shardState) bool { return t.known && t.rec.Holder == r.cfg.ID }

// shardSeen records a version of a shard's record.
func (r *Replica) shardSeen(s Shard) {
	t := r.shard(s.ID)
	if s.Version < t.rec.Version {
		return
	}
	if s.Version == t.rec.Version && t.known {
		t.rec.UID = cmp.Or(t.rec.UID, s.UID) // the answer to a creation shows no UID
		return
	}
	// Two things can't happen in one history: a deleted record exists again with its UID, or an epoch falls. A record
	// that a user made again has another UID. Its epoch may be lower, unless it names this replica as holder.
	switch same := s.UID != "" && s.UID == t.rec.UID; {
	case same && !t.known:
		r.goneBack("the record of %s exists, but was deleted", s.ID)
		return
	case same && s.Epoch < t.rec.Epoch, s.Holder == r.cfg.ID && s.Epoch < t.top:
		r.goneBack("the record of %s is at epoch %d, but was at epoch %d", s.ID, s.Epoch, max(t.rec.Epoch, t.top))
		return
	}
	if !t.known || t.rec.Assignee != s.Assignee {
		t.moveAt = r.now
	}
	if !t.known {
		t.cameAt, t.reportedAt = r.now, r.now
	}
	cameNow, wasHeld := !t.known, t.heldByLiving()
	if t.known && t.replacedBy(s) {
		r.bury(t) // it was deleted and made again, and the watch showed only the new one
	}
	t.found = t.found && s.Epoch == t.rec.Epoch || r.foundLate(t, s)
	r.epochs.anyFound = r.epochs.anyFound || t.found
	t.known, t.probing = true, false
	t.rec, t.seenAt, t.seenIn = s, r.now, r.step
	t.top = max(t.top, s.Epoch)
	t.floor = max(t.floor, s.Epoch, s.Floor-1)
	r.noteEpoch(t.floor)
	r.noteExcluded(t)
	r.settle(&t.w, s.Version)
	t.holder = r.named(s.Holder)
	if cameNow || t.heldByLiving() != wasHeld {
		r.recordsChange(s.ID.Cluster)
	}
	r.recount(t)
	r.touch(t)
}

// shardGone records a deletion. The old holder stops when it sees the deletion, or when it lapses. A new record of that
// name is left alone until then.
func (r *Replica) shardGone(in ShardGone) {
	t := r.shards[in.ID]
	if t == nil || !t.known || in.Asked.AtLeast(t.seenAt) <= 0 {
		return // a record that was seen after this read was sent: the next read will show if it is gone
	}
	t.known = false
	r.recordsChange(t.id.Cluster)
	r.recount(t)
	t.rec.Version += 2 // anything older is from before the deletion
	r.bury(t)
	r.drop(&t.w)
	r.touch(t)
}

// bury starts the wait after a deletion, during which a new record of that name is left alone. It also notes which
// epochs a new record must exceed.
func (r *Replica) bury(t *shardState) {
	t.freeAt = r.now.Add(r.cfg.BuryTime)
	if l := t.layout; !l.lack.since.IsZero() {
		l.lack = lack{since: r.now} // no coordinator could have made the record until freeAt
	}
	if e, ok := effectOf[WriteShard](t.w); ok {
		t.floor, t.top = max(t.floor, e.Shard.Epoch), max(t.top, e.Shard.Epoch) // this write may have been committed
	}
}

// replacedBy reports whether s is a new record under the name of the one last seen.
func (t *shardState) replacedBy(s Shard) bool {
	return s.Epoch < t.rec.Epoch || s.Floor != t.rec.Floor || (s.UID != t.rec.UID && s.UID != "" && t.rec.UID != "")
}

// shardWritten handles a committed write of the record. No newer version was seen, or w would be settled already.
func (r *Replica) shardWritten(t *shardState, w *write, v Version) {
	t.w = nil
	next := t.rec
	switch e := w.effect.(type) {
	case WriteShard:
		next = e.Shard
	case WriteAssignee:
		next.Assignee = e.Assignee
	case CreateShard:
		next = Shard{ID: e.ID, Assignee: e.Assignee, Floor: e.Floor}
	}
	next.Version = v
	r.shardSeen(next)
	r.touch(t) // a write that changes nothing keeps the version, and shardSeen ignores it
}

// decide chooses one shard's next step from its newest record and what is under way.
func (r *Replica) decide(t *shardState) {
	wanted := r.ownNames[t.id.Cluster]
	switch {
	case !t.known:
		r.letGo(t)
	case r.holds(t):
		if t.w == nil {
			r.hold(t, wanted)
		}
	case t.phase >= active: // another replica holds it now
		r.letGo(t)
		r.touch(t)
	case r.leaving:
		r.letGo(t)
	case !wanted || t.excluded || t.rec.Retired:
		r.cool(t)
	default:
		r.pursue(t)
	}
}

// enter changes a shard's phase, and starts the clock of a warm-up. When a handoff ends, it lets the next begin.
func (r *Replica) enter(t *shardState, p phase) {
	before := t.phase
	t.phase = p
	if p == warming {
		t.fillFrom, t.warmingAt = r.now, r.now
	}
	switch {
	case before.handsOff() == p.handsOff():
	case p.handsOff():
		r.handing++
	default:
		r.handing--
		r.resumeHandoffs()
	}
}

// letGo closes the shard here: gates and caches.
func (r *Replica) letGo(t *shardState) {
	if t.phase != idle {
		r.enter(t, idle)
		r.emit(Close{ID: t.id})
	}
}

// cool drops the caches of a shard that this replica isn't to take over any more. It withdraws "warm" from the record
// too: if the plan changed back, the holder would hand off to cold caches.
func (r *Replica) cool(t *shardState) {
	r.letGo(t)
	r.unsay(t)
}

// unsay withdraws from the record that this replica is warm for the shard.
func (r *Replica) unsay(t *shardState) {
	if t.rec.Warm == r.cfg.ID && t.w == nil {
		s := t.rec
		s.Warm = ""
		r.writeShard(t, AnnounceWarm, s)
	}
}

// hold serves a shard whose record names this replica (rule R2), or hands it on.
func (r *Replica) hold(t *shardState, wanted bool) {
	next, kind, goes := r.successor(t, wanted)
	if goes && t.phase < active { // nothing of it runs
		if next != "" && t.rec.Epoch == t.claimedAs && (r.aliased || r.behind(t)) {
			next, kind = "", Release // its successor couldn't tell that its epoch may be too low
		}
		r.giveUp(t, next, kind)
		return
	}
	switch t.phase {
	case idle:
		r.enter(t, warming)
		r.emit(Warm{ID: t.id})
	case warming:
		if r.givesBack(t) {
			r.giveUp(t, "", Release)
		}
	case warm:
		if r.heldTwice(t) {
			return
		}
		if r.behind(t) {
			r.giveUp(t, "", Release) // the next claim is above it
			return
		}
		t.claimedAs = 0 // while it is open, or drains, its epoch is right
		r.enter(t, active)
		t.objects, t.load = t.rec.Objects, t.rec.Load // until it is measured here
		t.reportedAt = r.now
		r.emit(Activate{ID: t.id, Epoch: t.rec.Epoch})
		r.touch(t)
	case active:
		switch {
		case goes && (next == "" || !r.waitsForMoves(t)):
			r.enter(t, draining)
			r.emit(Drain{ID: t.id})
		case t.rec.Assignee == r.cfg.ID && t.rec.Warm != "" && !r.takes(t.rec.Warm):
			// the successor has gone and can't withdraw its announcement
			s := t.rec
			s.Warm = ""
			r.writeShard(t, Report, s)
		}
	case drained:
		if !goes { // the plan changed, or the successor died: the shard stays here
			r.enter(t, warm)
			r.touch(t)
			return
		}
		r.giveUp(t, next, kind)
	}
}

// behind reports whether the shard's slots may have had its epoch or a higher one under another name of its cluster, of
// which the claimant didn't know yet. That name may lead to another cluster by now, so the epochs of all excluded
// records count. After a handoff they don't: its holders began with a claim that was checked, and a cluster that is
// divided anew would call off planned moves of all others.
func (r *Replica) behind(t *shardState) bool {
	before, _, _ := r.underOtherNames(t)
	if t.rec.Epoch == t.claimedAs {
		before = max(before, r.epochs.excluded)
	}
	return before >= t.rec.Epoch
}

// giveUp writes the next holder of a shard that has no running work.
func (r *Replica) giveUp(t *shardState, next Incarnation, kind WriteKind) {
	s := t.rec
	s.Holder, s.Warm, s.Epoch, s.Retired = next, "", t.rec.Epoch+1, kind == Retire
	if next == "" {
		s.Epoch = t.rec.Epoch // the next claim raises the epoch
	}
	r.writeShard(t, kind, s)
}

// successor returns who should get the shard now, and by what kind of write. goes is false if the shard stays. next
// is "" if the layout excludes the shard, if the cluster is gone, or if a leaving replica has no successor. A
// leaving replica whose own caches aren't filled doesn't wait for its successor's: it doesn't serve the shard yet.
func (r *Replica) successor(t *shardState, wanted bool) (next Incarnation, kind WriteKind, goes bool) {
	kind = HandOff
	if r.leaving {
		kind = HandOffOnExit
	}
	a := t.rec.Assignee
	switch {
	case t.excluded:
		return "", Retire, true
	case !wanted:
		return "", Release, true
	case a != "" && a != r.cfg.ID && r.takesOf(a, t.id.Cluster):
		overdue := r.leaving && (t.phase < warm || r.now.AtLeast(t.moveAt) >= r.cfg.LeaveTimeout)
		return a, kind, t.rec.Warm == a || overdue
	case r.leaving && !r.othersTake(t.id.Cluster):
		return "", Release, true
	}
	return "", kind, false
}

// pursue works towards a shard that another replica holds and this one should. An orphan is claimed at once. Otherwise
// this replica warms the shard, and its holder hands it off.
func (r *Replica) pursue(t *shardState) {
	mine := t.rec.Assignee == r.cfg.ID
	if t.orphan() {
		if t.orphanAt.IsZero() {
			t.orphanAt = r.now
		}
		if mine || t.probing {
			r.claim(t)
		}
		return // otherwise the planner names the claimant
	}
	t.orphanAt = Instant{}
	switch {
	case !mine && !t.standby:
		r.cool(t)
	case t.phase == idle && r.fitness(t.id.Cluster) != plan.Fit: // the planner didn't know yet that this replica is unfit
	case t.phase == idle:
		r.enter(t, warming)
		r.emit(Warm{ID: t.id})
		r.unsay(t)
	case t.phase == warming:
		r.unsay(t)
	case mine && t.phase == warm && t.rec.Warm != r.cfg.ID && t.w == nil:
		s := t.rec
		s.Warm = r.cfg.ID
		r.writeShard(t, AnnounceWarm, s)
	}
}

// claim takes a shard that no other replica can be serving.
func (r *Replica) claim(t *shardState) {
	if t.w != nil || r.now.AtLeast(t.freeAt) < 0 || r.bars(t) || !r.mayClaim(t) {
		return
	}
	epoch, ok := r.claimEpoch(t)
	if !ok {
		return
	}
	kind := ClaimFree
	if t.rec.Holder != "" {
		kind = ClaimDead
	}
	s := t.rec
	s.Holder, s.Warm = r.cfg.ID, ""
	s.Epoch, t.claimedAs = epoch, epoch
	r.writeShard(t, kind, s)
}

// writeShard sends a write of the record's status.
func (r *Replica) writeShard(t *shardState, kind WriteKind, s Shard) {
	if kind != AnnounceWarm && t.phase >= active {
		s.Objects, s.Load = t.objects, t.load
	}
	from := t.rec.Holder
	t.w = r.send(t.rec.Version, t, func(seq uint64) Effect {
		return WriteShard{Seq: seq, Kind: kind, From: from, Shard: s}
	})
}
