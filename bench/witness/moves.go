package witness

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Step is what one write to a Shard record does for a move.
type Step string

// The steps.
const (
	StepPlan     Step = "plan"     // the assignee changes
	StepWarm     Step = "warm"     // the assignee announces that its caches are filled
	StepWithdraw Step = "withdraw" // no replica is warm any more, and the holder stays
	StepRelease  Step = "release"  // the shard has no holder from now on
	StepHandoff  Step = "handoff"  // the holder changes
	StepReport   Step = "report"   // size and load
	StepOther    Step = "other"    // the record is created, or a change that no move needs
)

// writesPerMove is how many writes a move may take (I5).
const writesPerMove = 4

// stepOf compares two versions of a record.
func stepOf(was ShardState, w recordWrite, first bool) Step {
	now := w.state
	switch {
	case first && w.verb == "create":
		return StepOther
	case now.Holder != was.Holder && now.Holder == "":
		return StepRelease
	case now.Holder != was.Holder || now.Epoch != was.Epoch:
		return StepHandoff
	case now.Assignee != was.Assignee:
		return StepPlan
	case now.Warm != was.Warm && now.Warm == "":
		return StepWithdraw
	case now.Warm != was.Warm:
		return StepWarm
	case now.Objects != was.Objects || now.LoadMilli != was.LoadMilli:
		return StepReport
	}
	return StepOther
}

// attempt is a move from its plan to the change of holder, or to the change of plan that calls it off, with the cleanup
// that follows.
type attempt struct {
	handoff     int // index, -1 before the handoff
	steps       map[Step]int
	writes      int
	first, last recordWrite
}

// tally assigns a record's writes to the moves that they serve.
type tally struct {
	m          *moves
	open, done *attempt
}

// add adds a write. next says that it certainly replaced the version before in the log.
func (t *tally) add(shard Shard, step Step, was ShardState, w recordWrite, next bool) {
	back := w.state.Assignee == w.state.Holder || w.state.Assignee == ""
	if t.open != nil {
		released := t.open.steps[StepRelease] > 0
		another := step == StepPlan && !back || released && step == StepHandoff && w.state.Holder != was.Assignee
		if another && (!released || t.m.l.givesUp(was.Assignee, was.Cluster, t.open.first.start, w)) {
			t.finish(shard, -1)
		}
	}
	// A replica's write that no move needs counts for the move that it comes in or after. Users' writes, such as pins,
	// don't. Nor do those to a record without a holder: that is how one is retired. One may be needed to take back what
	// no line shows.
	needless := step == StepOther && w.replica && w.state.Holder != "" && next
	switch {
	case step == StepOther && !needless, step == StepReport && t.open == nil, needless && t.open == nil && t.done == nil:
		return
	case t.open == nil && t.done != nil && (needless || step == StepWithdraw || step == StepPlan && back):
		t.done.add(step, w)
		return
	case t.open == nil:
		t.open = &attempt{handoff: -1, steps: make(map[Step]int), first: w}
	}
	t.open.add(step, w)
	switch {
	case step == StepHandoff && was != (ShardState{}):
		t.finish(shard, len(t.m.handoffs)-1)
	case step == StepHandoff: // the log begins with this version
		t.open = nil
	case step == StepWithdraw, step == StepPlan && back:
		// the move is called off; a new plan, or new caches, is another move
		t.finish(shard, -1)
	}
}

func (a *attempt) add(step Step, w recordWrite) {
	a.steps[step]++
	a.writes++
	a.last = w
}

// finish ends the open attempt. The writes of the one before it are complete by now.
func (t *tally) finish(shard Shard, handoff int) {
	t.settle(shard)
	t.open.handoff = handoff
	t.done, t.open = t.open, nil
}

func (t *tally) close(shard Shard) {
	t.settle(shard)
	t.done = nil
}

func (t *tally) settle(shard Shard) {
	a := t.done
	if a == nil {
		return
	}
	what := "a move that was called off"
	if a.handoff >= 0 {
		h := &t.m.handoffs[a.handoff]
		h.Writes, h.Steps = a.writes, a.steps
		what = fmt.Sprintf("the move to epoch %d (%s)", h.Epoch, h.Kind)
	} else {
		t.m.stats.CalledOff++
		t.m.stats.CalledOffWrites += a.writes
	}
	for step, n := range a.steps {
		t.m.stats.Steps[step] += n
	}
	if a.writes > writesPerMove {
		var parts []string
		for _, step := range slices.Sorted(maps.Keys(a.steps)) {
			parts = append(parts, fmt.Sprintf("%s %d", step, a.steps[step]))
		}
		t.m.l.found.add(Violation{
			Kind: CostlyMove, Shard: shard.String(), First: t.m.l.recordLine(a.first), Second: t.m.l.recordLine(a.last),
			Detail: fmt.Sprintf("%s took %d writes: %v", what, a.writes, parts),
		})
	}
}

