package plan_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
)

// The oracle is a second, dumb planner: it tries every assignment there is and
// keeps the best balanced, and of those the one with the fewest changes. It shares
// no code and no idea with the planner.

// outcome is how good an assignment is: unbalance first, then changes.
type outcome struct{ unbalance, changes int }

func (o outcome) better(other outcome) bool {
	return o.unbalance < other.unbalance || o.unbalance == other.unbalance && o.changes < other.changes
}

// places is where the shard is or goes to ("" for nowhere), and where it may be.
func (f fleet) places(s plan.Shard) (now plan.Incarnation, allowed []plan.Incarnation) {
	isCandidate := func(id plan.Incarnation) bool { r := f.replica(id); return r != nil && !r.Leaving }
	for _, r := range f.takers(s.ID.Cluster) {
		allowed = append(allowed, r.ID)
	}
	assignee := s.Assignee
	if assignee == "" {
		assignee = s.Holder
	}
	switch {
	case isCandidate(assignee):
		now = assignee
	case isCandidate(s.Holder):
		now = s.Holder
	}
	if s.Pin != "" {
		panic("the oracle knows no pins")
	}
	if now != "" && (now != s.Holder || now != assignee) {
		return now, []plan.Incarnation{now} // under way, or called off
	}
	return now, allowed
}

// best tries everything. unbalance judges the counts.
func (f fleet) best(unbalance func(map[plan.Incarnation]int) int) outcome {
	counts := map[plan.Incarnation]int{}
	best := outcome{unbalance: 1 << 30}
	var try func(i, changes int)
	try = func(i, changes int) {
		if i == len(f.shards) {
			if o := (outcome{unbalance(counts), changes}); o.better(best) {
				best = o
			}
			return
		}
		now, allowed := f.places(f.shards[i])
		for _, to := range allowed {
			counts[to]++
			if to == now {
				try(i+1, changes)
			} else {
				try(i+1, changes+1)
			}
			counts[to]--
		}
	}
	try(0, 0)
	return best
}

func (f fleet) planned(unbalance func(map[plan.Incarnation]int) int) outcome {
	changes := 0
	target := f.target()
	for _, s := range f.shards {
		if now, _ := f.places(s); now != target[s.ID] {
			changes++
		}
	}
	return outcome{unbalance(f.counts()), changes}
}

// drawTiny draws fleets that are small enough to try everything.
func drawTiny(t *rapid.T, maxWeight int, oddStates bool) fleet {
	var f fleet
	ids := []plan.Incarnation{"", "dead"}
	for i := range rapid.IntRange(1, 4).Draw(t, "replicas") {
		id := plan.Incarnation(fmt.Sprintf("r%d", i))
		ids = append(ids, id)
		r := plan.Replica{ID: id, Weight: rapid.IntRange(1, maxWeight).Draw(t, "weight")}
		if oddStates && i > 0 {
			r.Leaving = rapid.IntRange(0, 3).Draw(t, "leaving") == 0
		}
		f.replicas = append(f.replicas, r)
	}
	for i := range rapid.IntRange(0, 6).Draw(t, "shards") {
		s := plan.Shard{
			ID:     keyspace.ShardID{Cluster: keyspace.ClusterName(fmt.Sprintf("c%d", i%2)), Prefix: keyspace.Partition(3)[i]},
			Holder: rapid.SampledFrom(ids).Draw(t, "holder"),
		}
		s.Assignee = s.Holder
		if oddStates && rapid.IntRange(0, 3).Draw(t, "assigned") == 0 {
			s.Assignee = rapid.SampledFrom(ids).Draw(t, "assignee")
		}
		f.shards = append(f.shards, s)
	}
	return f
}

func TestNoAssignmentIsBetterBalancedWithFewerMoves(t *testing.T) {
	// For equal replicas the least sum of squares is the best balance that leaving
	// replicas and shards under way allow.
	squares := func(counts map[plan.Incarnation]int) int {
		sum := 0
		for _, n := range counts {
			sum += n * n
		}
		return sum
	}
	rapid.Check(t, func(t *rapid.T) {
		f := drawTiny(t, 1, true)
		if got, want := f.planned(squares), f.best(squares); got != want {
			t.Errorf("planned %+v, the best there is: %+v", got, want)
		}
	})
}

func TestNoAssignmentByWeightMovesFewer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawTiny(t, 5, false)
		total := 0
		for _, r := range f.replicas {
			total += r.Weight
		}
		// Balanced is: each count is the exact share, rounded down or up.
		outsideQuota := func(counts map[plan.Incarnation]int) int {
			outside := 0
			for _, r := range f.replicas {
				over := counts[r.ID]*total - len(f.shards)*r.Weight
				if over >= total || over <= -total {
					outside++
				}
			}
			return outside
		}
		got, want := f.planned(outsideQuota), f.best(outsideQuota)
		if got != want || got.unbalance != 0 {
			t.Errorf("planned %+v, the best there is: %+v", got, want)
		}
	})
}
