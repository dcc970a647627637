package plan

import (
	"cmp"
	"math"
	"slices"
)

// balanceLoads moves single shards, or exchanges two, from replicas that are
// loaded above the limit to the least loaded ones, in at most room moves. Counts
// stay balanced: a single shard moves only where either replica may have the odd
// one. No shard moves twice, so the moves may be made in any order, though an
// exchange that is half made leaves the counts unbalanced and is not split up.
func (b *board) balanceLoads(imbalance float64, room int) []Move {
	if imbalance <= 0 || math.IsNaN(imbalance) {
		return nil
	}
	l := newLoads(b)
	if l.mean == 0 || l.peak() <= l.mean*(1+imbalance) {
		return nil
	}
	var moves []Move
	limit := l.mean * (1 + imbalance/2)
	worthIt := l.mean * imbalance / 10
	for len(moves) < room {
		step, ok := l.nextStep(limit, worthIt, room-len(moves))
		if !ok {
			break
		}
		moves = append(moves, l.apply(step)...)
	}
	return moves
}

// loads is the candidates' loads while shards are moved for load.
type loads struct {
	board *board
	mean  float64 // per unit of weight
	total []float64
	count []int
	// free is, by replica, what may move away and hasn't been moved, heaviest first.
	free [][]*boardShard
	// order is the candidates, most loaded first.
	order []int32
	// stuck is the replicas that no step was found for; the next plan tries them
	// again. A shard that is too heavy for any place would otherwise be tried in vain
	// before every step.
	stuck map[int32]bool
}

// step is a shard to move and, if it is an exchange, one to move back.
type step struct {
	away, back *boardShard
	cool       int32   // where away goes
	peak       float64 // the higher load of the two replicas afterwards
}

func newLoads(b *board) *loads {
	l := &loads{board: b, total: make([]float64, len(b.replicas)), count: make([]int, len(b.replicas))}
	l.stuck = make(map[int32]bool)
	l.free = make([][]*boardShard, len(b.replicas))
	var sum float64
	for i := range b.shards {
		s := &b.shards[i]
		sum += s.load
		l.total[s.to] += s.load
		l.count[s.to]++
		if !s.fixed {
			l.free[s.to] = append(l.free[s.to], s)
		}
	}
	weight := 0
	for i, r := range b.replicas {
		slices.SortStableFunc(l.free[i], heaviestFirst)
		if r.candidate {
			weight += r.weight
			l.order = append(l.order, int32(i))
		}
	}
	l.mean = sum / float64(weight)
	slices.SortFunc(l.order, l.compare)
	return l
}

func heaviestFirst(x, y *boardShard) int { return cmp.Compare(y.load, x.load) }

func (l *loads) of(replica int32) float64 {
	return l.total[replica] / float64(l.board.replicas[replica].weight)
}

func (l *loads) peak() float64 { return l.of(l.order[0]) }

func (l *loads) compare(x, y int32) int {
	return cmp.Or(cmp.Compare(l.of(y), l.of(x)), cmp.Compare(x, y))
}

// nextStep finds a step for the most loaded replica that has one.
func (l *loads) nextStep(limit, worthIt float64, room int) (step, bool) {
	for _, hot := range l.order {
		if l.of(hot) <= limit {
			break
		}
		if l.stuck[hot] {
			continue
		}
		if s, ok := l.stepFrom(hot, l.of(hot)-worthIt, room); ok {
			return s, true
		}
		l.stuck[hot] = true
	}
	return step{}, false
}

// partners is how many of the least loaded replicas are tried for a loaded one.
const partners = 16

// stepFrom finds a step that leaves the loaded replica and its partner with at
// most that peak. A single shard that does is preferred to an exchange, which
// costs two moves.
func (l *loads) stepFrom(hot int32, most float64, room int) (step, bool) {
	tried := 0
	for _, cool := range slices.Backward(l.order) {
		if tried == partners || l.of(cool) >= l.mean {
			break
		}
		if !l.board.replicas[cool].receiver {
			continue
		}
		tried++
		if s := l.single(hot, cool); s.away != nil && s.peak <= most {
			return s, true
		}
		if s := l.exchange(hot, cool); s.away != nil && s.peak <= most && room >= 2 {
			return s, true
		}
	}
	return step{}, false
}

// single is the best shard to move without one in return.
func (l *loads) single(hot, cool int32) step {
	best := step{peak: math.Inf(1)}
	giver, taker := l.board.replicas[hot].part, l.board.replicas[cool].part
	if !giver.loose || !taker.loose || l.count[hot] <= giver.floor || l.count[cool] > taker.floor {
		return best
	}
	for _, s := range l.free[hot] {
		if peak := l.peakAfter(hot, cool, s.load); peak < best.peak {
			best = step{away: s, cool: cool, peak: peak}
		}
	}
	return best
}

// exchange is the best pair of shards to swap. The peak falls and then rises
// with the load that is shifted, so each shard's best partner is one of the two
// around the ideal shift.
func (l *loads) exchange(hot, cool int32) step {
	best := step{peak: math.Inf(1)}
	if !l.board.replicas[hot].receiver {
		return best // it may not get the one in return
	}
	hotWeight, coolWeight := float64(l.board.replicas[hot].weight), float64(l.board.replicas[cool].weight)
	ideal := (l.total[hot]*coolWeight - l.total[cool]*hotWeight) / (hotWeight + coolWeight)
	for _, away := range l.free[hot] {
		at, _ := slices.BinarySearchFunc(l.free[cool], away.load-ideal, func(s *boardShard, load float64) int {
			return cmp.Compare(load, s.load)
		})
		for _, back := range l.free[cool][max(0, at-1):min(len(l.free[cool]), at+1)] {
			if peak := l.peakAfter(hot, cool, away.load-back.load); peak < best.peak {
				best = step{away: away, back: back, cool: cool, peak: peak}
			}
		}
	}
	return best
}

func (l *loads) peakAfter(hot, cool int32, shift float64) float64 {
	return max(
		(l.total[hot]-shift)/float64(l.board.replicas[hot].weight),
		(l.total[cool]+shift)/float64(l.board.replicas[cool].weight),
	)
}

// apply makes the step and lists its moves.
func (l *loads) apply(s step) []Move {
	hot, cool := s.away.to, s.cool
	l.order = slices.DeleteFunc(l.order, func(r int32) bool { return r == hot || r == cool })
	moves := []Move{l.shift(s.away, hot, cool)}
	if s.back != nil {
		moves = append(moves, l.shift(s.back, cool, hot))
	}
	for _, r := range []int32{hot, cool} {
		at, _ := slices.BinarySearchFunc(l.order, r, l.compare)
		l.order = slices.Insert(l.order, at, r)
	}
	return moves
}

func (l *loads) shift(s *boardShard, from, to int32) Move {
	l.total[from] -= s.load
	l.total[to] += s.load
	l.count[from]--
	l.count[to]++
	l.free[from] = slices.DeleteFunc(l.free[from], func(other *boardShard) bool { return other == s })
	s.to = to
	return l.board.move(s, Load)
}
