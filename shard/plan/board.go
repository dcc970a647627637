package plan

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// board is a plan in the making. Its inputs are in canonical order, so that their original order can't matter, with
// indices in place of names.
type board struct {
	replicas []boardReplica
	shards   []boardShard
	clusters int
	// candidates counts the replicas that shards can be given to.
	candidates int
	statements *statements  // what candidates state about clusters; nil if all are fit for all
	excluded   []exclusions // by cluster; nil if statements is nil
}

// nowhere is the index that means no replica.
const nowhere = int32(-1)

type boardReplica struct {
	Replica
	weight    int
	candidate bool // it isn't leaving
	total     int  // its shards in all, as the plan stands

	// For the group that is being divided: have counts the shards that are here or on their way here before the plan;
	// fixed counts those of them that must stay; grant is the number that the plan gives it.
	have, fixed, grant int
}

type boardShard struct {
	ID      keyspace.ShardID
	cluster int32 // its index among the clusters
	// holder is the live holder. assigned is where the shard is or should go: its assignee if it has one, otherwise its
	// holder; nowhere if that replica is dead.
	holder, assigned int32
	inMotion         bool
	// fixed: to must not be changed.
	fixed bool
	to    int32 // where the plan puts it
	// excess orders the moves that can wait: the highest first.
	excess int
}

// pinned is the excess of a shard that moves because of its pin.
const pinned = math.MaxInt

func newBoard(shards []Shard, replicas []Replica) *board {
	b := &board{}
	b.addReplicas(replicas)
	b.statements = b.readStatements()
	b.addShards(shards)
	return b
}

func (b *board) addReplicas(replicas []Replica) {
	if !slices.IsSortedFunc(replicas, compareReplicas) {
		replicas = slices.SortedFunc(slices.Values(replicas), compareReplicas)
	}
	b.replicas = make([]boardReplica, 0, len(replicas))
	for i, r := range replicas {
		if i > 0 && r.ID == replicas[i-1].ID {
			continue
		}
		b.replicas = append(b.replicas, boardReplica{
			Replica: r, weight: min(max(r.Weight, 1), MaxWeight), candidate: !r.Leaving,
		})
		if !r.Leaving {
			b.candidates++
		}
	}
}

// compareReplicas compares more than the ID so that an ID given twice doesn't make the plan depend on the order of its
// inputs.
func compareReplicas(x, y Replica) int {
	if order := cmp.Compare(x.ID, y.ID); order != 0 {
		return order
	}
	return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Weight, y.Weight), compareBools(x.Leaving, y.Leaving),
		cmp.Compare(x.Unfit, y.Unfit))
}

func compareBools(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return 1
	}
	return -1
}

func (b *board) addShards(shards []Shard) {
	var pins map[string]int32 // made on demand, since few shards are pinned
	b.shards = make([]boardShard, 0, len(shards))
	var last *Shard
	for _, i := range canonicalOrder(shards) {
		in := &shards[i]
		if last != nil && in.ID == last.ID {
			continue
		}
		if last == nil || in.ID.Cluster != last.ID.Cluster {
			b.clusters++
			if b.statements != nil {
				b.excluded = append(b.excluded, b.statements.of(in.ID.Cluster))
			}
		}
		last = in
		s := boardShard{ID: in.ID, cluster: int32(b.clusters - 1), holder: b.find(in.Holder)}
		s.assigned = s.holder
		if in.Assignee != "" && in.Assignee != in.Holder {
			s.assigned = b.find(in.Assignee)
		}
		s.inMotion = s.holder != nowhere && s.assigned != nowhere && s.assigned != s.holder
		b.settle(&s)
		if in.Pin != "" {
			if pins == nil {
				pins = b.pinTargets()
			}
			b.pin(&s, in.Pin, pins)
		}
		b.shards = append(b.shards, s)
	}
}

// find returns the index of a replica; replicas are in the order of their IDs.
func (b *board) find(id Incarnation) int32 {
	if id == "" {
		return nowhere
	}
	at, found := sort.Find(len(b.replicas), func(i int) int { return cmp.Compare(id, b.replicas[i].ID) })
	if !found {
		return nowhere
	}
	return int32(at)
}

// fitness returns what a replica can do for the shard's cluster. A replica that isn't a candidate is unfit for all.
func (b *board) fitness(s *boardShard, replica int32) Fitness {
	switch {
	case replica == nowhere || !b.replicas[replica].candidate:
		return Unfit
	case b.statements == nil:
		return Fit
	}
	return b.excluded[s.cluster].of(replica)
}

// takers returns how many candidates are fit for the shard's cluster.
func (b *board) takers(s *boardShard) int {
	if b.statements == nil {
		return b.candidates
	}
	return b.candidates - len(b.excluded[s.cluster])
}

// settle puts the shard where it stays unless the balance requires a move. A shard on its way to a candidate goes on to
// it, even if another place would be better by now: turning back costs a second handoff. If the assignee is lost or
// unfit, the shard is fixed to its holder: the move must be called off before the holder drains for a successor that
// won't come, and a later plan can place the shard. If no candidate is fit, the holder stays, and an orphan stays one.
func (b *board) settle(s *boardShard) {
	moving := s.assigned != s.holder
	switch at := b.fitness(s, s.holder); {
	case b.fitness(s, s.assigned) == Fit:
		s.to, s.fixed = s.assigned, moving
	case at != Unfit:
		s.to, s.fixed = s.holder, moving || at == Keeps
	case b.takers(s) > 0:
		s.to = nowhere
	case s.holder != nowhere && b.replicas[s.holder].candidate:
		s.to, s.fixed = s.holder, true
	default:
		s.to, s.fixed = s.assigned, true
	}
}

// pinTargets returns, by name, the first replica that a pinned shard may be sent to.
func (b *board) pinTargets() map[string]int32 {
	targets := make(map[string]int32)
	for i := range b.replicas {
		r := &b.replicas[i]
		if _, taken := targets[r.Name]; !taken && r.candidate {
			targets[r.Name] = int32(i)
		}
	}
	return targets
}

// pin fixes the shard to the replica of that name. Two processes may have the same name for a while; a shard that is
// with either of them stays there.
func (b *board) pin(s *boardShard, name string, targets map[string]int32) {
	if s.to != nowhere && b.replicas[s.to].candidate && b.replicas[s.to].Name == name {
		s.fixed = true
		return
	}
	if to, ok := targets[name]; ok && b.fitness(s, to) == Fit {
		s.to, s.fixed, s.excess = to, true, pinned
	}
}
