package plan_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-dev/tenure/bench/machine"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
	"github.com/tenure-dev/tenure/test/expect"
)

// drawUnfit draws a fleet in any state in which some replicas can't serve some clusters.
func drawUnfit(t *rapid.T) fleet {
	f := drawFleet(t)
	for i := range f.replicas {
		if rapid.Bool().Draw(t, "fit for all") {
			continue
		}
		said := map[keyspace.ClusterName]plan.Fitness{}
		for cluster := range 4 {
			said[keyspace.ClusterName(fmt.Sprintf("c%d", cluster))] = rapid.SampledFrom(
				[]plan.Fitness{plan.Fit, plan.Fit, plan.Keeps, plan.Unfit}).Draw(t, "fitness")
		}
		f.replicas[i].Unfit = plan.NewUnfitFor(said)
	}
	return f
}

// drawEither draws a fleet of which all can serve all clusters, or of which some can't.
func drawEither(t *rapid.T) fleet {
	if rapid.Bool().Draw(t, "some are unfit") {
		return drawUnfit(t)
	}
	return drawFleet(t)
}

// takers are the candidates that are fit for a cluster.
func (f fleet) takers(cluster keyspace.ClusterName) []plan.Replica {
	return slices.DeleteFunc(f.candidates(), func(r plan.Replica) bool { return r.Unfit.Of(cluster) != plan.Fit })
}

func TestNoShardIsGivenToAReplicaThatIsNotFitForItsCluster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawUnfit(t)
		for _, move := range f.plan() {
			to := f.replica(move.To)
			called := move.Reason == plan.CalledOff && move.From == move.To
			if to == nil || to.Leaving || (to.Unfit.Of(move.Shard.Cluster) != plan.Fit && !called) {
				t.Errorf("%q, to one that says %q", lines([]plan.Move{move}), to.Unfit)
			}
		}
	})
}

func TestWhatNobodyCanServeStaysAndAllElseFindsAPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawUnfit(t)
		target := f.target()
		for _, s := range f.shards {
			to, placed := target[s.ID]
			holder := f.replica(s.Holder)
			keeps := holder != nil && !holder.Leaving && holder.Unfit.Of(s.ID.Cluster) != plan.Unfit
			switch takers := f.takers(s.ID.Cluster); {
			case len(takers) > 0 && !keeps && (!placed || f.replica(to).Unfit.Of(s.ID.Cluster) != plan.Fit ||
				f.replica(to).Leaving):
				t.Errorf("%s stays with %q, though %d are fit for it", s.ID, to, len(takers))
			case len(takers) == 0 && placed && to != s.Holder && to != s.Assignee:
				t.Errorf("%s goes to %q, though nobody is fit for it", s.ID, to)
			case len(takers) == 0 && holder != nil && !holder.Leaving && to != s.Holder:
				t.Errorf("%s doesn't stay with %q, though nobody is fit for it", s.ID, s.Holder)
			}
		}
	})
}

// Where the same replicas are unfit for the same clusters, the fullest has at most one shard more than it must have.
func TestOneSetOfUnfitReplicasIsBalancedWithinOneShardOfTheBest(t *testing.T) {
	most := func(counts map[plan.Incarnation]int) int {
		return slices.Max(append(slices.Collect(maps.Values(counts)), 0))
	}
	rapid.Check(t, func(t *rapid.T) {
		f := drawTiny(t, 1, false)
		unfit := plan.NewUnfitFor(map[keyspace.ClusterName]plan.Fitness{"c0": plan.Unfit, "c1": plan.Fit})
		for i := range f.replicas {
			if i > 0 && rapid.Bool().Draw(t, "unfit") {
				f.replicas[i].Unfit = unfit
			}
		}
		if got, best := most(f.counts()), f.best(most).unbalance; got > best+1 {
			t.Errorf("the fullest has %d, and could have %d", got, best)
		}
	})
}

