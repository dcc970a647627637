package ownership

import (
	"cmp"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
)

// phase is where a shard stands at this replica.
type phase uint8

const (
	idle     phase = iota // nothing of it is here
	warming               // its caches are being built, its gates are closed
	warm                  // its caches are synced, its gates are closed
	active                // its gates are open
	draining              // running reconciles end, nothing new starts
	drained               // nothing runs, the fence is closed; the record still names us
)

func (p phase) String() string {
	return [...]string{"idle", "warming", "warm", "active", "draining", "drained"}[p]
}

// tenure is what this replica knows and does about one shard.
type tenure struct {
	id     keyspace.ShardID
	layout *layout // of its cluster
	known  bool    // the record exists, as far as we saw
	rec    Shard   // newest version seen
	holder *peer   // whom it names as its holder, nil for nobody and for this replica
	floor  Epoch   // highest epoch seen in any version, deleted ones included, or what comes before the first
	seenAt Instant // when rec was seen
	found  bool    // it was there when the incarnation began, and has had no other holder since
	seenIn uint64  // the step in which that was
	phase  phase
	dirty  bool
	// excluded: the newest layout of its cluster doesn't list it.
	excluded bool
	barred   bool // it is among those that would have been claimed
	// standby: its holder is late, and it would fall to us if that one were dead.
	standby bool

	w        *write  // at most one at a time
	freeAt   Instant // a deleted record isn't made again, or claimed, before: its old holder may not have seen that
	orphanAt Instant // when it was first seen to have nobody, zero if it has somebody
	moveAt   Instant // when its plan last changed
	warmAt   Instant // when its successor was last seen to be warm

	warmingAt Instant // when its warm-up began, or last missed its deadline
	overdue   bool    // it has missed one
	probing   bool    // it is to be claimed once its cluster was looked at

	objects    int64
	load       float64
	reportedAt Instant
}

// Holding is one shard that a replica holds, with its epoch.
type Holding struct {
	ID     keyspace.ShardID
	Epoch  Epoch
	Phase  string
	Held   bool // by its record; else it is only prepared here
	Active bool // its gates are open
}

// Holdings lists what this replica holds by its newest records, sorted by shard.
func (r *Replica) Holdings() []Holding {
	var hs []Holding
	for _, t := range r.order {
		if r.holds(t) || t.phase != idle {
			hs = append(hs, Holding{ID: t.id, Epoch: t.rec.Epoch, Phase: t.phase.String(), Held: r.holds(t), Active: t.phase == active})
		}
	}
	return hs
}

// Record returns the newest version of a shard's record that was seen; ok is false where there is none.
func (r *Replica) Record(id keyspace.ShardID) (_ Shard, ok bool) {
	t := r.shards[id]
	if t == nil || !t.known {
		return Shard{}, false
	}
	return t.rec, true
}

// orphan reports whether nobody can be serving a shard: its record names nobody, or a dead incarnation.
func (t *tenure) orphan() bool { return t.rec.Holder == "" || (t.holder != nil && t.holder.dead()) }

func (r *Replica) holds(t *tenure) bool { return t.known && t.rec.Holder == r.cfg.ID }

// shardSeen takes a version of a record.
func (r *Replica) shardSeen(s Shard) {
	t := r.shard(s.ID)
	if s.Version < t.rec.Version {
		return
	}
	if s.Version == t.rec.Version && t.known {
		t.rec.UID = cmp.Or(t.rec.UID, s.UID) // a record that this replica made is known before its UID is
		return
	}
	if t.contradicts(s) {
		if !t.known {
			r.goneBack("the record of %s is there, and was deleted", s.ID)
			return
		}
		r.goneBack("the record of %s is at epoch %d, and was at epoch %d", s.ID, s.Epoch, t.rec.Epoch)
		return
	}
	if !t.known || t.rec.Assignee != s.Assignee {
		t.moveAt = r.now
	}
	if !t.known {
		t.reportedAt = r.now
	}
	if t.known && t.replacedBy(s) {
		r.bury(t) // it was deleted and made anew, and we saw only the end
	}
	filled, warm := t.fills(), t.warmed()
	t.found = t.found && s.Epoch == t.rec.Epoch
	t.known, t.probing = true, false
	t.rec, t.seenAt, t.seenIn = s, r.now, r.step
	r.recount(t, filled, warm)
	t.floor = max(t.floor, s.Epoch, s.Floor-1)
	r.noteEpoch(t.floor)
	if t.w.settled(s.Version) {
		r.forget(t.w)
		t.w = nil
	}
	t.holder = r.name(s.Holder)
	r.touch(t)
}

