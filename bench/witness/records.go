package witness

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// recordWrite is one committed write to a shard's record.
type recordWrite struct {
	span
	rv     uint64
	name   string // the record's
	place  place
	state  ShardState
	writer string
	verb   string
}

// leaseLife is what the log tells about one incarnation's Lease.
type leaseLife struct {
	leaving bool
}

// coordWrite is one committed coordination write of a replica.
type coordWrite struct {
	replica string
	at      int64
	// stir marks writes that end the steady state around them: a shard on the move, a replica that comes or goes.
	stir bool
}

func (l *ledger) addRecord(e *Event, a agent) {
	if e.outcome() != committed {
		if e.outcome() == rejected {
			l.recordRefused++
		} else if e.Name != "" {
			l.recordUnknown[e.Name] = append(l.recordUnknown[e.Name], e.Received)
		}
		return
	}
	who := a.Replica
	if who == "" {
		who = e.User
	}
	if a.Tenure {
		l.coords = append(l.coords, coordWrite{replica: who, at: e.Completed, stir: e.Verb != "update" && e.Verb != "patch"})
	}
	if e.Verb == "delete" || e.Verb == "deletecollection" {
		return
	}
	if e.Body == nil || e.Body.Requested || e.Body.Shard == nil {
		l.recordBodiless++
		return
	}
	st := *e.Body.Shard
	shard := Shard{st.Cluster, st.Prefix}
	l.records[shard] = append(l.records[shard], recordWrite{
		span: span{e.Received, e.Completed}, rv: e.Body.ResourceVersion, name: e.Name,
		place: l.place(e), state: st, writer: who, verb: e.Verb,
	})
}

func (l *ledger) addLease(e *Event, a agent) {
	if e.outcome() != committed {
		return
	}
	if e.Body != nil && e.Body.Leaving {
		l.leases[e.Name] = leaseLife{leaving: true}
	}
	if !a.Tenure {
		return
	}
	who := a.Replica
	if who == "" {
		who = e.Name
	}
	l.coords = append(l.coords, coordWrite{replica: who, at: e.Completed, stir: e.Verb == "create" || e.Verb == "delete"})
}

// grant is the write that began a tenure.
type grant struct {
	shard Shard
	recordWrite
}

// moves walks each record's history: who held it, since which write, and what the changes cost.
type moves struct {
	l        *ledger
	handoffs []Handoff
	grants   []grant
	restored bool
}

func (l *ledger) history() *moves {
	m := &moves{l: l}
	for _, shard := range sortedShards(l.records) {
		m.record(shard, m.ordered(l.records[shard]))
	}
	slices.SortStableFunc(m.handoffs, func(a, b Handoff) int { return a.Time.Compare(b.Time) })
	return m
}

func sortedShards(records map[Shard][]recordWrite) []Shard {
	var shards []Shard
	for shard := range records {
		shards = append(shards, shard)
	}
	slices.SortFunc(shards, func(a, b Shard) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Prefix, b.Prefix))
	})
	return shards
}

// ordered sorts a record's writes as they were committed. resourceVersions tell exactly, unless the home cluster was
// restored from a backup in between: then they start again, and times have to do.
func (m *moves) ordered(ws []recordWrite) []recordWrite {
	byTime := func(a, b recordWrite) int { return cmp.Compare(a.end, b.end) }
	slices.SortStableFunc(ws, byTime)
	slices.SortStableFunc(ws, func(a, b recordWrite) int { return cmp.Compare(a.rv, b.rv) })
	for i := 1; i < len(ws); i++ {
		// Equal versions are one state, answered twice.
		if ws[i-1].start > ws[i].end && ws[i-1].rv != ws[i].rv {
			m.restored = true
			slices.SortStableFunc(ws, byTime)
			break
		}
	}
	return ws
}

func (m *moves) record(shard Shard, ws []recordWrite) {
	l := m.l
	var was ShardState
	var held recordWrite // the grant of the present tenure
	holders := make(map[uint64]recordWrite)
	last, pending := -1, 0
	for i, w := range ws {
		if i > 0 && w.state.Epoch < was.Epoch {
			l.found.add(Violation{
				Kind: RecordEpochFell, Shard: shard.String(),
				Detail: fmt.Sprintf("the record went from epoch %d to %d", was.Epoch, w.state.Epoch),
				First:  l.recordLine(ws[i-1]), Second: l.recordLine(w),
			})
		}
		moving := i == 0 || w.state.Assignee != was.Assignee || w.state.Warm != was.Warm ||
			w.state.Holder != was.Holder || w.state.Epoch != was.Epoch || w.state.Phase != was.Phase
		if moving {
			m.stir(w)
		}
		if first, ok := holders[w.state.Epoch]; ok && w.state.Holder != "" && first.state.Holder != w.state.Holder {
			l.found.add(Violation{
				Kind: TwoHolders, Shard: shard.String(),
				Detail: fmt.Sprintf("the record gives epoch %d to %s and to %s", w.state.Epoch, first.state.Holder, w.state.Holder),
				First:  l.recordLine(first), Second: l.recordLine(w),
			})
		}
		// Only a holder that the log saw taking over is a grant; one that held before the log began is not.
		changed := w.state.Holder != "" && (w.state.Holder != was.Holder || w.state.Epoch != was.Epoch)
		if w.state.Holder != "" {
			if _, ok := holders[w.state.Epoch]; !ok {
				holders[w.state.Epoch] = w
			}
		}
		switch {
		case changed && (i > 0 || w.verb == "create"):
			h := m.handoff(shard, held.state.Holder, w)
			h.Writes = pending + 1
			m.handoffs = append(m.handoffs, h)
			began := w
			if i > 0 {
				began.start = l.earliest(ws[i-1], w)
			}
			m.grants = append(m.grants, grant{shard, began})
			last, pending = len(m.handoffs)-1, 0
		case moving && last >= 0 && (w.state.Assignee == w.state.Holder || w.state.Assignee == ""):
			// What tidies up after a change belongs to that change.
			m.handoffs[last].Writes++
		case moving:
			pending++
		}
		if w.state.Holder != "" {
			held = w
		}
		was = w.state
	}
}

