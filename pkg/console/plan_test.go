package console

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

func TestOnlyWhatNobodyTakesIsUnplaced(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Snapshot)
		wish   Wish
		want   int
	}{
		"on its way to a replica that stays": {
			change: func(s *Snapshot) { assigned(&s.Records.Shards[1], "r0-aaaaaa", time.Second) },
			wish:   Wish{Drain: []string{"r1"}}},
		"about to be claimed": {change: func(s *Snapshot) { s.Records.Shards[1].Status.Holder = "" }},
		"left by a drain, of a cluster that nobody else can serve": {
			change: func(s *Snapshot) { s.Records.Leases[0].Annotations[tenurev1alpha1.UnfitAnnotation] = "west" },
			wish:   Wish{Drain: []string{"r1"}}, want: 2},
	} {
		s := healthy()
		c.change(&s)
		if p, err := Foresee(s, c.wish); err != nil || len(p.Unplaced) != c.want {
			t.Errorf("%s: unplaced %v, %v; want %d", name, p.Unplaced, err, c.want)
		}
	}
}

func TestAPlanShowsWhatAChangeOfTheFleetWouldMove(t *testing.T) {
	cases := map[string]struct {
		change func(*Snapshot)
		wish   Wish
		moves  map[string]int // by reason
		after  map[string]int // shards by replica
	}{
		"no change": {moves: map[string]int{}, after: map[string]int{"r0": 4, "r1": 4}},
		"two more": {wish: Wish{Replicas: 4}, moves: map[string]int{"balance": 4},
			after: map[string]int{"r0": 2, "r1": 2, "new-1": 2, "new-2": 2}},
		"one less": {wish: Wish{Replicas: 1}, moves: map[string]int{"leaving": 4},
			after: map[string]int{"r0": 8, "r1": 0}},
		"one is drained": {wish: Wish{Drain: []string{"r0"}}, moves: map[string]int{"leaving": 4},
			after: map[string]int{"r0": 0, "r1": 8}},
		"one is drained by its incarnation, one comes": {wish: Wish{Drain: []string{"r0-aaaaaa"}, Replicas: 2},
			moves: map[string]int{"leaving": 4}, after: map[string]int{"r0": 0, "r1": 4, "new-1": 4}},
		"one is dead": {change: func(s *Snapshot) { s.Records.Leases[1].Annotations["tenure.dev/sealed-by"] = "r0" },
			moves: map[string]int{"orphan": 4}, after: map[string]int{"r0": 8, "r1": 0}},
		"a removed cluster's shards aren't placed": {change: removeWest, moves: map[string]int{},
			after: map[string]int{"r0": 2, "r1": 2}},
		"nor are those of another name": {change: renameWest, moves: map[string]int{},
			after: map[string]int{"r0": 2, "r1": 2}},
		"one is drained that was about to get a shard": {
			change: func(s *Snapshot) { assigned(&s.Records.Shards[0], "r1-aaaaaa", time.Second) },
			wish:   Wish{Drain: []string{"r1"}}, moves: map[string]int{"leaving": 4}, after: map[string]int{"r0": 8, "r1": 0}},
		"a held shard has no assignee": {change: func(s *Snapshot) { s.Records.Shards[0].Spec.Assignee = "" },
			moves: map[string]int{}, after: map[string]int{"r0": 4, "r1": 4}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := healthy()
			if c.change != nil {
				c.change(&s)
			}
			p, err := Foresee(s, c.wish)
			must.Succeed(t, err)
			moves, after := map[string]int{}, map[string]int{}
			for _, m := range p.Moves {
				moves[string(m.Reason)]++
			}
			for _, r := range p.Replicas {
				after[r.Name] = r.ShardsAfter
			}
			expect.Equal(t, "moves", c.moves, moves)
			expect.Equal(t, "shards afterwards", c.after, after)
		})
	}
}

func TestAPlanWithoutAnybodySaysWhatWouldBeUnplaced(t *testing.T) {
	p, err := Foresee(healthy(), Wish{Drain: []string{"r0", "r1"}})
	must.Succeed(t, err)
	if len(p.Moves) != 0 || len(p.Unplaced) != 8 {
		t.Errorf("%d moves, unplaced: %v", len(p.Moves), p.Unplaced)
	}
	text := show(t, false, func(s *Screen) error { return s.Plan(p) })
	if strings.Contains(text, "nothing would move") || !strings.Contains(text, "! 8 shards would have no holder") {
		t.Errorf("got %s", text)
	}
}

