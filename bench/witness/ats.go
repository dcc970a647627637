package witness

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/bench/audit"
)

// atFact is one thing that the log shows about an At's name.
type atFact struct {
	span
	object   int32
	verb     factVerb
	place    place
	uid      string
	schedule string
	done     bool
	pod      string
	missed   bool
	deadline int64  // in seconds after its due time
	ours     bool   // a replica wrote it
	under    string // the shard that it was sent under
	rv       uint64
}

type factVerb uint8

const (
	factSeen factVerb = iota
	factCreate
	factDelete
	// factEdit is a change of the spec whose content isn't in the log.
	factEdit
)

// atLife is one At from its creation to its deletion. A name may have several.
type atLife struct {
	object  int32
	uid     string
	created bool // the log has the creation
	begin   span
	deleted int64   // when the first request to delete it arrived
	swept   bool    // that request was a deletecollection, which may not have matched the At
	dropped *atFact // the first request to delete it, if it was a replica's
	// first and latest are the earliest and the latest due time that the At is ever known to have had.
	known, edited bool
	invalid       bool
	first, latest int64
	dues          []dueTime // all that the log shows
	done          *atFact
	doneBefore    bool // done according to the given facts, at an unknown time
	pods          []podLife
	maybePod      bool
}

// dueTime is a due time that a request shows.
type dueTime struct {
	span
	us int64
}

const never = math.MaxInt64

func (l *ledger) addAt(e *Event, a agent, at place) {
	if e.Subresource != "" && e.Subresource != "status" {
		return
	}
	if e.Verb == "deletecollection" {
		key := sweptKey{e.Cluster, "ats", e.Namespace, l.era(e.Cluster, e.Received)}
		l.swept[key] = append(l.swept[key], span{e.Received, e.Completed})
		return
	}
	f := atFact{span: span{e.Received, e.Completed}, object: l.objects.id(l.objectOf(e)), place: at, uid: e.UID,
		ours: a.Tenure, under: a.under}
	if b := e.Body; b != nil {
		f.missed, f.deadline, f.rv, f.schedule, f.done, f.pod = b.Missed, b.Deadline, b.ResourceVersion, b.Schedule,
			b.Phase == "DONE", b.Pod
		if b.UID != "" {
			f.uid = b.UID
		}
	}
	switch {
	case e.Verb == "create" && e.Subresource == "":
		f.verb = factCreate
	case e.Verb == "delete":
		f.verb = factDelete
	case e.Subresource == "" && e.Body == nil && !a.Tenure:
		f.verb = factEdit
	}
	l.atFacts = append(l.atFacts, f)
}

// lives combines the facts of each At.
func (l *ledger) lives() map[int32][]*atLife {
	slices.SortStableFunc(l.atFacts, func(a, b atFact) int {
		return cmp.Or(cmp.Compare(a.object, b.object), cmp.Compare(a.start, b.start), cmp.Compare(a.rv, b.rv))
	})
	all := make(map[int32][]*atLife)
	for i := range l.atFacts {
		f := &l.atFacts[i]
		all[f.object] = f.addTo(all[f.object])
	}
	for _, at := range l.facts.Ats {
		id := l.objects.id(objectID{at.Cluster, audit.AtGroup, "ats", at.Namespace, at.Name, l.era(at.Cluster, l.to)})
		all[id] = addKnown(all[id], id, at)
	}
	for id, lives := range all {
		o := l.objects.list[id]
		for _, s := range l.swept[sweptKey{o.cluster, "ats", o.namespace, o.era}] {
			for _, life := range lives {
				if s.end > life.begin.start && s.start < life.deleted {
					life.deleted, life.swept = s.start, true
				}
			}
		}
	}
	return all
}

// addTo adds a fact to the lives of its At's name. The last life is the present one.
func (f *atFact) addTo(lives []*atLife) []*atLife {
	var life *atLife
	if n := len(lives); n > 0 {
		life = lives[n-1]
	}
	// A late fact may belong to an earlier life: a status write that crossed the At's deletion and re-creation.
	if f.uid != "" && f.verb != factCreate {
		for _, old := range lives {
			if old.uid == f.uid {
				life = old
			}
		}
	}
	other := life != nil && f.uid != "" && life.uid != "" && life.uid != f.uid
	if life == nil || f.verb == factCreate || other {
		begin := span{math.MinInt64, math.MinInt64}
		if f.verb == factCreate || other {
			begin = f.span
		}
		life = &atLife{object: f.object, created: f.verb == factCreate, begin: begin, deleted: never}
		lives = append(lives, life)
	}
	if f.uid != "" {
		life.uid = f.uid
	}
	switch {
	case f.verb == factDelete:
		// One that overlaps the creation may have met an earlier At of that name.
		if f.ours && f.start < life.deleted && f.start > life.begin.end {
			life.dropped = f
		}
		life.deleted = min(life.deleted, f.start)
	case f.verb == factEdit:
		life.edited = true
	case f.schedule != "":
		life.due(f.schedule, f.span)
	}
	if f.done && (life.done == nil || f.end < life.done.end) {
		life.done = f
	}
	return lives
}