func TestTheWordOnWhatAReplicaIsUnfitForIsReadAsItWasMeant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		meant := rapid.MapOfN(
			rapid.Custom(func(t *rapid.T) keyspace.ClusterName {
				return keyspace.ClusterName(rapid.StringMatching(`[a-c]{1,2}[a-z.,+!%-]{0,9}`).Draw(t, "name"))
			}),
			rapid.SampledFrom([]plan.Fitness{plan.Fit, plan.Keeps, plan.Unfit}), 0, 40,
		).Draw(t, "meant")
		said := plan.NewUnfitFor(meant)
		for cluster, fitness := range meant {
			if got := said.Of(cluster); got != fitness {
				t.Errorf("%q says %d of %s, want %d", said, got, cluster, fitness)
			}
		}
		if again := plan.NewUnfitFor(meant); again != said {
			t.Errorf("said in two ways: %q and %q", said, again)
		}
	})
}

// Such are the names of multicluster-runtime's file provider.
func TestAClusterWhoseNameHasAPlusIsServedByWhoCan(t *testing.T) {
	const cluster = "/a/kubeconfig.yaml+west"
	unfit := plan.NewUnfitFor(map[keyspace.ClusterName]plan.Fitness{cluster: plan.Unfit})
	id := keyspace.ShardID{Cluster: cluster}
	got := plan.Plan([]plan.Shard{{ID: id, Holder: "r1", Assignee: "r1"}},
		[]plan.Replica{{ID: "r1", Name: "r1", Unfit: unfit}, {ID: "r2", Name: "r2"}})
	want := []plan.Move{{Shard: id, From: "r1", To: "r2", Reason: plan.Elsewhere}}
	expect.Equal(t, "plan", want, got)
}

func TestTheWordOnWhatAReplicaIsUnfitForIsShort(t *testing.T) {
	most := map[keyspace.ClusterName]plan.Fitness{"good": plan.Fit, "slow": plan.Keeps}
	half := map[keyspace.ClusterName]plan.Fitness{}
	for i := range 20_000 {
		most[keyspace.ClusterName(fmt.Sprintf("c%d", i))] = plan.Unfit
		half[keyspace.ClusterName(fmt.Sprintf("cluster-%d", i))] = []plan.Fitness{plan.Fit, plan.Unfit}[i%2]
	}
	if got := plan.NewUnfitFor(most); got != "!good,slow+" {
		t.Errorf("unfit for nearly all: %q", got)
	}
	got := plan.NewUnfitFor(half)
	if len(got) > plan.MaxUnfitFor || len(got) < plan.MaxUnfitFor-20 || strings.HasSuffix(string(got), ",") {
		t.Errorf("unfit for half of 20,000 clusters: %d bytes, %q", len(got), got)
	}
	for name := range half {
		if got.Of(name) == plan.Unfit && half[name] == plan.Fit {
			t.Errorf("what there is no room for says that it is unfit for %s", name)
		}
	}
	if got := plan.NewUnfitFor(nil); got != "" {
		t.Errorf("fit for all: %q", got)
	}
	if got := plan.NewUnfitFor(map[keyspace.ClusterName]plan.Fitness{"a,b": plan.Unfit}); got != "a%2Cb" {
		t.Errorf("a name with a comma: %q", got)
	}
}

// What has no room in the text is taken for fit: its shards would stay where they can't be served.
func TestAReplicaSaysOfAThousandClustersWithLongNamesWhatItIsUnfitFor(t *testing.T) {
	name := func(i int) keyspace.ClusterName {
		return keyspace.ClusterName(fmt.Sprintf("prod-eu-west-%04d-a-cluster-with-a-name-of-sixty-characters", i))
	}
	for _, of := range []int{2, 3} { // half of them, and most of them
		meant := map[keyspace.ClusterName]plan.Fitness{}
		for i := range 1000 {
			meant[name(i)] = plan.Unfit
			switch {
			case i%of == 0:
				meant[name(i)] = plan.Fit
			case i%11 == 0:
				meant[name(i)] = plan.Keeps
			}
		}
		said := plan.NewUnfitFor(meant)
		for cluster, fitness := range meant {
			if got := said.Of(cluster); got != fitness {
				t.Fatalf("it says %d of %s, want %d", got, cluster, fitness)
			}
		}
	}
}

