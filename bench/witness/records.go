package witness

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// recordWrite is one committed write to a shard's record.
type recordWrite struct {
	span
	rv, base uint64
	name     string // the record's
	home     string
	era      int
	place    place
	state    ShardState
	writer   string
	replica  bool // the writer is a replica
	verb     string
	blind    bool // the log doesn't have what was asked for
}

// mayRelease reports whether a request may leave the record without a holder. A plan, which names none, has no epoch
// either.
func (w recordWrite) mayRelease() bool { return w.blind || w.state.Holder == "" && w.state.Epoch != 0 }

func (l *ledger) addRecord(e *Event, a agent) {
	who := cmp.Or(a.Incarnation, e.User)
	w := recordWrite{
		span: span{e.Received, e.Completed}, base: e.Base, name: e.Name, home: e.Cluster,
		era: l.era(e.Cluster, e.Received), place: l.place(e), writer: who, replica: a.Incarnation != "", verb: e.Verb,
		blind: e.Body == nil || e.Body.Shard == nil,
	}
	if e.Body != nil && e.Body.Shard != nil {
		w.rv, w.state = e.Body.ResourceVersion, *e.Body.Shard
	}
	switch e.Outcome() {
	case audit.Rejected:
		l.refusedRecords++
		return
	case audit.Unknown:
		l.recordUnknown[e.Name] = append(l.recordUnknown[e.Name], w)
		return
	}
	if a.Tenure {
		l.coords = append(l.coords, coordWrite{replica: who, at: e.Completed, stir: e.Verb != "update" && e.Verb != "patch"})
	}
	if e.Verb == "delete" || e.Verb == "deletecollection" || e.Body == nil || e.Body.Requested || e.Body.Shard == nil {
		if e.Verb == "delete" {
			// from some moment within this request's span on, the holder may have lost the shard
			l.recordUnknown[e.Name] = append(l.recordUnknown[e.Name], w)
		}
		return
	}
	shard := Shard{Cluster: w.state.Cluster, Prefix: w.state.Prefix}
	l.records[shard] = append(l.records[shard], w)
}

// grant is the write that began a tenure, and ended the one before.
type grant struct {
	shard Shard
	recordWrite
	handoff int   // index of the handoff
	since   int64 // when a restore of home brought the tenure back, 0 if none did
	until   int64 // when the first request arrived that may have ended the tenure
}

// begun is when the tenure had certainly begun.
func (g grant) begun() int64 { return max(g.end, g.since) }

// release is the write that ended a shard's epoch without beginning another.
type release struct {
	shard Shard
	recordWrite
	epoch uint64
}

// moves walks each record's history: who held it, since which write, and how many writes the changes took.
type moves struct {
	l        *ledger
	handoffs []Handoff
	grants   []grant
	// restored are the tenures that restores of home brought back, each since then. They have no handoff.
	restored []grant
	releases []release
	// granted are all pairs of shard and epoch that a version of a record granted. known is the epoch of the first
	// version in the log, if the log doesn't have the record's creation.
	granted map[tenure]bool
	known   map[int32]uint64
	// before are the incarnations that a record's first version names, if the log doesn't have its creation.
	before map[string]bool
	stats  MoveStats
}

func (l *ledger) history() *moves {
	m := &moves{l: l, granted: make(map[tenure]bool), known: make(map[int32]uint64), before: make(map[string]bool)}
	m.stats = MoveStats{Rejected: l.refusedRecords, Steps: make(map[Step]int), Kinds: make(map[protocol.MoveKind]MoveRow)}
	for _, unknown := range l.recordUnknown {
		slices.SortStableFunc(unknown, func(a, b recordWrite) int { return cmp.Compare(a.start, b.start) })
	}
	for _, shard := range sortedShards(l.records) {
		ws := l.records[shard]
		slices.SortStableFunc(ws, func(a, b recordWrite) int { return cmp.Compare(a.era, b.era) })
		var lost []recordWrite
		for era := range runs(ws, func(a, b recordWrite) bool { return a.era == b.era }) {
			m.record(shard, m.ordered(shard, era), lost)
			lost = ws[:len(lost)+len(era)]
		}
	}
	m.overlaps()
	return m
}