// due notes a due time, and the request that shows it.
func (a *atLife) due(text string, shown span) {
	us, ok := schedule(text)
	if !ok {
		a.invalid = true
		return
	}
	if !a.known {
		a.first = us
	}
	a.known, a.invalid = true, false
	if len(a.dues) == 0 || us != a.latest || shown.end < never { // given facts don't say when
		a.dues = append(a.dues, dueTime{shown, us})
	}
	a.first, a.latest = min(a.first, us), us
}

// earliest returns the earliest due time that the At may have had when its Pod was asked for. A claim replaces the
// version by which it was decided, and a claimed At keeps its schedule. So all count that had arrived by then, but for
// those that were certainly replaced by then.
func (a *atLife) earliest(asked int64) int64 {
	least, answered := int64(never), false
	for _, d := range a.dues {
		answered = answered || d.end < asked
		replaced := slices.ContainsFunc(a.dues, func(next dueTime) bool { return d.end < next.start && next.end < asked })
		if d.start <= asked && !replaced {
			least = min(least, d.us)
		}
	}
	if !answered {
		return a.first
	}
	return least
}

func addKnown(lives []*atLife, id int32, at At) []*atLife {
	var life *atLife
	for _, old := range lives {
		if at.UID == "" || old.uid == "" || old.uid == at.UID {
			life = old
		}
	}
	if life == nil {
		life = &atLife{object: id, begin: span{math.MinInt64, math.MinInt64}, deleted: never}
		lives = append([]*atLife{life}, lives...)
	}
	if life.uid == "" {
		life.uid = at.UID
	}
	life.due(at.Schedule, span{math.MinInt64, never})
	life.doneBefore = life.doneBefore || at.Phase == "DONE"
	return lives
}

// judgeAts checks for every At whether it was served, when, and by how many Pods.
func (l *ledger) judgeAts(all map[int32][]*atLife) (st AtStats, flat []*atLife, services []Served) {
	var late []time.Duration
	worst := int64(-1)
	for id := range l.objects.list {
		for _, life := range all[int32(id)] {
			flat = append(flat, life)
			st.Seen++
			if life.done != nil || life.doneBefore {
				st.Done++
			}
			if life.deleted != never {
				st.Deleted++
			}
			st.Pods += life.made()
			st.PodsRemade += max(0, len(life.pods)-1)
			l.judgePods(life, &st)
			l.judgeServed(life, &st)
			end, under, ok := life.served()
			if !ok {
				continue
			}
			o := l.objects.list[life.object]
			services = append(services, Served{o.cluster, o.namespace, o.name, under, instant(end)})
			if due, known := life.dueAt(); known && end >= due {
				late = append(late, time.Duration(end-due)*time.Microsecond)
				if end-due > worst {
					worst, st.Latest = end-due, o.String()
				}
			}
		}
	}
	st.Lateness = SpreadOf(late)
	return st, flat, services
}

// made is how many Pods were made. Where the outcome of each request is unknown, the At's DONE tells that one was.
func (a *atLife) made() int {
	if len(a.pods) == 0 && a.maybePod && a.done != nil && a.done.pod != "" {
		return 1
	}
	return len(a.pods)
}

// dueAt returns when the key had to be served: its due time, or its creation if that was later.
func (a *atLife) dueAt() (us int64, ok bool) {
	if !a.known || a.edited || a.invalid {
		return 0, false
	}
	if a.created {
		return max(a.latest, a.begin.start), true
	}
	return a.latest, true
}