// stir marks the coordination write that moved a shard.
// earliest is when the change that w is the first to show can have been committed at the soonest. A request that was
// answered with a timeout may have been the one that made it; then w only carries it along.
func (l *ledger) earliest(before, w recordWrite) int64 {
	soonest := w.start
	for _, arrived := range l.recordUnknown[w.name] {
		if arrived > before.start {
			soonest = min(soonest, arrived)
		}
	}
	return soonest
}

func (m *moves) stir(w recordWrite) {
	m.l.coords = append(m.l.coords, coordWrite{at: w.end, stir: true})
}

// handoff names the change. The writer's own word for its cause is taken where the record has it; else what the
// record and the Lease show: a claim has no former holder, and only the former holder itself hands over alive.
func (m *moves) handoff(shard Shard, from string, w recordWrite) Handoff {
	h := Handoff{Shard: shard.String(), From: from, To: w.state.Holder, Epoch: w.state.Epoch, Time: instant(w.end)}
	switch {
	case from == "" || w.state.Move == "join":
		h.Kind = "claim"
	case w.state.Move != "":
		h.Kind = w.state.Move
	case w.writer != from:
		h.Kind = "crash"
	case m.l.leases[from].leaving:
		h.Kind = "exit"
	default:
		h.Kind = "planned"
	}
	return h
}

func (l *ledger) recordLine(w recordWrite) *Line {
	line := l.lineAt(w.place, w.start, w.verb)
	line.Epoch, line.Replica = w.state.Epoch, w.writer
	return line
}

// judgeGrants holds each write against the record: nobody writes before its grant, after a later one, or without one.
func (l *ledger) judgeGrants(m *moves) {
	if len(m.grants) == 0 {
		return
	}
	byShard := make([][]grant, len(l.shards.list))
	for i, shard := range l.shards.list {
		for _, g := range m.grants {
			if shard.Overlaps(g.shard) {
				byShard[i] = append(byShard[i], g)
			}
		}
	}
	skew := l.rules.Skew.Microseconds()
	told := make(map[tenure]bool)
	for _, w := range l.writes {
		shard := l.shards.list[w.shard]
		v := Violation{Object: l.objects.list[w.object].String(), Shard: shard.String()}
		for _, g := range byShard[w.shard] {
			switch {
			case g.state.Epoch > w.epoch && w.start > g.end+skew:
				v.Kind, v.Detail = WriteAfterHandover, fmt.Sprintf("epoch %d wrote after %s was given to %s at epoch %d",
					w.epoch, g.shard, g.state.Holder, g.state.Epoch)
			case g.state.Epoch == w.epoch && g.shard == shard && w.end+skew < g.start:
				v.Kind, v.Detail = WriteBeforeTenure, fmt.Sprintf("epoch %d wrote before the record gave it", w.epoch)
			case g.state.Epoch == w.epoch && g.shard == shard && g.state.Holder != l.replicas.list[w.replica]:
				key := tenure{w.shard, w.epoch}
				if told[key] {
					continue
				}
				told[key] = true
				v.Kind, v.Detail = TwoHolders, fmt.Sprintf("epoch %d is %s's in the record, and %s writes with it",
					w.epoch, g.state.Holder, l.replicas.list[w.replica])
			default:
				continue
			}
			v.First, v.Second = l.recordLine(g.recordWrite), l.line(w)
			l.found.add(v)
			break
		}
	}
}

// sumMoves fills in the gaps and the totals, and judges I5.
func (l *ledger) sumMoves(m *moves, tenures map[tenure]*tenureWrites) MoveStats {
	st := MoveStats{Rejected: l.recordRefused, Gaps: make(map[string]Spread)}
	gaps := make(map[string][]int64)
	held := make(map[string]uint64) // the epoch before, by shard
	for i := range m.handoffs {
		h := &m.handoffs[i]
		if gap, ok := l.gap(h, held[h.Shard], tenures); ok {
			gaps[h.Kind] = append(gaps[h.Kind], gap)
			ms := float64(gap) / 1000
			h.GapMs = &ms
		}
		held[h.Shard] = h.Epoch
		switch h.Kind {
		case "planned":
			st.Planned++
		case "exit":
			st.Exit++
		case "crash":
			st.Crash++
		default:
			st.Claim++
			continue
		}
		st.Writes += h.Writes
		st.MaxWrites = max(st.MaxWrites, h.Writes)
	}
	for kind, g := range gaps {
		st.Gaps[kind] = spread(g)
	}
	n := st.Planned + st.Exit + st.Crash
	if n > 0 {
		st.PerMove = float64(st.Writes) / float64(n)
	}
	if st.Writes > 4*n {
		l.found.add(Violation{Kind: CostlyMoves, Detail: fmt.Sprintf("%d moves took %d writes", n, st.Writes)})
	}
	return st
}

func (l *ledger) gap(h *Handoff, before uint64, tenures map[tenure]*tenureWrites) (us int64, ok bool) {
	shard, _ := parseShard(h.Shard)
	id, known := l.shards.ids[shard]
	if !known || before == 0 {
		return 0, false
	}
	old, now := tenures[tenure{id, before}], tenures[tenure{id, h.Epoch}]
	if old == nil || now == nil {
		return 0, false
	}
	return l.writes[now.first].start - l.writes[old.last].end, true
}