func sortedShards(records map[Shard][]recordWrite) []Shard {
	return slices.SortedFunc(maps.Keys(records), func(a, b Shard) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Prefix, b.Prefix))
	})
}

// ordered sorts a record's writes in the order of commits. resourceVersions give it exactly, unless the home cluster
// was restored from a backup in between: then they start again.
func (m *moves) ordered(shard Shard, ws []recordWrite) []recordWrite {
	byTime := func(a, b recordWrite) int { return cmp.Compare(a.end, b.end) }
	slices.SortStableFunc(ws, byTime)
	slices.SortStableFunc(ws, func(a, b recordWrite) int { return cmp.Compare(a.rv, b.rv) })
	for i := 1; i < len(ws); i++ {
		// Equal versions are one state that was answered twice.
		if ws[i-1].start > ws[i].end && ws[i-1].rv != ws[i].rv {
			m.l.found.add(Violation{
				Kind: UndeclaredRestore, Shard: shard.String(), First: m.l.recordLine(ws[i]), Second: m.l.recordLine(ws[i-1]),
				Detail: fmt.Sprintf("its record went back to version %d: if the home cluster was restored, say when", ws[i-1].rv),
			})
			slices.SortStableFunc(ws, byTime)
			break
		}
	}
	return ws
}

// judgeGiven checks that an epoch is given to one holder only. holders are the first grants of the epochs so far.
func (l *ledger) judgeGiven(shard Shard, holders map[uint64]recordWrite, w recordWrite) {
	first, again := holders[w.state.Epoch]
	switch {
	case !again:
		holders[w.state.Epoch] = w
	case first.state.Holder != w.state.Holder:
		l.found.add(Violation{
			Kind: TwoHolders, Shard: shard.String(),
			Detail: fmt.Sprintf("the record gives epoch %d to %s and to %s", w.state.Epoch, first.state.Holder,
				w.state.Holder),
			First: l.recordLine(first), Second: l.recordLine(w),
		})
	}
}

// broughtBack returns the version of a record that a restore of home brought back: the one that the first write after
// the restore replaces. lost are the writes before. ok is false if the log doesn't show that version, or not which of
// two: a history that was lost may have used its number again, and so may a request without an answer since then.
func (l *ledger) broughtBack(lost []recordWrite, first recordWrite) (base recordWrite, ok bool) {
	for _, w := range lost {
		if w.rv != 0 && w.rv == first.base && w.name == first.name {
			if ok && w.state != base.state {
				return base, false
			}
			base, ok = w, true
		}
	}
	return base, ok && !slices.ContainsFunc(l.recordUnknown[first.name], func(u recordWrite) bool {
		return u.era == first.era && u.start < first.start
	})
}

// restoredAt returns when home was restored for the last time before a write.
func (l *ledger) restoredAt(w recordWrite) (us int64) {
	for _, r := range l.facts.Restores {
		if r.Cluster == w.home && r.Time.UnixMicro() <= w.start {
			us = max(us, r.Time.UnixMicro())
		}
	}
	return us
}