// judgePodSeen looks for an At that is DONE by a Pod that the log doesn't show: I7 can't be judged on it.
func (l *ledger) judgePodSeen(life *atLife) {
	if len(life.pods) > 0 || life.maybePod || !life.created || life.done == nil || life.done.pod == "" {
		return
	}
	if l.maybeCut(life, life.done) {
		return
	}
	o := l.objects.list[life.object]
	l.found.add(Violation{
		Kind: NoPods, Object: o.String(), First: l.lineAt(life.done.place, life.done.start, "DONE"),
		Detail: fmt.Sprintf("DONE by Pod %s, and no line tells who made that", life.done.pod),
	})
}

// maybeCut reports, and counts, whether lines from an At's creation to one of its facts may be missing, because an API
// server ended.
func (l *ledger) maybeCut(life *atLife, until *atFact) bool {
	cut := slices.ContainsFunc(l.clusters[l.objects.list[life.object].cluster].restarts, func(r restart) bool {
		return r.first >= life.begin.start && r.first <= until.end
	})
	if cut {
		l.stats.Lost++
	}
	return cut
}

// judgeServed looks for Ats that should have been served and weren't.
func (l *ledger) judgeServed(life *atLife, st *AtStats) {
	l.judgePodSeen(life)
	o := l.objects.list[life.object]
	lost := func(f *atFact, verb, detail string) {
		l.found.add(Violation{Kind: LostAt, Object: o.String(), First: l.lineAt(f.place, f.start, verb), Detail: detail})
	}
	if d := life.done; d != nil && d.ours && d.pod == "" && !l.tooLate(d) && len(life.pods) == 0 && !life.maybePod {
		lost(d, "DONE", "DONE without a Pod, and no deadline for its start had passed")
		return
	}
	if len(life.pods) > 0 || life.done != nil || life.doneBefore {
		return
	}
	// It may have become DONE before the log began, or by a write of unknown outcome.
	if d := life.dropped; d != nil && life.created && !life.swept && !life.maybePod && !l.unsure[life.object] {
		if !l.maybeCut(life, d) {
			lost(d, "delete", "a replica deleted it before it had a Pod or was DONE")
		}
		return
	}
	if life.invalid {
		return
	}
	due, ok := life.dueAt()
	end := min(l.to, life.deleted)
	unknown := func(why string) {
		l.found.add(Violation{Kind: UnknownAt, Object: o.String(), Detail: "no Pod and not DONE, and " + why})
	}
	switch {
	case o.era < l.era(o.cluster, l.to):
		st.Replaced++
	case !ok:
		unknown("when it was due isn't in the logs: have Ats logged at level RequestResponse")
	case life.maybePod:
		unknown("a Pod was asked for with an unknown outcome")
	case due > end && due <= l.to && life.swept:
		unknown("a deletion of its namespace's Ats may have met it before it was due")
	case due > end:
		st.NotDue++
	case due+l.rules.Settle.Microseconds() > end:
		st.Settling++
	default:
		l.found.add(Violation{
			Kind: LostAt, Object: o.String(),
			Detail: "due at " + stamp(due) + ", and at " + stamp(end) + " (end of the logs, or deleted) no Pod and not DONE",
		})
	}
}

// tooLate reports whether an At's deadline for starting may have passed before a write was answered that says so. The
// write replaces the version by which that was decided, so its schedule and deadline are the ones that count.
func (l *ledger) tooLate(f *atFact) bool {
	due, ok := schedule(f.schedule)
	late := f.end + l.rules.Skew.Microseconds() - due
	return f.missed && (!ok || late >= 0 && late/1e6 >= f.deadline)
}

// served returns when the first Pod of the At was made and under which shard, or if that isn't known when it was DONE.
func (a *atLife) served() (end int64, under string, ok bool) {
	end = never
	if d := a.done; d != nil && d.ours && !d.missed {
		end, under = d.end, d.under
	}
	for _, p := range a.pods {
		if p.ours && p.end < end {
			end, under = p.end, p.under
		}
	}
	return end, under, end < never
}

// waited returns until when the At had to be served: until it was, or until it was DONE without that, or deleted. known
// is false if the log doesn't show whether it was served.
func (a *atLife) waited() (end int64, known bool) {
	end, _, served := a.served()
	switch {
	case served:
		return end, true
	case a.done != nil:
		return a.done.end, true
	}
	return a.deleted, !a.maybePod && !a.doneBefore
}

// lifeAt finds the life that a request at that time belongs to.
func lifeAt(lives []*atLife, start int64, uid string) *atLife {
	var found *atLife
	for _, life := range lives {
		if uid != "" && life.uid == uid {
			return life
		}
		if found == nil || life.begin.start <= start {
			found = life
		}
	}
	return found
}