// demand is a key that had to be served: when it became due, and when it was first served.
type demand struct{ due, served int64 }

// demands lists them by cluster and slot, sorted by when they were served.
func (l *ledger) demands(lives []*atLife) map[string]*[256][]demand {
	all := make(map[string]*[256][]demand)
	add := func(cluster string, slot int, d demand) {
		if all[cluster] == nil {
			all[cluster] = new([256][]demand)
		}
		all[cluster][slot] = append(all[cluster][slot], d)
	}
	for _, life := range lives {
		due, ok := life.dueAt()
		if ok && life.uid != "" && due <= min(l.to, life.deleted) {
			if end, known := life.waited(); known {
				add(l.objects.list[life.object].cluster, audit.SlotOf(life.uid), demand{due, end})
			}
		}
	}
	for _, ends := range l.copyWrites {
		slices.Sort(ends)
	}
	for _, c := range l.changes {
		d, ends := demand{c.at, never}, l.copyWrites[c.uid]
		if i, _ := slices.BinarySearch(ends, c.at); i < len(ends) {
			d.served = ends[i]
		}
		add(c.cluster, audit.SlotOf(c.uid), d)
	}
	for _, slots := range all {
		for _, ds := range slots {
			slices.SortFunc(ds, func(a, b demand) int { return cmp.Compare(a.served, b.served) })
		}
	}
	return all
}

// sum fills in gaps and totals.
func (m *moves) sum(tenures map[tenure]*tenureWrites, demands map[string]*[256][]demand) MoveStats {
	st := m.stats
	gaps, unserved := map[protocol.MoveKind][]time.Duration{}, map[protocol.MoveKind][]time.Duration{}
	before := make(map[Shard]uint64) // the previous epoch
	served := make(map[Shard]uint64) // the last epoch with any write: keys left since then wait
	for _, g := range m.grants {
		h := &m.handoffs[g.handoff]
		m.gap(g, h, before[g.shard], served[g.shard], tenures, demands)
		before[g.shard] = h.Epoch
		if tenures[tenure{m.l.shards.ids[g.shard], h.Epoch}] != nil {
			served[g.shard] = h.Epoch
		}
		row := st.Kinds[h.Kind]
		row.N++
		row.Due += h.Due
		if h.GapMs != nil {
			gaps[h.Kind] = append(gaps[h.Kind], time.Duration(*h.GapMs*1e6))
		}
		if h.UnservedMs != nil {
			unserved[h.Kind] = append(unserved[h.Kind], time.Duration(*h.UnservedMs*1e6))
		}
		row.Gap, row.Unserved = SpreadOf(gaps[h.Kind]), SpreadOf(unserved[h.Kind])
		st.Kinds[h.Kind] = row
		st.InFlight += h.InFlight
		st.MaxInFlight = max(st.MaxInFlight, h.InFlight)
		st.InFlightMs = max(st.InFlightMs, h.InFlightMs)
		if h.Kind != protocol.Join {
			st.Writes += h.Writes
			st.MaxWrites = max(st.MaxWrites, h.Writes)
		}
	}
	st.Planned, st.Exit, st.Crash, st.Join = st.Kinds[protocol.Planned].N, st.Kinds[protocol.Exit].N,
		st.Kinds[protocol.Crash].N,
		st.Kinds[protocol.Join].N
	if n := len(m.handoffs) - st.Join; n > 0 {
		st.PerMove = float64(st.Writes) / float64(n)
	}
	return st
}

// gap fills in the time from the old tenure's last write to the new one's first. It also counts the keys that
// waited at its end. They may have waited since an earlier tenure, if the old one wrote nothing.
func (m *moves) gap(g grant, h *Handoff, before, served uint64, tenures map[tenure]*tenureWrites,
	demands map[string]*[256][]demand) {
	id := m.l.shards.ids[g.shard]
	old, now := tenures[tenure{id, served}], tenures[tenure{id, h.Epoch}]
	if now == nil {
		return
	}
	to := m.l.writes[now.first].start
	from := g.start // if the old tenure wrote nothing, all that is known is that it was over then
	if served != 0 && old != nil {
		from = m.l.writes[old.last].end
		if before == served {
			h.GapMs = new(float64(to-from) / 1000)
		}
	}
	since := to
	if slots := demands[m.l.cluster(g.shard.Cluster)]; slots != nil {
		first, end := g.shard.Slots()
		for _, ds := range slots[first:end] {
			i, _ := slices.BinarySearchFunc(ds, to, func(d demand, t int64) int { return cmp.Compare(d.served, t) })
			for _, d := range ds[i:] {
				if d.due < to {
					h.Due++
					since = min(since, d.due)
				}
			}
		}
	}
	if h.Due > 0 && served != 0 {
		h.UnservedMs = new(float64(to-max(from, since)) / 1000)
	}
}