// shardGone takes the deletion of a record. Whoever held it stops when it sees this too, at the latest when it would
// have lapsed, so a record made anew is left alone for that long.
func (r *Replica) shardGone(in ShardGone) {
	t := r.shards[in.ID]
	if t == nil || !t.known || (in.Version != 0 && in.Version < t.rec.Version) {
		return
	}
	if in.Version == 0 && in.Asked.AtLeast(t.seenAt) <= 0 {
		return // if it is gone again, the watch will tell, or the next read
	}
	filled, warm := t.fills(), t.warmed()
	t.known = false
	r.recount(t, filled, warm)
	t.rec.Version = max(t.rec.Version+1, in.Version) + 1 // nothing older follows the deletion
	r.bury(t)
	r.forget(t.w)
	t.w = nil
	r.touch(t)
}

// bury notes that a record is gone: when another in its place may be touched, and above which epoch.
func (r *Replica) bury(t *tenure) {
	t.freeAt = r.now.Add(r.cfg.BuryTime)
	if t.w == nil {
		return
	}
	if e, ok := t.w.effect.(WriteShard); ok {
		t.floor = max(t.floor, e.Shard.Epoch) // it may have been committed
	}
}

// replacedBy reports whether s is another record than the one of its name that was seen last.
func (t *tenure) replacedBy(s Shard) bool {
	return s.Epoch < t.rec.Epoch || s.Floor != t.rec.Floor || (s.UID != t.rec.UID && s.UID != "" && t.rec.UID != "")
}

// shardWritten takes the news that a write of the record was committed. Nothing newer was seen, or w would be settled.
func (r *Replica) shardWritten(t *tenure, w *write, v Version) {
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
	r.touch(t) // a write that changed nothing leaves the version as it is
}