// record walks the history of one record within an era. lost are its writes in earlier eras.
func (m *moves) record(shard Shard, ws, lost []recordWrite) {
	l, id := m.l, m.l.shards.id(shard)
	var was ShardState
	var held recordWrite // the grant of the present tenure
	holders := make(map[uint64]recordWrite)
	t := tally{m: m}
	if len(lost) == 0 && ws[0].verb != "create" {
		m.known[id] = ws[0].state.Epoch
	}
	base, based := l.broughtBack(lost, ws[0])
	if s := ws[0].state; ws[0].verb != "create" && !based {
		m.before[s.Holder], m.before[s.Assignee], m.before[s.Warm] = true, true, true
	}
	for _, w := range l.recordUnknown[ws[0].name] {
		m.granted[tenure{id, w.state.Epoch}] = true
	}
	ws = l.withUnanswered(ws)
	highest := ws[0]
	if based {
		was, highest = base.state, base
	}
	if was.Holder != "" {
		held, holders[was.Epoch] = base, base
		m.restored = append(m.restored, grant{shard: shard, recordWrite: base, since: l.restoredAt(ws[0]), until: never})
	}
	for i, w := range ws {
		before := base
		if i > 0 {
			before = ws[i-1]
		}
		between := l.between(before, w)
		if i > 0 && w.rv != 0 && w.rv == ws[i-1].rv {
			continue // a write that changed nothing
		}
		// A record that is created grants nothing yet.
		if w.state.Epoch < highest.state.Epoch && (w.state.Holder != "" || w.verb != "create") {
			l.found.add(Violation{
				Kind: RecordEpochFell, Shard: shard.String(),
				Detail: fmt.Sprintf("the record went from epoch %d to %d", highest.state.Epoch, w.state.Epoch),
				First:  l.recordLine(highest), Second: l.recordLine(w),
			})
		}
		if w.state.Epoch >= highest.state.Epoch {
			highest = w
		}
		step := stepOf(was, w, i == 0)
		if step != StepReport && step != StepOther {
			l.coords = append(l.coords, coordWrite{at: w.end, stir: true})
		}
		if w.state.Holder != "" {
			m.granted[tenure{id, w.state.Epoch}] = true
			l.judgeGiven(shard, holders, w)
		}
		changed := w.state.Holder != was.Holder || w.state.Epoch != was.Epoch
		if changed {
			m.end(shard, w.start)
			for _, u := range between {
				if u.mayRelease() {
					m.end(shard, u.start)
				}
			}
		}
		// A record that is made anew takes nothing from the holder of the one before, which sees that its own is gone.
		taken := changed && was.Holder != "" && was.Holder != l.changedBy(w) && (w.state.Holder != "" || w.verb != "create")
		// Nor is anything taken from one that may have released it.
		taken = taken && !slices.ContainsFunc(between, func(u recordWrite) bool {
			return u.writer == was.Holder && u.state.Holder == "" && u.state.Epoch == was.Epoch
		})
		if taken {
			l.judgeTaken(shard, was.Holder, held, w)
		}
		if was.Holder != "" && w.state.Holder == "" && w.verb != "create" {
			m.releases = append(m.releases, release{shard, w, was.Epoch})
		}
		// Only a holder that took over in the log has a grant. One that held before the log began has none.
		if changed && w.state.Holder != "" && (i > 0 || based || w.verb == "create") {
			began := w
			if i > 0 {
				began.start = l.earliest(ws[i-1], w)
			}
			m.grants = append(m.grants, grant{shard, began, len(m.handoffs), 0, never})
			m.handoffs = append(m.handoffs, m.handoff(shard, held.state.Holder, w, taken))
		}
		t.add(shard, step, was, w, len(between) == 0)
		if w.state.Holder != "" {
			held = w
		}
		was = w.state
	}
	t.close(shard)
	last := ws[len(ws)-1]
	for _, u := range l.recordUnknown[last.name] {
		if u.verb == "delete" || u.end > last.start && u.mayRelease() {
			m.end(shard, u.start)
		}
	}
	for _, r := range l.facts.Restores {
		if r.Cluster == ws[0].home {
			m.end(shard, r.Time.UnixMicro())
		}
	}
}

// end records that a shard's tenures may have ended with a request that arrived then.
func (m *moves) end(shard Shard, us int64) {
	for _, grants := range [][]grant{m.grants, m.restored} {
		for i := len(grants) - 1; i >= 0 && grants[i].shard == shard; i-- {
			if grants[i].begun() < us {
				grants[i].until = min(grants[i].until, us)
			}
		}
	}
}