func TestNoPlanIsMadeForAFleetWithoutALiveReplica(t *testing.T) {
	for name, change := range map[string]func(*Snapshot){
		"no such fleet": func(s *Snapshot) { *s = Snapshot{} },
		"no Leases":     func(s *Snapshot) { s.Records.Leases = nil },
		"all replicas are quiet": func(s *Snapshot) {
			s.Records.Leases[0], s.Records.Leases[1] = lease("r0", time.Minute), lease("r1", time.Minute)
		},
	} {
		s := healthy()
		change(&s)
		s.Unread = []string{"the Secrets"}
		for _, wish := range []Wish{{}, {Replicas: 3}} {
			p, err := Foresee(s, wish)
			if err == nil || !strings.Contains(err.Error(), "the Secrets") ||
				!strings.Contains(err.Error(), "no replica is alive in this fleet: --fleet and --namespace") {
				t.Errorf("%s: %+v, %v", name, p, err)
			}
		}
	}
}

func TestDrainingNobodyIsAMistakeIfThereIsSomebody(t *testing.T) {
	var mistake *UsageError
	_, err := Foresee(healthy(), Wish{Drain: []string{"r7"}})
	if !errors.As(err, &mistake) || !strings.Contains(err.Error(), "r0, r1") {
		t.Errorf("got %v, want a mistake that names the replicas", err)
	}
	_, err = Foresee(Snapshot{}, Wish{Drain: []string{"r7"}})
	if errors.As(err, &mistake) || err == nil || !strings.Contains(err.Error(), "no replica is alive") {
		t.Errorf("got %v, want no mistake, but that there is none", err)
	}
}

// The planner may call a move off and then move the shard, or move a shard again, before it has nothing to do.
func TestAShardThatIsPlannedTwiceMovesOnce(t *testing.T) {
	shard := func(cluster keyspace.ClusterName, i int, holder, assignee protocol.Incarnation) plan.Shard {
		return plan.Shard{ID: keyspace.ShardID{Cluster: cluster, Prefix: keyspace.Partition(2)[i]}, Holder: holder,
			Assignee: assignee}
	}
	again, calledOff := shard("a", 3, "r0", "r0"), shard("b", 0, "r3", "r0")
	got := settle([]plan.Shard{shard("a", 0, "r3", "r3"), shard("a", 1, "r1", "r1"), shard("a", 2, "r1", "r1"), again,
		calledOff}, []plan.Replica{{ID: "r0", Name: "r0", Weight: 1, Leaving: true, Unfit: "a"},
		{ID: "r1", Name: "r1", Weight: 1}, {ID: "r2", Name: "r2", Weight: 1, Unfit: "a+"}, {ID: "r3", Name: "r3", Weight: 1}})
	expect.Equal(t, "moves", []plan.Move{{Shard: again.ID, From: "r0", To: "r3", Reason: plan.Leaving},
		{Shard: calledOff.ID, From: "r3", To: "r2", Reason: plan.Balance}}, got)
	// Shard a/3 would go from r2 to another, and come back.
	got = settle([]plan.Shard{shard("a", 0, "r0", "r0"), shard("a", 1, "r2", "r2"), shard("a", 2, "r1", "r0"),
		shard("a", 3, "r2", "r2"), shard("b", 0, "r2", "r2"), shard("c", 0, "r2", "r0")}, []plan.Replica{
		{ID: "r0", Name: "r0", Weight: 1, Unfit: "c+"}, {ID: "r1", Name: "r1", Weight: 2, Unfit: "a+"},
		{ID: "r2", Name: "r2", Weight: 1}})
	if len(got) == 0 || slices.ContainsFunc(got, func(m plan.Move) bool { return m.From == m.To }) {
		t.Errorf("moves: %+v", got)
	}
}

func TestRoutesSumMovesUp(t *testing.T) {
	moved := func(prefix int) PlanMove {
		id := keyspace.ShardID{Cluster: "west", Prefix: keyspace.Partition(1)[prefix]}
		return PlanMove{Shard: id, From: "a", To: "b", Reason: plan.Balance, Objects: 2}
	}
	got := routesOf([]PlanMove{moved(0), moved(1), {From: "a", To: "c"}})
	want := []route{{from: "a", to: "b", reason: plan.Balance, shards: 2, objects: 4}, {from: "a", to: "c", shards: 1}}
	expect.Equal(t, "routes", want, got, cmp.AllowUnexported(route{}), cmpopts.IgnoreFields(route{}, "first"))
}
