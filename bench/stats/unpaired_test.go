package stats

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tenure-dev/tenure/test/expect"
)

func TestRankSumsAreThoseOfTheTables(t *testing.T) {
	expect.Equal(t, "two and two", []float64{1, 1, 2, 1, 1}, rankSums(2, 2))
	// The statistic's critical values for a two-sided test at 5 %, plus one.
	for _, c := range []struct{ n, m, want int }{{3, 3, 0}, {4, 4, 1}, {5, 5, 3}, {6, 6, 6}, {8, 8, 14}, {10, 10, 24},
		{20, 20, 128}, {8, 12, 23}} {
		if got := rankCut(c.n, c.m); got != c.want {
			t.Errorf("%d and %d: got %d, want %d", c.n, c.m, got, c.want)
		}
	}
	if exact, near := rankCut(40, 40), rankCut(41, 40); near-exact < 0 || near-exact > 25 {
		t.Errorf("the approximation doesn't go on where the table ends: %d, then %d", exact, near)
	}
}

func TestTheUnpairedIntervalHoldsTheTruth(t *testing.T) {
	const truth, runs, rounds = 1.05, 2000, 8
	rng := rand.New(rand.NewPCG(1, 2))
	draw := func(scale float64) []float64 {
		out := make([]float64, rounds)
		for i := range out {
			out[i] = scale * math.Exp(0.02*rng.NormFloat64())
			if rng.IntN(10) == 0 {
				out[i] *= 0.7 // another program disturbed it
			}
		}
		return out
	}
	held := 0
	for range runs {
		r, ok := CompareUnpaired(draw(truth), draw(1))
		if !ok {
			t.Fatal("not compared")
		}
		if *r.Low <= truth && truth <= *r.High {
			held++
		}
	}
	if share := float64(held) / runs; share < 0.945 {
		t.Errorf("%.3f of the intervals hold the truth, want 0.95", share)
	}
}

// The rounds are those of two runs on a busy machine, one of which has 5 % more work.
func TestOneDisturbedRoundDoesNotHideADifference(t *testing.T) {
	fast := []float64{75.4, 66.4, 72.5, 76.2, 75.5, 75.2, 74.3, 74.4}
	slow := []float64{70.1, 71.3, 71.6, 72.1, 72.3, 70.2, 70.2, 71.9}
	r, ok := CompareUnpaired(slow, fast)
	if !ok || r.Low == nil || *r.High >= 1 || r.Value < 0.94 || r.Value > 0.97 {
		t.Errorf("got %v of %v, want about 0.95 and less than 1", r, fast)
	}
}

func TestWhatIsMissingIsNotComparedUnpaired(t *testing.T) {
	if _, ok := CompareUnpaired([]float64{1, 0}, []float64{1, 2}); ok {
		t.Error("compared with zero")
	}
	if _, ok := CompareUnpaired(nil, []float64{1}); ok {
		t.Error("compared with nothing")
	}
	if r, ok := CompareUnpaired([]float64{2, 2}, []float64{1, 1}); !ok || r.Value != 2 || r.Low != nil {
		t.Errorf("got %+v, want 2 without an interval", r)
	}
}
