package witness

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// tenure identifies a tenure (shard, epoch) as its writes show it.
type tenure struct {
	shard int32
	epoch uint64
}

type tenureWrites struct {
	first    int32 // index of the earliest write
	last     int32 // index of the write that was answered last
	replicas []int32
}

// judgeTenures checks I1 and I2 on the writes. keyOf gives each object's key: an At's Pods have their At's key.
func (l *ledger) judgeTenures(keyOf []int32) map[tenure]*tenureWrites {
	overlaps := l.overlaps()
	s := sweep{l: l, overlaps: overlaps, peaks: make([]peak, len(l.shards.list))}
	order := make([]int32, len(l.writes))
	for i := range order {
		order[i] = int32(i)
	}
	byObject := func(w write) int32 { return w.object }
	byKey := func(w write) int32 { return keyOf[w.object] }
	clusters := table[string]{}
	for _, shard := range l.shards.list {
		clusters.id(l.cluster(shard.Cluster))
	}
	byCluster := func(w write) int32 { return clusters.ids[l.cluster(l.shards.list[w.shard].Cluster)] }

	s.pass(order, byObject, FallingEpoch, true, 0)
	l.stats.ConcurrentKeys = s.pass(order, byKey, InterleavedKey, false, 0)
	l.stats.ConcurrentShards = s.pass(order, byCluster, InterleavedShard, false, l.rules.Skew.Microseconds())

	tenures := l.tenures()
	l.judgeHolders(tenures, overlaps)
	l.stats.Judged = len(l.writes)
	l.stats.Tenures = len(tenures)
	l.stats.Shards = len(l.shards.list)
	return tenures
}

// overlaps lists, for each shard, the shards that share a slot with it, including itself. Epochs of other shards can't
// be compared: epochs grow within each slot, also over splits and merges, and are independent between slots.
func (l *ledger) overlaps() [][]int32 {
	all := make([][]int32, len(l.shards.list))
	for i, a := range l.shards.list {
		for j, b := range l.shards.list {
			if l.overlap(a, b) {
				all[i] = append(all[i], int32(j))
			}
		}
	}
	return all
}

// peak is what is known of a shard's writes with a higher epoch than the one being judged.
type peak struct {
	ends   int32 // index of the write that was answered first
	starts int64 // when the earliest one began
	rv     int32 // the write with the lowest resourceVersion, -1 when none is known
}

// sweep walks runs of writes from the highest epoch down.
type sweep struct {
	l        *ledger
	overlaps [][]int32
	peaks    []peak
	touched  []int32
	set      []bool
	// told are writes that a finer pass has listed. Coarser passes only count them, and list others.
	told map[int32]bool
}

// pass judges all writes in groups. It returns the number of writes that overlapped in time with one of a higher epoch.
func (s *sweep) pass(order []int32, group func(write) int32, kind Kind, sameObject bool, skew int64) (concurrent int) {
	ws := s.l.writes
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(group(ws[a]), group(ws[b])), cmp.Compare(ws[b].epoch, ws[a].epoch),
			cmp.Compare(ws[a].start, ws[b].start), cmp.Compare(a, b))
	})
	for run := range runs(order, func(a, b int32) bool { return group(ws[a]) == group(ws[b]) }) {
		if ws[run[0]].epoch != ws[run[len(run)-1]].epoch {
			concurrent += s.run(run, kind, sameObject, skew)
		}
	}
	return concurrent
}

func (s *sweep) run(run []int32, kind Kind, sameObject bool, skew int64) (concurrent int) {
	ws := s.l.writes
	if s.set == nil {
		s.set = make([]bool, len(s.peaks))
		s.told = make(map[int32]bool)
	}
	for equal := range runs(run, func(a, b int32) bool { return ws[a].epoch == ws[b].epoch }) {
		for _, i := range equal {
			inFlight, hi := s.above(i, sameObject, skew)
			if hi >= 0 {
				s.report(kind, i, hi)
			} else if inFlight {
				concurrent++
			}
		}
		for _, i := range equal {
			s.raise(i)
		}
	}
	for _, shard := range s.touched {
		s.set[shard] = false
	}
	s.touched = s.touched[:0]
	return concurrent
}

