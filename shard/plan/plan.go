package plan

import (
	"cmp"
	"slices"
)

// Plan returns the moves to make now, most urgent first. After them every shard is where it should be, or on its way
// there. It returns only changes. It leaves out an orphan whose assignee is already a candidate, and a shard whose
// cluster no candidate can serve. Without a candidate it returns nil.
//
// All moves of one plan may be made at once and in any order. Once they have
// been made, and while nothing else changes, repeated planning ends with an empty
// plan.
func Plan(shards []Shard, replicas []Replica) []Move {
	b := newBoard(shards, replicas)
	if b.candidates == 0 {
		return nil
	}
	b.balanceCounts()
	return b.moves()
}

// moves lists the changes in order of urgency: orphans, which no replica serves; moves to call off, whose holders would
// otherwise drain for a successor that won't come; shards of leaving replicas, then of unfit ones; moves under way that
// a pin redirects; and last the moves that can wait: pins, then shards of the fullest replicas.
func (b *board) moves() []Move {
	var orphans, calledOff, leaving, elsewhere, turned []Move
	var due []*boardShard
	for i := range b.shards {
		s := &b.shards[i]
		switch {
		case s.to == s.assigned:
		case s.holder == nowhere:
			orphans = append(orphans, b.move(s, Orphan))
		case s.holder == s.to:
			calledOff = append(calledOff, b.move(s, CalledOff))
		case b.replicas[s.holder].Leaving:
			leaving = append(leaving, b.move(s, Leaving))
		case b.fitness(s, s.holder) == Unfit:
			elsewhere = append(elsewhere, b.move(s, Elsewhere))
		case s.inMotion:
			turned = append(turned, b.move(s, Pin))
		default:
			due = append(due, s)
		}
	}
	slices.SortStableFunc(due, func(x, y *boardShard) int { return cmp.Compare(y.excess, x.excess) })
	moves := slices.Concat(orphans, calledOff, leaving, elsewhere, turned)
	for _, s := range due {
		why := Balance
		if s.excess == pinned {
			why = Pin
		}
		moves = append(moves, b.move(s, why))
	}
	return moves
}

func (b *board) move(s *boardShard, why Reason) Move {
	move := Move{Shard: s.ID, To: b.replicas[s.to].ID, Reason: why}
	if s.holder != nowhere {
		move.From = b.replicas[s.holder].ID
	}
	return move
}
