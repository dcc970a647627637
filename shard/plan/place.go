package plan

import (
	"cmp"
	"container/heap"
	"slices"
)

// balanceCounts decides how many shards each candidate gets, takes from those that have more, and gives to those that
// have less. Every shard that isn't taken stays where it is, so the number of moves is minimal.
//
// If some candidates can't serve some clusters, each group of clusters that the same candidates can serve is divided in
// turn, those with the fewest candidates first. Each division levels its candidates' totals. The groups are divided
// again while that changes anything, since one group may level what another left uneven.
func (b *board) balanceCounts() {
	groups := b.groups()
	for i := range b.shards {
		if to := b.shards[i].to; to != nowhere {
			b.replicas[to].total++
		}
	}
	for changed, pass := true, 0; changed && pass < passes; pass++ {
		changed = false
		for _, g := range groups {
			if len(g.excluded) < b.candidates {
				changed = b.divide(g) || changed
				b.take(g)
				b.give(g)
			}
		}
		changed = changed && len(groups) > 1
	}
}

// passes bounds how often the groups are divided. Two or three passes are usual, and a later plan does the rest.
const passes = 16

// divide grants each candidate a number of the group's shards that levels its total. It reports whether any shard
// must move.
func (b *board) divide(g *group) (changes bool) {
	placed := 0
	for i := range b.replicas {
		b.replicas[i].have, b.replicas[i].fixed = 0, 0
	}
	for _, shards := range g.clusters {
		for i := range shards {
			switch s := &shards[i]; {
			case s.to == nowhere:
				placed++
				changes = true
			case g.takes(s.to):
				b.replicas[s.to].have++
				if s.fixed {
					b.replicas[s.to].fixed++
				}
			}
		}
	}
	parts := make([]part, 0, b.candidates)
	for i := range b.replicas {
		if r := &b.replicas[i]; r.candidate && g.takes(int32(i)) {
			placed += r.total
			parts = append(parts, part{weight: r.weight, have: r.total, least: r.total - r.have + r.fixed})
		}
	}
	apportion(placed, parts)
	for i := range b.replicas {
		r := &b.replicas[i]
		r.grant = r.have
		if r.candidate && g.takes(int32(i)) {
			r.grant += parts[0].grant - r.total
			r.total, parts = parts[0].grant, parts[1:]
		}
		changes = changes || r.grant != r.have
	}
	return changes
}

// take frees the shards that candidates have beyond their grant. It prefers shards of clusters that the replica has
// many shards of and the receivers few, so that each cluster's shards end up spread.
func (b *board) take(g *group) {
	if !slices.ContainsFunc(b.replicas, func(r boardReplica) bool { return r.candidate && r.have > r.grant }) {
		return
	}
	at := b.shardsByReplica(g)
	receivers := 0
	received := make([]int, b.clusters) // by cluster: what the receivers have of it
	for i, r := range b.replicas {
		if !r.candidate || r.grant <= r.have {
			continue
		}
		receivers++
		for _, s := range at[i] {
			received[s.cluster]++
		}
	}
	for i, r := range b.replicas {
		if !r.candidate || r.have <= r.grant {
			continue
		}
		surplus := r.have - r.grant
		for n, s := range giveFirst(at[i], received, max(receivers, 1))[:surplus] {
			s.to = nowhere
			s.excess = surplus - n
			received[s.cluster]++
		}
	}
}

// giveFirst orders the shards that a replica could give away. First come those of clusters of which the replica has
// many shards and the receivers few.
func giveFirst(held []*boardShard, received []int, receivers int) []*boardShard {
	type offer struct {
		shard *boardShard
		worth int
	}
	offers := make([]offer, 0, len(held))
	earlier := 0 // shards of the same cluster before this one; held is sorted
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

// shardsByReplica lists, for each replica, the shards of the group that the plan places there, in order.
func (b *board) shardsByReplica(g *group) [][]*boardShard {
	at := make([][]*boardShard, len(b.replicas))
	for _, shards := range g.clusters {
		for i := range shards {
			if s := &shards[i]; s.to != nowhere {
				if at[s.to] == nil {
					at[s.to] = make([]*boardShard, 0, b.replicas[s.to].have)
				}
				at[s.to] = append(at[s.to], s)
			}
		}
	}
	return at
}

// give places each shard of a group that has no place yet. It goes to the receiver that has the fewest shards of its
// cluster, and among equals to the one that lacks most.
func (b *board) give(g *group) {
	lacking := b.lacking()
	if lacking.Len() == 0 {
		return
	}
	held := make([]int, len(b.replicas)) // of the cluster at hand
	for _, shards := range g.clusters {
		giveClusters(shards, lacking, held)
	}
}

// giveClusters places the shards of some clusters. The shards must be in order.
func giveClusters(shards []boardShard, lacking *lackHeap, held []int) {
	for first := 0; first < len(shards); {
		last := first
		for last < len(shards) && shards[last].cluster == shards[first].cluster {
			if to := shards[last].to; to != nowhere {
				held[to]++
			}
			last++
		}
		cluster := shards[first:last]
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

// lacking returns the candidates that have less than their grant.
func (b *board) lacking() *lackHeap {
	h := &lackHeap{}
	for i := range b.replicas {
		if r := &b.replicas[i]; r.candidate && r.have < r.grant {
			h.replicas = append(h.replicas, &lack{int32(i), r.grant - r.have})
		}
	}
	heap.Init(h)
	return h
}

type lack struct {
	replica int32
	n       int
}

// lackHeap is a heap with the replica that lacks most on top.
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

// next picks the replica for one shard. It looks no further than the first replica that has none of the cluster's
// shards. The replicas before that have some, so there are at most as many as the cluster has shards.
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