// overlaps looks for records of different shards that share a slot and were held at the same time, or whose epochs
// fell.
func (m *moves) overlaps() {
	byCluster := make(map[string][]Shard)
	for _, shard := range sortedShards(m.l.records) {
		cluster := m.l.cluster(shard.Cluster)
		byCluster[cluster] = append(byCluster[cluster], shard)
	}
	crossed := make(map[Shard]bool)
	for _, shards := range byCluster {
		for i, a := range shards {
			for _, b := range shards[i+1:] {
				if m.l.overlap(a, b) {
					crossed[a], crossed[b] = true, true
				}
			}
		}
	}
	told := make(map[[2]Shard]bool)
	for _, g := range slices.Concat(m.grants, m.restored) {
		for _, h := range m.grants {
			if !crossed[g.shard] { // nearly always
				break
			}
			if g.shard == h.shard || !m.l.overlap(g.shard, h.shard) || g.begun() >= h.start || told[[2]Shard{g.shard, h.shard}] {
				continue
			}
			v := Violation{Shard: h.shard.String(), First: m.l.recordLine(g.recordWrite), Second: m.l.recordLine(h.recordWrite)}
			switch {
			case g.until > h.end && !m.l.sealedBefore(g.state.Holder, h.recordWrite):
				v.Kind, v.Detail = OverlappingRecords,
					fmt.Sprintf("%s was given to %s while %s, which has the same slots, was %s's",
						h.shard, h.state.Holder, g.shard, g.state.Holder)
			case h.state.Epoch <= g.state.Epoch:
				v.Kind, v.Detail = RecordEpochFell, fmt.Sprintf("%s had epoch %d, and %s, which has the same slots, began with %d",
					g.shard, g.state.Epoch, h.shard, h.state.Epoch)
			default:
				continue
			}
			told[[2]Shard{g.shard, h.shard}] = true
			m.l.found.add(v)
		}
	}
}

// withUnanswered adds versions between two in the log whose writers got no answer. The next epoch builds on them, so
// they were committed.
func (l *ledger) withUnanswered(ws []recordWrite) []recordWrite {
	all := ws[:1:1]
	for _, w := range ws[1:] {
		before := all[len(all)-1]
		for _, u := range l.recordUnknown[w.name] {
			if u.state.Epoch == before.state.Epoch+1 && u.state.Epoch < w.state.Epoch && u.start > before.start &&
				u.start < w.start {
				u.state.Cluster, u.state.Prefix, u.state.Assignee = before.state.Cluster, before.state.Prefix, before.state.Assignee
				all, before = append(all, u), u
			}
		}
		all = append(all, w)
	}
	return all
}

// between returns the requests without an answer that may have been committed between two versions of a record that
// are neighbours in the log.
func (l *ledger) between(before, w recordWrite) (between []recordWrite) {
	if w.base != 0 && w.base == before.rv {
		return nil
	}
	for _, u := range l.recordUnknown[w.name] {
		if u.era == w.era && u.end > before.start && u.start < w.end {
			between = append(between, u)
		}
	}
	return between
}

// earliest returns the earliest time at which the change that w is the first to show can have been committed. An
// earlier request that was answered with a timeout may have made the change, and w then only repeats it. A request
// for another epoch, or for none, such as a plan's, can't have made it.
func (l *ledger) earliest(before, w recordWrite) int64 {
	soonest := w.start
	for _, u := range l.recordUnknown[w.name] {
		if u.start > before.start && (u.blind || u.state.Epoch == w.state.Epoch) {
			soonest = min(soonest, u.start)
		}
	}
	return soonest
}

// changedBy returns which writer gave the shard to the holder in w. It is w's writer, unless another one requested
// that very change earlier and got no answer. In that case the log has no line of the commit, and w only repeats
// the change.
func (l *ledger) changedBy(w recordWrite) string {
	for _, u := range l.recordUnknown[w.name] {
		if u.era == w.era && u.start < w.start && u.state.Epoch == w.state.Epoch && u.state.Holder == w.state.Holder &&
			u.state.Move == w.state.Move {
			return u.writer
		}
	}
	return w.writer
}

// handoff names the kind of a change of holder. Record and Lease decide: a join has no former holder, and only the
// former holder itself hands off alive. The kind that the writer names is taken if it fits.
func (m *moves) handoff(shard Shard, from string, w recordWrite, claimed bool) Handoff {
	h := Handoff{
		Shard: shard.String(), From: from, To: w.state.Holder, Epoch: w.state.Epoch, Time: instant(w.end),
		Kind: protocol.MoveKind(w.state.Move), Steps: make(map[Step]int),
	}
	life := m.l.leases[from]
	switch {
	case from == "":
		h.Kind = protocol.Join
	case claimed:
		h.Kind = protocol.Crash
	case h.Kind != "" && h.Kind != protocol.Crash:
	case life != nil && life.leaving:
		h.Kind = protocol.Exit
	default:
		h.Kind = protocol.Planned
	}
	return h
}

func (l *ledger) recordLine(w recordWrite) *Line {
	line := l.lineAt(w.place, w.start, w.verb)
	line.Epoch, line.Replica = w.state.Epoch, w.writer
	return line
}

