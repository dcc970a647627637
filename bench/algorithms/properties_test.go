package algorithms

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Each test holds an algorithm to what its paper or its documentation promises, so
// that the comparison is with the algorithm and not with a poor copy.

// failer is what *testing.T and *rapid.T have in common here.
type failer interface{ Fatalf(string, ...any) }

func named(t failer, name string) Algorithm {
	all := All()
	i := slices.IndexFunc(all, func(a Algorithm) bool { return a.Name == name })
	if i < 0 {
		t.Fatalf("no algorithm is called %q", name)
	}
	return all[i]
}

func replicaNames(n int) []string { return Config{Names: Sequential}.replicaNames(n) }

// place returns, for each key, the index of its replica. before gives the present replicas in the same form.
func (a Algorithm) place(keys []Key, replicas []string, before []int32) []int32 {
	d := a.prepare(keys, replicas, before)
	d.decide()
	return d.places()
}

// start places keys that are nowhere yet.
func start(a Algorithm, keys []Key, replicas []string) []int32 {
	return a.place(keys, replicas, slices.Repeat([]int32{nowhere}, len(keys)))
}

func TestEveryAlgorithmPlacesEveryKeyTheSameEachTime(t *testing.T) {
	for _, a := range All() {
		t.Run(a.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				keys := newKeys(rapid.IntRange(1, 20).Draw(t, "clusters"), rapid.IntRange(0, 3).Draw(t, "bits"))
				replicas := replicaNames(rapid.IntRange(1, 20).Draw(t, "replicas"))
				places := start(a, keys, replicas)
				if diff := cmp.Diff(places, start(a, keys, replicas)); diff != "" {
					t.Fatalf("two calls differ:\n%s", diff)
				}
				for i, at := range places {
					if at < 0 || int(at) >= len(replicas) {
						t.Fatalf("%s is placed with replica %d of %d", keys[i].Text, at, len(replicas))
					}
				}
			})
		})
	}
}

// On a join, consistent algorithms move keys only to the joiner; this is what Karger
// et al. call monotonicity.
func TestAJoinMovesKeysOnlyToTheJoiner(t *testing.T) {
	for _, name := range []string{"planner", "ring-100", "rendezvous-fnv", "rendezvous-mixed", "jump"} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				a, keys := named(t, name), newKeys(rapid.IntRange(1, 50).Draw(t, "clusters"), 3)
				replicas := replicaNames(rapid.IntRange(2, 20).Draw(t, "replicas"))
				joiner := int32(len(replicas) - 1)
				before := start(a, keys, replicas[:joiner])
				after := a.place(keys, replicas, before)
				for i := range keys {
					if after[i] != before[i] && after[i] != joiner {
						t.Fatalf("%s moved from %d to %d, the joiner is %d", keys[i].Text, before[i], after[i], joiner)
					}
				}
			})
		})
	}
}

// On a leave, consistent algorithms move only the leaver's keys. Jump hash promises that only if the last bucket
// leaves, so it isn't tested here.
func TestALeaveMovesOnlyTheLeaversKeys(t *testing.T) {
	for _, name := range []string{"planner", "ring-100", "rendezvous-fnv", "rendezvous-mixed"} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				config := Config{
					Replicas:   []int{rapid.IntRange(2, 20).Draw(t, "replicas")},
					Clusters:   []int{rapid.IntRange(1, 50).Draw(t, "clusters")},
					PrefixBits: 3, Names: Random, Seed: rapid.Uint64().Draw(t, "names"), Runs: 1,
				}
				row := config.compare(named(t, name), newKeys(config.Clusters[0], 3), config.replicaNames(config.Replicas[0]+1))
				if row.Leave.Moves != row.Leave.Minimal {
					t.Fatalf("%d shards moved, the leaver had %d", row.Leave.Moves, row.Leave.Minimal)
				}
			})
		})
	}
}

func TestThePlannerIsExactlyBalancedAndMovesTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := Config{Names: Sequential, Runs: 1}
		clusters, replicas := rapid.IntRange(1, 60).Draw(t, "clusters"), rapid.IntRange(2, 40).Draw(t, "replicas")
		row := config.compare(named(t, "planner"), newKeys(clusters, 3), config.replicaNames(replicas+1))
		if row.MaxOverMean != row.BestMaxOverMean {
			t.Errorf("max/mean is %v, the best is %v", row.MaxOverMean, row.BestMaxOverMean)
		}
		if row.Join.Moves != row.Join.Minimal || row.Leave.Moves != row.Leave.Minimal {
			t.Errorf("join %+v, leave %+v: want the least", row.Join, *row.Leave)
		}
	})
}

func TestJumpKeepsItsPublishedVectors(t *testing.T) {
	tests := []struct {
		key     uint64
		buckets int
		want    int32
	}{
		{1, 1, 0}, {42, 57, 43}, {0xDEAD10CC, 1, 0}, {0xDEAD10CC, 666, 361}, {256, 1024, 520},
	}
	for _, test := range tests {
		if got := jumpTo(test.key, test.buckets); got != test.want {
			t.Errorf("key %#x over %d buckets is in %d, want %d", test.key, test.buckets, got, test.want)
		}
	}
}
