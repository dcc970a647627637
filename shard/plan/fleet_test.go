package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
	"github.com/tenure-dev/tenure/test/must"
)

// fleet is one input of the planner, and the world that its moves change.
type fleet struct {
	shards   []plan.Shard
	replicas []plan.Replica
}

func (f fleet) plan() []plan.Move { return plan.Plan(f.shards, f.replicas) }

// target is where the plan lets every shard end. One that is with nobody alive and stays so isn't in it.
func (f fleet) target() map[keyspace.ShardID]plan.Incarnation {
	target := map[keyspace.ShardID]plan.Incarnation{}
	for _, s := range f.shards {
		for _, id := range []plan.Incarnation{s.Holder, s.Assignee} {
			if f.replica(id) != nil {
				target[s.ID] = id
			}
		}
	}
	for _, move := range f.plan() {
		target[move.Shard] = move.To
	}
	return target
}

func (f fleet) clone() fleet {
	return fleet{slices.Clone(f.shards), slices.Clone(f.replicas)}
}

// assign makes the moves, as far as the coordinator does.
func (f fleet) assign(moves []plan.Move) {
	for _, move := range moves {
		i := slices.IndexFunc(f.shards, func(s plan.Shard) bool { return s.ID == move.Shard })
		f.shards[i].Assignee = move.To
	}
}

// land lets every live assignee for which the test holds take over.
func (f fleet) land(test func(plan.Shard) bool) {
	for i, s := range f.shards {
		if s.Assignee != "" && f.replica(s.Assignee) != nil && test(s) {
			f.shards[i].Holder = s.Assignee
		}
	}
}

func always(plan.Shard) bool { return true }

func (f fleet) replica(id plan.Incarnation) *plan.Replica {
	i := slices.IndexFunc(f.replicas, func(r plan.Replica) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	return &f.replicas[i]
}

func (f fleet) inMotion(s plan.Shard) bool {
	return s.Holder != s.Assignee && f.replica(s.Holder) != nil && f.replica(s.Assignee) != nil
}

func (f fleet) candidates() []plan.Replica {
	return slices.DeleteFunc(slices.Clone(f.replicas), func(r plan.Replica) bool { return r.Leaving })
}

// settle plans and lands until nothing is left to do.
func (f fleet) settle(t interface{ Fatalf(string, ...any) }) {
	for range 2 * (len(f.shards) + 2) {
		moves := f.plan()
		f.assign(moves)
		f.land(always)
		if len(moves) == 0 {
			return
		}
	}
	t.Fatalf("planning does not end: still %v", f.plan())
}

func (f fleet) counts() map[plan.Incarnation]int {
	counts := map[plan.Incarnation]int{}
	for _, r := range f.replicas {
		counts[r.ID] = 0
	}
	for _, to := range f.target() {
		counts[to]++
	}
	return counts
}

// newFleet is that many replicas, and clusters with 2^bits orphans each.
func newFleet(replicas, clusters, bits int) fleet {
	var f fleet
	for i := range replicas {
		f.join(i)
	}
	for i := range clusters {
		for _, prefix := range keyspace.Partition(bits) {
			f.shards = append(f.shards, plan.Shard{ID: keyspace.ShardID{
				Cluster: keyspace.ClusterName(fmt.Sprintf("c%05d", i)), Prefix: prefix,
			}})
		}
	}
	return f
}

func (f *fleet) join(i int) {
	name := fmt.Sprintf("r%04d", i)
	f.replicas = append(f.replicas, plan.Replica{ID: plan.Incarnation(name + "-x"), Name: name})
}

// parse reads a fleet from lines, so that tables can be read at a glance:
//
//	r1 w2 leaving -a  a replica (its incarnation's name is its name), unfit for a
//	west/0 r1>r2 @r3  a shard, its holder and assignee, pin
func parse(t *testing.T, text string) fleet {
	t.Helper()
	var f fleet
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if !strings.Contains(words[0], "/") {
			f.replicas = append(f.replicas, parseReplica(t, words))
			continue
		}
		f.shards = append(f.shards, parseShard(t, words))
	}
	return f
}

func parseReplica(t *testing.T, words []string) plan.Replica {
	t.Helper()
	r := plan.Replica{ID: plan.Incarnation(words[0]), Name: words[0]}
	for _, word := range words[1:] {
		switch word[0] {
		case 'w':
			if _, err := fmt.Sscanf(word, "w%d", &r.Weight); err != nil {
				t.Fatalf("weight %q: %v", word, err)
			}
		case 'l':
			r.Leaving = true
		case '-':
			r.Unfit = plan.UnfitFor(word[1:])
		default:
			t.Fatalf("replica %q: %q isn't known", words[0], word)
		}
	}
	return r
}

func parseShard(t *testing.T, words []string) plan.Shard {
	t.Helper()
	id, err := keyspace.ParseShardID(words[0])
	must.Succeed(t, err)
	s := plan.Shard{ID: id}
	for _, word := range words[1:] {
		if pin, ok := strings.CutPrefix(word, "@"); ok {
			s.Pin = pin
			continue
		}
		holder, assignee, moving := strings.Cut(word, ">")
		s.Holder, s.Assignee = plan.Incarnation(holder), plan.Incarnation(holder)
		if moving {
			s.Assignee = plan.Incarnation(assignee)
		}
	}
	return s
}

// lines shows moves as "west/0 r1>r2 balance".
func lines(moves []plan.Move) []string {
	var shown []string
	for _, move := range moves {
		shown = append(shown, fmt.Sprintf("%s %s>%s %s", move.Shard, move.From, move.To, move.Reason))
	}
	return shown
}

// drawFleet draws small fleets in any state, however odd: dead and unknown
// holders, dead and leaving assignees, pins to nobody, versions, weights, loads.
func drawFleet(t *rapid.T) fleet {
	var f fleet
	ids := []plan.Incarnation{"", "dead"}
	for i := range rapid.IntRange(0, 6).Draw(t, "replicas") {
		id := plan.Incarnation(fmt.Sprintf("r%d", i))
		ids = append(ids, id)
		f.replicas = append(f.replicas, plan.Replica{
			ID:      id,
			Name:    fmt.Sprintf("n%d", rapid.IntRange(0, 4).Draw(t, "name")),
			Weight:  rapid.SampledFrom([]int{0, 0, 0, 1, 2, 5}).Draw(t, "weight"),
			Leaving: rapid.IntRange(0, 3).Draw(t, "leaving") == 0,
		})
	}
	replica := rapid.SampledFrom(ids)
	for cluster := range rapid.IntRange(0, 4).Draw(t, "clusters") {
		for _, prefix := range keyspace.Partition(rapid.IntRange(0, 3).Draw(t, "bits")) {
			s := plan.Shard{
				ID:     keyspace.ShardID{Cluster: keyspace.ClusterName(fmt.Sprintf("c%d", cluster)), Prefix: prefix},
				Holder: replica.Draw(t, "holder"),
			}
			s.Assignee = rapid.OneOf(rapid.Just(s.Holder), replica).Draw(t, "assignee")
			if rapid.IntRange(0, 5).Draw(t, "pinned") == 0 {
				s.Pin = fmt.Sprintf("n%d", rapid.IntRange(0, 5).Draw(t, "pin"))
			}
			f.shards = append(f.shards, s)
		}
	}
	return f
}

// withOneThatStays adds a replica if all others leave, or there is none.
func (f fleet) withOneThatStays() fleet {
	if len(f.candidates()) == 0 {
		f.replicas = append(f.replicas, plan.Replica{ID: "stays", Name: "n0"})
	}
	return f
}