// decide chooses the next step of one shard, from its newest record and what is already under way.
func (r *Replica) decide(t *tenure) {
	_, wanted := r.clusters[t.id.Cluster]
	switch {
	case !t.known:
		r.letGo(t)
	case r.holds(t):
		if t.w == nil {
			r.hold(t, wanted)
		}
	case t.phase >= active: // taken from us, or handed off
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

// letGo drops what is here of a shard that isn't ours.
func (r *Replica) letGo(t *tenure) {
	if t.phase != idle {
		r.enter(t, idle)
		r.emit(Close{ID: t.id})
	}
}

// cool drops the caches of a shard that we aren't to take over after all. The record must not go on calling us warm: if
// the plan came back to us, its holder would hand off to cold caches.
func (r *Replica) cool(t *tenure) {
	r.letGo(t)
	r.unsay(t)
}

// unsay takes back that this replica is warm for a shard.
func (r *Replica) unsay(t *tenure) {
	if t.rec.Warm == r.cfg.ID && t.w == nil {
		s := t.rec
		s.Warm = ""
		r.writeShard(t, AnnounceWarm, s)
	}
}

// hold serves a shard whose record names us (rule R2), or hands it on.
func (r *Replica) hold(t *tenure, wanted bool) {
	next, kind, goes := r.successor(t, wanted)
	if goes && t.phase < active { // nothing of it runs
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
		r.enter(t, active)
		t.objects, t.load = t.rec.Objects, t.rec.Load // until it is measured here
		t.reportedAt = r.now
		r.emit(Activate{ID: t.id, Epoch: t.rec.Epoch})
		r.touch(t)
	case active:
		switch {
		case goes && (next == "" || !r.gathers(t)):
			r.enter(t, draining)
			r.emit(Drain{ID: t.id})
		case t.rec.Assignee == r.cfg.ID && t.rec.Warm != "" && !r.takes(t.rec.Warm): // it left before it could take that back
			s := t.rec
			s.Warm = ""
			r.writeShard(t, Report, s)
		}
	case drained:
		if !goes { // the plan changed, or the successor died: it is still ours
			r.enter(t, warm)
			r.touch(t)
			return
		}
		r.giveUp(t, next, kind)
	}
}

// giveUp names the next holder of a shard of which nothing runs.
func (r *Replica) giveUp(t *tenure, next Incarnation, kind WriteKind) {
	s := t.rec
	s.Holder, s.Warm, s.Epoch, s.Retired = next, "", t.rec.Epoch+1, kind == Retire
	if next == "" {
		s.Epoch = t.rec.Epoch // whoever claims it next counts it up
	}
	r.writeShard(t, kind, s)
}

// successor tells to whom the shard should go now, if it should go. Nobody ("") takes over when the cluster is gone or
// when a leaving replica is the last one. A leaving replica doesn't wait for its successor's caches where its own
// aren't there yet: nobody would be served meanwhile.
func (r *Replica) successor(t *tenure, wanted bool) (next Incarnation, kind WriteKind, goes bool) {
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

// pursue takes a shard that isn't ours but should be: at once where nobody holds it, else after warming and its
// holder's handing off.
func (r *Replica) pursue(t *tenure) {
	mine := t.rec.Assignee == r.cfg.ID
	if t.orphan() {
		if t.orphanAt == (Instant{}) {
			t.orphanAt = r.now
		}
		if mine || t.probing {
			r.claim(t)
		}
		return // else the planner names the claimant
	}
	t.orphanAt = Instant{}
	switch {
	case !mine && !t.standby:
		r.cool(t)
	case t.phase == idle && r.fitness(t.id.Cluster) != plan.Fit: // whoever planned it hadn't heard
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

// claim takes a shard that nobody can be serving.
func (r *Replica) claim(t *tenure) {
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
	s.Holder, s.Assignee, s.Warm = r.cfg.ID, t.rec.Assignee, ""
	s.Epoch = epoch
	r.writeShard(t, kind, s)
}

// writeShard sends a status write.
func (r *Replica) writeShard(t *tenure, kind WriteKind, s Shard) {
	if kind != AnnounceWarm && t.phase >= active {
		s.Objects, s.Load = t.objects, t.load
	}
	from := t.rec.Holder
	t.w = r.send(t.rec.Version, target{shard: t}, func(seq uint64) Effect {
		return WriteShard{Seq: seq, Kind: kind, From: from, Shard: s}
	})
}

// report records the size of one held shard at a time, so that the number of writes doesn't grow with the shards. One
// that is to go isn't among them: its move costs what it takes anyway, and a long one would go on costing.
func (r *Replica) report() {
	if r.now.AtLeast(r.reportAt) < 0 {
		return
	}
	r.reportAt = r.now.Add(r.cfg.ReportEvery)
	var oldest *tenure
	for _, t := range r.order {
		if t.phase != active || t.w != nil || t.rec.Assignee != r.cfg.ID ||
			(t.objects == t.rec.Objects && t.load == t.rec.Load) {
			continue
		}
		if oldest == nil || t.reportedAt.Mono < oldest.reportedAt.Mono {
			oldest = t
		}
	}
	if oldest != nil {
		oldest.reportedAt = r.now
		r.writeShard(oldest, Report, oldest.rec)
	}
}

// wake returns when the shard needs a decision though nothing is seen.
func (t *tenure) wake(r *Replica) time.Duration {
	wake := r.now.Mono + time.Hour
	if t.freeAt != (Instant{}) {
		wake = min(wake, t.freeAt.Mono)
	}
	if r.fills(t) {
		wake = min(wake, t.warmingAt.Mono+r.fillTimeout(t.id.Cluster))
	}
	if due := t.warmAt.Mono + r.cfg.GatherTimeout; due > r.now.Mono && r.holds(t) && t.warmed() {
		wake = min(wake, due)
	}
	if due := t.moveAt.Mono + r.cfg.LeaveTimeout; due > r.now.Mono && r.leaving && r.holds(t) {
		wake = min(wake, due)
	}
	return wake
}