func TestPlanMakesTheMovesThatUnfitReplicasNeed(t *testing.T) {
	makes(t, map[string]due{
		"what its holder can't serve goes to one that can, before shards move for balance": {
			fleet: `r1 -a
				r2
				a/ r1
				b/00 r2
				b/01 r2
				b/10 r2`,
			want: []string{"a/ r1>r2 elsewhere", "b/10 r2>r1 balance", "b/01 r2>r1 balance"},
		},
		"what nobody can serve stays": {
			fleet: `r1 -a
				r2 -a
				a/0 r1
				a/1`,
		},
		"what nobody can serve stays with its holder, though it was to go": {
			fleet: `r1 -a
				r2 -a
				a/0 r1>r2
				a/1 r1`,
			want: []string{"a/0 r1>r1 called-off"},
		},
		"a move to one that can't serve it is called off": {
			fleet: `r1
				r2 -a
				a/ r1>r2`,
			want: []string{"a/ r1>r1 called-off"},
		},
		"an orphan whose assignee can't serve it goes elsewhere": {
			fleet: `r1 -a
				r2
				a/ >r1`,
			want: []string{"a/ >r2 orphan"},
		},
		"one that keeps what it has gets nothing more and loses nothing": {
			fleet: `r1 -a+
				r2
				a/00 r1
				a/01
				b/0
				b/1`,
			want: []string{"a/01 >r2 orphan", "b/0 >r1 orphan", "b/1 >r2 orphan"},
		},
		"a pin to one that can't serve it is no pin": {
			fleet: `r1 -a
				r2
				a/ r2 @r1`,
		},
		"a leaver's shards go to those who can serve them": {
			fleet: `r1 leaving
				r2 -a
				r3
				a/0 r1
				a/1 r1
				b/ r3`,
			want: []string{"a/0 r1>r3 leaving", "a/1 r1>r3 leaving", "b/ r3>r2 balance"},
		},
		"who is unfit for all gets nothing": {
			fleet: `r1
				r2 -!
				a/0 r1
				a/1
				b/`,
			want: []string{"a/1 >r1 orphan", "b/ >r1 orphan"},
		},
	})
}

func TestPlanningForUnfitReplicasStaysLinear(t *testing.T) {
	f := newFleet(500, 5000, 3) // half of the largest, so that the limit is far off with the race detector too
	f.place()
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range f.replicas { // each names fifty clusters: nearly each cluster is a group of its own
		said := map[keyspace.ClusterName]plan.Fitness{}
		for range 50 {
			said[keyspace.ClusterName(fmt.Sprintf("c%05d", rng.IntN(5000)))] = plan.Unfit
		}
		f.replicas[i].Unfit = plan.NewUnfitFor(said)
	}
	start := machine.ProcessorTime()
	moves := f.plan()
	if took := machine.ProcessorTime() - start; took > 8*time.Second || len(moves) == 0 {
		t.Errorf("planning took %v of processor time for %d moves, want less than 8 s", took, len(moves))
	} else {
		t.Logf("%v of processor time, %d moves", took, len(moves))
	}
}

func TestChangesNamesTheClustersAboutWhichTwoTextsDiffer(t *testing.T) {
	names := []keyspace.ClusterName{"a", "a+", "a!b", "a%2B", "b,c", "c"}
	rapid.Check(t, func(t *rapid.T) {
		draw := func() plan.UnfitFor {
			said := map[keyspace.ClusterName]plan.Fitness{}
			for _, name := range names {
				said[name] = rapid.SampledFrom([]plan.Fitness{plan.Fit, plan.Keeps, plan.Unfit}).Draw(t, string(name))
			}
			word := plan.NewUnfitFor(said)
			if rapid.IntRange(0, 3).Draw(t, "others") > 0 {
				return word
			}
			var fit []string // a long list is turned round, and these are short
			for _, name := range names {
				text := string(plan.NewUnfitFor(map[keyspace.ClusterName]plan.Fitness{name: plan.Unfit}))
				switch said[name] {
				case plan.Fit:
					fit = append(fit, text)
				case plan.Keeps:
					fit = append(fit, text+"+")
				}
			}
			slices.Sort(fit)
			return plan.UnfitFor("!" + strings.Join(fit, ","))
		}
		was, is := draw(), draw()
		changed, all := was.Changes(is)
		if all {
			if strings.HasPrefix(string(was), "!") == strings.HasPrefix(string(is), "!") {
				t.Errorf("%q and %q may differ about any cluster", was, is)
			}
			return
		}
		var want []keyspace.ClusterName
		for _, name := range names {
			if was.Of(name) != is.Of(name) {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		if !slices.Equal(changed, want) {
			t.Errorf("%q and %q differ about %q, want %q", was, is, changed, want)
		}
	})
}