// above finds a write of a higher epoch that was certainly committed before write i. Times prove that if it had been
// answered before i arrived. resourceVersions prove it for two writes to one object.
func (s *sweep) above(i int32, sameObject bool, skew int64) (inFlight bool, hi int32) {
	w := s.l.writes[i]
	for _, shard := range s.overlaps[w.shard] {
		if !s.set[shard] {
			continue
		}
		p := s.peaks[shard]
		if w.start > s.l.writes[p.ends].end+skew {
			return false, p.ends
		}
		// Only for requests that were in flight together, since a restore from a backup lowers versions.
		if sameObject && w.rv != 0 && p.rv >= 0 && w.rv > s.l.writes[p.rv].rv && w.end > s.l.writes[p.rv].start {
			return false, p.rv
		}
		inFlight = inFlight || w.end > p.starts
	}
	return inFlight, -1
}

func (s *sweep) raise(i int32) {
	w := s.l.writes[i]
	if !s.set[w.shard] {
		s.set[w.shard] = true
		s.touched = append(s.touched, w.shard)
		s.peaks[w.shard] = peak{ends: i, starts: w.start, rv: -1}
	}
	p := &s.peaks[w.shard]
	if w.end < s.l.writes[p.ends].end {
		p.ends = i
	}
	p.starts = min(p.starts, w.start)
	if w.rv != 0 && (p.rv < 0 || w.rv < s.l.writes[p.rv].rv) {
		p.rv = i
	}
}

func (s *sweep) report(kind Kind, lo, hi int32) {
	l := s.l
	if s.told[lo] {
		l.found.counts[kind]++
		return
	}
	s.told[lo] = true
	w, h := l.writes[lo], l.writes[hi]
	l.found.add(Violation{
		Kind: kind, Object: l.objects.list[w.object].String(), Shard: l.shards.list[w.shard].String(),
		Detail: fmt.Sprintf("epoch %d wrote after epoch %d had (%s)", w.epoch, h.epoch, l.objects.list[h.object]),
		First:  l.line(h), Second: l.line(w),
	})
}

func (l *ledger) tenures() map[tenure]*tenureWrites {
	all := make(map[tenure]*tenureWrites)
	for i, w := range l.writes {
		key := tenure{w.shard, w.epoch}
		t := all[key]
		if t == nil {
			t = &tenureWrites{first: int32(i), last: int32(i)}
			all[key] = t
		}
		if w.start < l.writes[t.first].start {
			t.first = int32(i)
		}
		if w.end > l.writes[t.last].end {
			t.last = int32(i)
		}
		if !slices.Contains(t.replicas, w.replica) {
			if len(t.replicas) > 0 {
				l.twoHolders(l.writes[t.first], w)
			}
			t.replicas = append(t.replicas, w.replica)
		}
	}
	return all
}

// judgeHolders looks for two replicas under one epoch in shards that share a slot.
func (l *ledger) judgeHolders(tenures map[tenure]*tenureWrites, overlaps [][]int32) {
	for _, key := range slices.SortedFunc(maps.Keys(tenures), func(a, b tenure) int {
		return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.epoch, b.epoch))
	}) {
		t := tenures[key]
		for _, other := range overlaps[key.shard] {
			o := tenures[tenure{other, key.epoch}]
			if other <= key.shard || o == nil {
				continue
			}
			if a, b := l.writes[t.first], l.writes[o.first]; a.replica != b.replica {
				l.twoHolders(a, b)
			}
		}
	}
}

func (l *ledger) twoHolders(a, b write) {
	l.found.add(Violation{
		Kind: TwoHolders, Shard: l.shards.list[b.shard].String(),
		Detail: fmt.Sprintf("epoch %d is used by %s and by %s", b.epoch,
			l.replicas.list[a.replica], l.replicas.list[b.replica]),
		First: l.line(a), Second: l.line(b),
	})
}
