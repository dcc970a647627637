package plan_test

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenure-dev/tenure/shard/plan"
)

func TestLoadMovesShardsOnlyAboveTheLimitAndKeepsCounts(t *testing.T) {
	const exchange = `r1
		r2
		w/00 r1 30
		w/01 r1 30
		w/10 r2 10
		w/11 r2 10`
	tests := map[string]struct {
		fleet  string
		limits plan.Limits
		want   []string
	}{
		"two are exchanged": {
			fleet: exchange, limits: plan.Limits{Imbalance: 0.2},
			want: []string{"w/00 r1>r2 load", "w/10 r2>r1 load"},
		},
		"nothing below the limit":       {fleet: exchange, limits: plan.Limits{Imbalance: 0.5}},
		"nothing when load isn't asked": {fleet: exchange},
		"half an exchange isn't begun":  {fleet: exchange, limits: plan.Limits{Imbalance: 0.2, MaxInMotion: 1}},
		"the odd shard moves alone": {
			fleet: `r1
				r2
				w/00 r1 10
				w/01 r1 10
				w/10 r2 5`,
			limits: plan.Limits{Imbalance: 0.2},
			want:   []string{"w/00 r1>r2 load"},
		},
		"a shard too heavy for any place stays": {
			fleet: `r1
				r2
				w/0 r1 100
				w/1 r2 1`,
			limits: plan.Limits{Imbalance: 0.2},
		},
		"a replica beside a stuck one is still relieved": {
			fleet: `r1
				r2
				r3
				w/000 r1 200
				w/001 r1 1
				w/010 r2 50
				w/011 r2 60
				w/100 r3 1
				w/101 r3 1`,
			limits: plan.Limits{Imbalance: 0.02},
			want:   []string{"w/011 r2>r3 load", "w/100 r3>r2 load"},
		},
		"pinned shards stay": {
			fleet: `r1
				r2
				w/00 r1 30 @r1
				w/01 r1 30 @r1
				w/10 r2 10
				w/11 r2 10`,
			limits: plan.Limits{Imbalance: 0.2},
		},
		"once above the limit, half of it is aimed at": {
			fleet: `r1
				r2
				w/000 r1 10
				w/001 r1 10
				w/010 r1 10
				w/011 r1 10
				w/100 r2 2
				w/101 r2 2
				w/110 r2 2
				w/111 r2 2`,
			limits: plan.Limits{Imbalance: 0.5},
			want: []string{
				"w/000 r1>r2 load", "w/111 r2>r1 load",
				"w/001 r1>r2 load", "w/100 r2>r1 load",
			},
		},
		"nothing is given to an outgoing replica in exchange": {
			fleet: `r1 v1
				r2 v2
				w/00 r1 30
				w/01 r1 30
				w/10 r2 10
				w/11 r2 10`,
			limits: plan.Limits{Imbalance: 0.2, Version: "v2"},
		},
		"an outgoing replica isn't loaded further": {
			fleet: `r1 v2
				r2 v1
				w/00 r1 30
				w/01 r1 30
				w/10 r2 10
				w/11 r2 10`,
			limits: plan.Limits{Imbalance: 0.2, Version: "v2"},
		},
		"counts come first": {
			fleet: `r1
				r2
				w/00 r1 1
				w/01 r1 1
				w/10 r1 50
				w/11 r2 90`,
			limits: plan.Limits{Imbalance: 0.2},
			want:   []string{"w/10 r1>r2 balance"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := parse(t, test.fleet)
			f.limits = test.limits
			if diff := cmp.Diff(test.want, lines(f.plan())); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoadThatIsNoPositiveNumberCountsAsNone(t *testing.T) {
	for _, load := range []float64{0, -100, math.NaN(), math.Inf(1), math.Inf(-1)} {
		f := parse(t, `r1
			r2
			w/00 r1 30
			w/01 r1 30
			w/10 r2 10
			w/11 r2`)
		f.limits.Imbalance = 0.2
		f.shards[3].Load = load
		want := []string{"w/00 r1>r2 load", "w/10 r2>r1 load"}
		if diff := cmp.Diff(want, lines(f.plan())); diff != "" {
			t.Errorf("load %v: plan (-want +got):\n%s", load, diff)
		}
	}
}

// peak is the highest load per unit of weight over the mean.
func (f fleet) peak() float64 {
	at := map[plan.Incarnation]float64{}
	target := f.target()
	var sum float64
	for _, s := range f.shards {
		at[target[s.ID]] += s.Load
		sum += s.Load
	}
	weight, peak := 0, 0.0
	for _, r := range f.candidates() {
		weight += max(r.Weight, 1)
		peak = max(peak, at[r.ID]/float64(max(r.Weight, 1)))
	}
	if sum == 0 {
		return 1
	}
	return peak * float64(weight) / sum
}

func TestBalancingLoadKeepsCountsLowersThePeakAndSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(rapid.IntRange(1, 6).Draw(t, "replicas"), rapid.IntRange(1, 6).Draw(t, "clusters"), 3)
		for i := range f.replicas {
			f.replicas[i].Weight = rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "weight")
		}
		f.settle(t)
		for i := range f.shards {
			f.shards[i].Load = float64(rapid.IntRange(0, 30).Draw(t, "load"))
		}
		counts, before := f.counts(), f.peak()

		f.limits.Imbalance = rapid.SampledFrom([]float64{0.05, 0.2, 1}).Draw(t, "imbalance")
		moves := f.plan()
		if after := f.peak(); after > before || len(moves) > 0 && before <= 1+f.limits.Imbalance {
			t.Errorf("%d moves take the peak from %.3f to %.3f of the mean", len(moves), before, after)
		}
		checkQuota(t, f, counts)
		// A shard moves once in a plan, so a second plan may still find a step.
		f.settle(t)
		if after := f.peak(); after > before {
			t.Errorf("settling takes the peak from %.3f to %.3f of the mean", before, after)
		}
		checkQuota(t, f, counts)
	})
}

// checkQuota says when load moves gave a replica more than its rounded share.
func checkQuota(t *rapid.T, f fleet, before map[plan.Incarnation]int) {
	t.Helper()
	weight := 0
	for _, r := range f.replicas {
		weight += r.Weight
	}
	after := f.counts()
	for _, r := range f.replicas {
		over := after[r.ID]*weight - len(f.shards)*r.Weight
		if over >= weight || over <= -weight {
			t.Errorf("balancing load takes counts from %v to %v", before, after)
		}
	}
}

func TestLoadIsNearlyEvenWhenShardsAreMany(t *testing.T) {
	f := newFleet(5, 50, 3)
	f.settle(t)
	for i := range f.shards {
		f.shards[i].Load = float64(1 + i*i%97)
	}
	f.limits = plan.Limits{Imbalance: 0.02}
	f.assign(f.plan())
	f.land(always)
	if peak := f.peak(); peak > 1.02 {
		t.Errorf("the peak is %.3f of the mean", peak)
	}
	if counts := slices.Sorted(maps.Values(f.counts())); counts[0] != 80 || counts[4] != 80 {
		t.Errorf("counts are %v, want 80 each", counts)
	}
}
