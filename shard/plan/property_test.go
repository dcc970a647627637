package plan_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
	"github.com/tenure-dev/tenure/test/expect"
)

// rapid logs the seed of a failure and how to run it again.

func TestTargetIsTotalAndNamesOnlyCandidates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t)
		target, candidates := f.target(), f.candidates()
		for _, s := range f.shards {
			to, placed := target[s.ID]
			switch {
			case len(candidates) == 0 && placed && to != s.Holder && to != s.Assignee:
				t.Errorf("%s goes to %q, though all leave", s.ID, to)
			case len(candidates) > 0 && !placed:
				t.Errorf("%s is placed nowhere", s.ID)
			case len(candidates) > 0 && f.replica(to).Leaving:
				t.Errorf("%s is placed with %q, which leaves", s.ID, to)
			}
		}
		if len(target) > len(f.shards) {
			t.Errorf("%d shards are placed of %d", len(target), len(f.shards))
		}
	})
}

func TestTheOrderOfTheInputsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawEither(t)
		// IDs given twice must not matter either.
		if len(f.shards) > 0 && rapid.Bool().Draw(t, "twice") {
			again := f.shards[0]
			again.Holder, again.Assignee = "", ""
			again.ID.Generation = rapid.Uint32Range(0, 2).Draw(t, "generation")
			f.shards = append(f.shards, again)
		}
		if len(f.replicas) > 0 && rapid.Bool().Draw(t, "replica twice") {
			again := f.replicas[0]
			again.Leaving = !again.Leaving
			f.replicas = append(f.replicas, again)
		}
		g := fleet{rapid.Permutation(f.shards).Draw(t, "shards"), rapid.Permutation(f.replicas).Draw(t, "replicas")}
		before := g.clone()
		expect.Equal(t, "plans differ", f.plan(), g.plan())
		expect.Equal(t, "targets differ", f.target(), g.target())
		expect.Equal(t, "planning changed its input", before.shards, g.shards)
	})
}

func TestWhatIsAssignedIsNotPlannedAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawEither(t)
		f.settle(t)
		f.join(9)
		f.assign(f.plan())
		if again := f.plan(); len(again) > 0 {
			t.Errorf("with all moves under way: %q", lines(again))
		}
		landed := rapid.SliceOfN(rapid.Bool(), len(f.shards), len(f.shards)).Draw(t, "landed")
		f.land(func(plan.Shard) bool { next := landed[0]; landed = landed[1:]; return next })
		if again := f.plan(); len(again) > 0 {
			t.Errorf("with some moves made: %q", lines(again))
		}
		f.land(always)
		if again := f.plan(); len(again) > 0 {
			t.Errorf("with all moves made: %q", lines(again))
		}
	})
}

func TestOrphansAndLeaversNeverWait(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t).withOneThatStays()
		f.assign(f.plan())
		for _, s := range f.shards {
			holder, assignee := f.replica(s.Holder), f.replica(s.Assignee)
			if (holder == nil || holder.Leaving) && (assignee == nil || assignee.Leaving) {
				t.Errorf("%s of %q is left with the assignee %q", s.ID, s.Holder, s.Assignee)
			}
		}
	})
}

func TestWhatIsInMotionGoesOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t)
		target := f.target()
		for _, s := range f.shards {
			if s.Pin == "" && f.inMotion(s) && !f.replica(s.Assignee).Leaving && target[s.ID] != s.Assignee {
				t.Errorf("%s was on its way to %q, now to %q", s.ID, s.Assignee, target[s.ID])
			}
		}
	})
}

func TestPinnedShardsGoWhereTheyArePinned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t)
		target := f.target()
		for _, s := range f.shards {
			named := func(r plan.Replica) bool { return r.Name == s.Pin }
			if s.Pin != "" && slices.ContainsFunc(f.candidates(), named) && !named(*f.replica(target[s.ID])) {
				t.Errorf("%s is pinned to %q and goes to %q", s.ID, s.Pin, target[s.ID])
			}
		}
	})
}

func TestEqualReplicasEndWithinOneShardOfEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t).withOneThatStays()
		for i := range f.replicas {
			f.replicas[i].Weight = 0
		}
		for i := range f.shards {
			f.shards[i].Pin = ""
		}
		f.settle(t)
		counts := f.counts()
		least, most := len(f.shards), 0
		for _, r := range f.candidates() {
			least, most = min(least, counts[r.ID]), max(most, counts[r.ID])
		}
		if most > least+1 {
			t.Errorf("counts are %v", counts)
		}
	})
}

func TestAJoinMovesTheJoinersFloorShareAndADeathOnlyTheDeadOnesShards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(rapid.IntRange(1, 12).Draw(t, "replicas"), rapid.IntRange(0, 9).Draw(t, "clusters"), 3)
		f.settle(t)

		joined := f.clone()
		joined.join(99)
		moves := joined.plan()
		if want := len(f.shards) / len(joined.replicas); len(moves) != want {
			t.Errorf("a join moves %d of %d shards, want %d", len(moves), len(f.shards), want)
		}
		for _, move := range moves {
			if move.To != "r0099-x" {
				t.Errorf("a join moves %q", lines([]plan.Move{move}))
			}
		}

		if len(f.replicas) == 1 {
			return
		}
		died := f.clone()
		at := rapid.IntRange(0, len(f.replicas)-1).Draw(t, "dead")
		dead := f.replicas[at].ID
		died.replicas = slices.Delete(died.replicas, at, at+1)
		moves = died.plan()
		if want := f.counts()[dead]; len(moves) != want {
			t.Errorf("the death of %q moves %d shards, it had %d", dead, len(moves), want)
		}
		for _, move := range moves {
			if move.From != "" || move.Reason != plan.Orphan {
				t.Errorf("the death of %q moves %q", dead, lines([]plan.Move{move}))
			}
		}
	})
}

func TestAnUnrelatedClusterMovesNoOtherShard(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(rapid.IntRange(1, 8).Draw(t, "replicas"), rapid.IntRange(1, 6).Draw(t, "clusters"), 3)
		f.settle(t)
		other := newFleet(0, 1, rapid.IntRange(0, 4).Draw(t, "bits"))
		for _, s := range other.shards {
			s.ID.Cluster = "another"
			f.shards = append(f.shards, s)
		}
		for _, move := range f.plan() {
			if move.Shard.Cluster != "another" {
				t.Errorf("a new cluster moves %q", lines([]plan.Move{move}))
			}
		}
	})
}

func TestFreshFleetsSpreadEachClusterOverTheReplicas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(rapid.IntRange(1, 20).Draw(t, "replicas"), rapid.IntRange(1, 30).Draw(t, "clusters"), 3)
		perCluster := map[keyspace.ClusterName]map[plan.Incarnation]int{}
		for id, to := range f.target() {
			if perCluster[id.Cluster] == nil {
				perCluster[id.Cluster] = map[plan.Incarnation]int{}
			}
			perCluster[id.Cluster][to]++
		}
		for cluster, counts := range perCluster {
			for r, n := range counts {
				if most := (8 + len(f.replicas) - 1) / len(f.replicas); n > most {
					t.Errorf("%s has %d of the 8 shards of %s, want at most %d", r, n, cluster, most)
				}
			}
		}
	})
}
