package algorithms

import (
	"fmt"
	"math"
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

// start places keys that are nowhere yet.
func start(a Algorithm, keys []Key, replicas []string) []int32 {
	return a.Place(keys, replicas, slices.Repeat([]int32{nowhere}, len(keys)))
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
				after := a.Place(keys, replicas, before)
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

func TestAHundredTokensSpreadARingByATenth(t *testing.T) {
	// With t tokens each, a replica's part of the ring has a relative standard
	// deviation of about 1/sqrt(t): the tokens' gaps are nearly exponential.
	const replicas = 400
	owned := make([]float64, replicas)
	points := newRing(replicaNames(replicas))
	for i, point := range points {
		gap := point.at - points[(i+len(points)-1)%len(points)].at
		owned[point.replica] += float64(gap) / math.MaxUint64 * replicas
	}
	var squares float64
	for _, part := range owned {
		squares += (part - 1) * (part - 1)
	}
	if deviation := math.Sqrt(squares / replicas); deviation < 0.085 || deviation > 0.115 {
		t.Errorf("the parts deviate by %.3f, want about 0.1", deviation)
	}
}

func TestBoundedLoadsKeepTheBoundAndMoveAConstantNumberOfShares(t *testing.T) {
	a, keys := named(t, "bounded-1.25"), newKeys(1000, 3)
	for _, n := range []int{2, 3, 10, 100, 1000} {
		replicas := replicaNames(n + 1)
		before := start(a, keys, replicas[:n])
		limit := capacity(len(keys), n)
		if most := slices.Max(countPlaces(before, n)); most > limit {
			t.Errorf("%d replicas: one has %d keys, the bound is %d", n, most, limit)
		}
		moves := 0
		for i, at := range a.Place(keys, replicas, before) {
			if at != before[i] {
				moves++
			}
		}
		// The paper: O(1/epsilon²) moves for each key of the bin that comes or goes.
		if most := float64(len(keys)) / float64(n) / (slack * slack); float64(moves) > most {
			t.Errorf("%d replicas: a join moves %d keys, want at most %.0f", n, moves, most)
		}
	}
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

func TestJumpBalancesWithinWhatChanceExplains(t *testing.T) {
	// The paper's table: the standard deviation of the buckets' sizes is that of
	// throwing keys at random. Four deviations are a chance of one in 16,000 a bucket.
	const buckets, keys = 100, 1_000_000
	counts := make([]int, buckets)
	for key := range uint64(keys) {
		counts[jumpTo(mix(key), buckets)]++
	}
	mean := float64(keys) / buckets
	for bucket, n := range counts {
		if math.Abs(float64(n)-mean) > 4*math.Sqrt(mean) {
			t.Errorf("bucket %d has %d keys, the mean is %.0f", bucket, n, mean)
		}
	}
}

func TestModuloMovesNearlyEveryKeyOnAJoin(t *testing.T) {
	// A key stays only if its hash has the same remainder by n and by n+1: 1 in n+1.
	a, keys, replicas := named(t, "modulo"), newKeys(5000, 3), replicaNames(11)
	before, after := start(a, keys, replicas[:10]), start(a, keys, replicas)
	stayed := 0
	for i := range keys {
		if before[i] == after[i] {
			stayed++
		}
	}
	if part := float64(stayed) / float64(len(keys)); part < 0.08 || part > 0.10 {
		t.Errorf("%.3f of the keys stay, want about 1/11", part)
	}
}

func TestRendezvousOverFNVIsSkewedByItsHashAndNotByItself(t *testing.T) {
	// The replicas' names differ in their last byte, and FNV-1a multiplies only
	// once after it, so the scores of one key hardly differ in their top bits.
	keys := make([]Key, 100_000)
	for i := range keys {
		keys[i].Text = fmt.Sprintf("cluster-%d", i)
	}
	replicas := []string{"x-0", "x-1", "x-2", "x-3", "x-4"}
	parts := func(name string) []float64 {
		shares := make([]float64, len(replicas))
		for i, n := range countPlaces(start(named(t, name), keys, replicas), len(replicas)) {
			shares[i] = float64(n) / float64(len(keys))
		}
		slices.Sort(shares)
		return shares
	}
	for name, want := range map[string][]float64{
		"rendezvous-fnv":   {0.125, 0.125, 0.125, 0.125, 0.5},
		"rendezvous-mixed": {0.2, 0.2, 0.2, 0.2, 0.2},
	} {
		got := parts(name)
		for i := range want {
			if math.Abs(got[i]-want[i]) > 0.01 {
				t.Errorf("%s: the parts are %.3f, want %v", name, got, want)
				break
			}
		}
	}
}
