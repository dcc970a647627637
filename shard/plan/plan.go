package plan

import (
	"cmp"
	"math"
	"slices"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// Target says where every shard should end. Without a candidate, every shard
// stays with the live replica it is with or on its way to, and orphans are left out.
func Target(shards []Shard, replicas []Replica, lim Limits) map[keyspace.ShardID]Incarnation {
	b := newBoard(shards, replicas, lim)
	if b.anyCandidate {
		b.balanceCounts()
		if !b.countsUnsettled() {
			b.balanceLoads(lim.Imbalance, math.MaxInt)
		}
	}
	target := make(map[keyspace.ShardID]Incarnation, len(b.shards))
	for i := range b.shards {
		if to := b.shards[i].to; to != nowhere {
			target[b.shards[i].ID] = b.replicas[to].ID
		}
	}
	return target
}

// Plan is the moves to make now, most urgent first: those towards [Target] that
// the limits allow. It holds only changes: an orphan whose assignee is a candidate
// already is not in it, and is still waiting to be granted to that assignee.
//
// All moves of one plan may be made at once and in any order. Once they have
// been made, and while nothing else changes, repeated planning ends with an empty
// plan.
func Plan(shards []Shard, replicas []Replica, lim Limits) []Move {
	b := newBoard(shards, replicas, lim)
	if !b.anyCandidate {
		return nil
	}
	b.balanceCounts()
	moves, room := b.urgentMoves(lim.MaxInMotion)
	if b.countsUnsettled() {
		waiting := b.waitingMoves()
		return append(moves, waiting[:min(len(waiting), room)]...)
	}
	return append(moves, b.balanceLoads(lim.Imbalance, room)...)
}

// urgentMoves are the moves that no budget holds back, in order, and how many
// others there is room for beside them.
func (b *board) urgentMoves(maxInMotion int) (moves []Move, room int) {
	inMotion := 0
	var orphans, calledOff, leaving, turned []Move
	for i := range b.shards {
		s := &b.shards[i]
		if s.inMotion {
			inMotion++
		}
		if s.to == s.assigned {
			continue
		}
		switch {
		case s.holder == nowhere:
			orphans = append(orphans, b.move(s, Orphan))
		case s.holder == s.to:
			calledOff = append(calledOff, b.move(s, CalledOff))
			if s.inMotion {
				inMotion--
			}
		case b.replicas[s.holder].Leaving:
			leaving = append(leaving, b.move(s, Leaving))
			if !s.inMotion {
				inMotion++
			}
		case s.inMotion:
			// Only a pin turns a shard aside; it was counted as in motion before.
			turned = append(turned, b.move(s, Pin))
		}
	}
	moves = slices.Concat(orphans, calledOff, leaving, turned)
	if maxInMotion == 0 {
		return moves, math.MaxInt
	}
	return moves, max(0, maxInMotion-inMotion)
}

// waitingMoves are the moves that the budget holds back, the most useful first:
// pins, since somebody asked for them, then from the fullest replicas.
func (b *board) waitingMoves() []Move {
	var due []*boardShard
	for i := range b.shards {
		if s := &b.shards[i]; b.canWait(s) {
			due = append(due, s)
		}
	}
	slices.SortStableFunc(due, func(x, y *boardShard) int { return cmp.Compare(y.excess, x.excess) })
	moves := make([]Move, len(due))
	for i, s := range due {
		moves[i] = b.move(s, Balance)
		if s.excess == pinned {
			moves[i].Reason = Pin
		}
	}
	return moves
}

// canWait says whether the shard has to move, and goes on being served by its
// holder until it does.
func (b *board) canWait(s *boardShard) bool {
	return s.to != s.assigned && s.to != s.holder &&
		s.holder != nowhere && !b.replicas[s.holder].Leaving && !s.inMotion
}

// countsUnsettled says whether a shard still has to move, or to be placed, for
// another reason than load.
func (b *board) countsUnsettled() bool {
	return slices.ContainsFunc(b.shards, func(s boardShard) bool {
		return s.to != s.assigned && s.to != s.holder
	})
}

func (b *board) move(s *boardShard, why Reason) Move {
	move := Move{Shard: s.ID, To: b.replicas[s.to].ID, Reason: why}
	if s.holder != nowhere {
		move.From = b.replicas[s.holder].ID
	}
	return move
}
