package plan

import (
	"cmp"
	"container/heap"
	"slices"
)

// balanceCounts decides how many shards each candidate gets, takes from those
// that have more, and gives to those that have less. Every shard that isn't taken
// stays where it is, so the number of moves is the least there can be.
func (b *board) balanceCounts() {
	b.divide()
	b.take()
	b.give()
}

// divide grants each candidate its number of shards.
func (b *board) divide() {
	parts := make([]part, 0, b.candidates)
	for i := range b.replicas {
		r := &b.replicas[i]
		if !r.candidate {
			continue
		}
		parts = append(parts, part{weight: r.weight, have: r.have, least: r.fixed})
	}
	apportion(len(b.shards), parts)
	for i := range b.replicas {
		if b.replicas[i].candidate {
			b.replicas[i].part, parts = parts[0], parts[1:]
		}
	}
}

// take frees what candidates have beyond their grant. It prefers shards of
// clusters that the replica has many of and that the receivers have few of, so
// that a cluster's shards end up spread.
func (b *board) take() {
	if !slices.ContainsFunc(b.replicas, func(r boardReplica) bool { return r.candidate && r.have > r.part.grant }) {
		return
	}
	at := b.shardsByReplica()
	receivers := 0
	received := make([]int, b.clusters) // by cluster: at those that get more
	for i, r := range b.replicas {
		if !r.candidate || r.part.grant <= r.have {
			continue
		}
		receivers++
		for _, s := range at[i] {
			received[s.cluster]++
		}
	}
	for i, r := range b.replicas {
		if !r.candidate || r.have <= r.part.grant {
			continue
		}
		surplus := r.have - r.part.grant
		for n, s := range giveFirst(at[i], received, max(receivers, 1))[:surplus] {
			s.to = nowhere
			s.excess = surplus - n
			received[s.cluster]++
		}
	}
}

// giveFirst orders what a replica could give, by how little it would be missed.
func giveFirst(held []*boardShard, received []int, receivers int) []*boardShard {
	type offer struct {
		shard *boardShard
		worth int
	}
	offers := make([]offer, 0, len(held))
	earlier := 0 // of the same cluster: held is in the order of the shards
	for i, s := range held {
		if i == 0 || s.cluster != held[i-1].cluster {
			earlier = 0
		}
		if !s.fixed {
			offers = append(offers, offer{s, earlier - received[s.cluster]/receivers})
		}
		earlier++
	}
	slices.SortStableFunc(offers, func(x, y offer) int {
		return cmp.Or(cmp.Compare(y.worth, x.worth), cmp.Compare(received[x.shard.cluster], received[y.shard.cluster]))
	})
	shards := make([]*boardShard, len(offers))
	for i, o := range offers {
		shards[i] = o.shard
	}
	return shards
}

// shardsByReplica lists, for each replica, what the plan has there, in order.
func (b *board) shardsByReplica() [][]*boardShard {
	at := make([][]*boardShard, len(b.replicas))
	for i := range b.shards {
		if s := &b.shards[i]; s.to != nowhere {
			if at[s.to] == nil {
				at[s.to] = make([]*boardShard, 0, b.replicas[s.to].have)
			}
			at[s.to] = append(at[s.to], s)
		}
	}
	return at
}

// give places every shard that is nowhere, each with the receiver that has the
// fewest of its cluster's shards; among equals, the one that lacks most.
func (b *board) give() {
	if !slices.ContainsFunc(b.shards, func(s boardShard) bool { return s.to == nowhere }) {
		return
	}
	lacking := b.lacking()
	held := make([]int, len(b.replicas)) // of the cluster at hand
	for first := 0; first < len(b.shards); {
		last := first
		for last < len(b.shards) && b.shards[last].cluster == b.shards[first].cluster {
			if to := b.shards[last].to; to != nowhere {
				held[to]++
			}
			last++
		}
		cluster := b.shards[first:last]
		for i := range cluster {
			if s := &cluster[i]; s.to == nowhere {
				s.to = lacking.next(held)
				held[s.to]++
			}
		}
		for i := range cluster {
			held[cluster[i].to] = 0
		}
		first = last
	}
}

// lacking is the candidates that have less than their grant.
func (b *board) lacking() *lackHeap {
	lacks := make([]int, len(b.replicas))
	for i := range b.replicas {
		if b.replicas[i].candidate {
			lacks[i] = b.replicas[i].part.grant
		}
	}
	for i := range b.shards {
		if to := b.shards[i].to; to != nowhere {
			lacks[to]--
		}
	}
	h := &lackHeap{}
	for i, n := range lacks {
		if n > 0 {
			h.replicas = append(h.replicas, &lack{int32(i), n})
		}
	}
	heap.Init(h)
	return h
}

type lack struct {
	replica int32
	n       int
}

// lackHeap has the replica that lacks most on top.
type lackHeap struct {
	replicas []*lack
	aside    []*lack // popped while looking, kept to reuse its memory
}

func (h *lackHeap) Len() int { return len(h.replicas) }
func (h *lackHeap) Less(i, j int) bool {
	x, y := h.replicas[i], h.replicas[j]
	return x.n > y.n || x.n == y.n && x.replica < y.replica
}
func (h *lackHeap) Swap(i, j int) { h.replicas[i], h.replicas[j] = h.replicas[j], h.replicas[i] }
func (h *lackHeap) Push(x any)    { h.replicas = append(h.replicas, x.(*lack)) }
func (h *lackHeap) Pop() any {
	last := h.replicas[len(h.replicas)-1]
	h.replicas = h.replicas[:len(h.replicas)-1]
	return last
}

// next takes the place of one shard. It looks no further than the first replica
// that has none of the cluster's shards; as those that have some are at most as
// many as the cluster's shards, it ends soon.
func (h *lackHeap) next(held []int) int32 {
	h.aside = h.aside[:0]
	best := 0
	for len(h.replicas) > 0 {
		h.aside = append(h.aside, heap.Pop(h).(*lack))
		found := len(h.aside) - 1
		if held[h.aside[found].replica] < held[h.aside[best].replica] {
			best = found
		}
		if held[h.aside[best].replica] == 0 {
			break
		}
	}
	chosen := h.aside[best].replica
	h.aside[best].n--
	for _, l := range h.aside {
		if l.n > 0 {
			heap.Push(h, l)
		}
	}
	return chosen
}