// judgeGrants checks each write against the record: no replica writes before its grant, after a later one, or without
// one.
func (l *ledger) judgeGrants(m *moves) {
	if len(l.records) == 0 {
		return // see NoRecords
	}
	byShard, released := make([][]int, len(l.shards.list)), make([][]release, len(l.shards.list))
	for _, r := range m.releases {
		id := l.shards.ids[r.shard]
		released[id] = append(released[id], r)
	}
	for i, shard := range l.shards.list {
		for n, g := range m.grants {
			if l.overlap(shard, g.shard) {
				byShard[i] = append(byShard[i], n)
			}
		}
	}
	told := make(map[tenure]bool)
	for _, w := range l.writes {
		if !l.judgeGranted(m, w, byShard[w.shard], told) {
			l.judgeReleased(w, released[w.shard])
		}
	}
	for _, g := range m.grants {
		h := &m.handoffs[g.handoff]
		if h.InFlight > l.rules.InFlight {
			l.found.add(Violation{
				Kind: ManyInFlight, Shard: h.Shard, First: l.recordLine(g.recordWrite),
				Detail: fmt.Sprintf("%d writes of earlier tenures were in flight when the record changed, more than %d",
					h.InFlight, l.rules.InFlight),
			})
		}
	}
}

// judgeReleased checks that a write didn't come after the shard was left without a holder.
func (l *ledger) judgeReleased(w write, releases []release) {
	for _, r := range releases {
		// A restore of home may bring back what was released.
		if w.epoch <= r.epoch && w.start > r.end+l.rules.Skew.Microseconds() && r.era == l.era(r.home, w.start) {
			l.found.add(Violation{
				Kind: WriteAfterHandoff, Object: l.objects.list[w.object].String(), Shard: r.shard.String(),
				Detail: fmt.Sprintf("epoch %d wrote after the shard's record was left without a holder", w.epoch),
				First:  l.recordLine(r.recordWrite), Second: l.line(w),
			})
			return
		}
	}
}

// judgeGranted reports whether it found a write to be wrong.
func (l *ledger) judgeGranted(m *moves, w write, grants []int, told map[tenure]bool) bool {
	shard, skew := l.shards.list[w.shard], l.rules.Skew.Microseconds()
	key := tenure{w.shard, w.epoch}
	v := Violation{Object: l.objects.list[w.object].String(), Shard: shard.String(), Second: l.line(w)}
	if known := m.known[w.shard]; !m.granted[key] && w.epoch >= known && !told[key] {
		told[key] = true
		v.Kind, v.Detail = WriteWithoutGrant, fmt.Sprintf("no version of the shard's record gives epoch %d to anybody",
			w.epoch)
		l.found.add(v)
	}
	for _, n := range grants {
		g := &m.grants[n]
		switch {
		case g.state.Epoch > w.epoch && w.start > g.end+skew:
			v.Kind, v.Detail = WriteAfterHandoff, fmt.Sprintf("epoch %d wrote after %s was given to %s at epoch %d",
				w.epoch, g.shard, g.state.Holder, g.state.Epoch)
		case g.state.Epoch > w.epoch && w.end > g.start:
			// It was in flight while the record changed, so the order of commits isn't known.
			h := &m.handoffs[g.handoff]
			h.InFlight++
			h.InFlightMs = max(h.InFlightMs, float64(w.end-g.end)/1000)
			continue
		case g.state.Epoch == w.epoch && g.shard == shard && w.end+skew < g.start:
			v.Kind, v.Detail = WriteBeforeTenure, fmt.Sprintf("epoch %d wrote before the record gave it", w.epoch)
		case g.state.Epoch == w.epoch && g.shard == shard && g.state.Holder != l.replicas.list[w.replica]:
			if told[key] {
				continue
			}
			told[key] = true
			v.Kind, v.Detail = TwoHolders, fmt.Sprintf("epoch %d is %s's in the record, and %s writes with it",
				w.epoch, g.state.Holder, l.replicas.list[w.replica])
		default:
			continue
		}
		v.First = l.recordLine(g.recordWrite)
		l.found.add(v)
		return true
	}
	return false
}
