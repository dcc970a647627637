package stats

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestPercentilesAreThoseOfTheSamplesWithinThreeDigits(t *testing.T) {
	var l Latencies
	for i := 1; i <= 10_000; i++ {
		l.Add(time.Duration(i) * 100 * time.Microsecond)
	}
	q := l.Quantiles()
	for name, c := range map[string]struct{ got, want float64 }{
		"p50": {q.P50, 500}, "p90": {q.P90, 900}, "p99": {q.P99, 990}, "p99.9": {q.P999, 999}, "max": {q.Max, 1000},
		"mean": {q.Mean, 500},
	} {
		if math.Abs(c.got-c.want) > c.want/500 {
			t.Errorf("%s is %v, want %v", name, c.got, c.want)
		}
	}
	for i := 1; i < len(q.Curve); i++ {
		if q.Curve[i].X <= q.Curve[i-1].X || q.Curve[i].Y < q.Curve[i-1].Y {
			t.Errorf("the curve falls at %v", q.Curve[i])
		}
	}
}

func TestNoMeasurementIsNotZero(t *testing.T) {
	var l Latencies
	if q := l.Quantiles(); q != nil {
		t.Errorf("got %v, want nil", q)
	}
}

func TestACurveDoesNotShowPercentilesThatItsSamplesCanNotResolve(t *testing.T) {
	var l Latencies
	for range 10 {
		l.Add(time.Millisecond)
	}
	for _, p := range l.Quantiles().Curve {
		if p.X > 0.95 && p.X < 1 {
			t.Errorf("10 samples have no percentile %v", p.X)
		}
	}
}

func TestDurationsOutOfRangeCountAtItsEnds(t *testing.T) {
	var l Latencies
	l.Add(-time.Second)
	l.Add(10 * time.Hour)
	q := l.Quantiles()
	if q.P50 != 0 || math.Abs(q.Max-3.6e6) > 3.6e3 {
		t.Errorf("got p50 %v, max %v", q.P50, q.Max)
	}
}

func TestMergedCollectionsAreAsOne(t *testing.T) {
	var a, b, none, all Latencies
	for i := range 100 {
		d := time.Duration(i) * time.Millisecond
		all.Add(d)
		if i%3 == 0 {
			a.Add(d)
		} else {
			b.Add(d)
		}
	}
	none.Merge(&a)
	none.Merge(&b)
	none.Merge(&Latencies{})
	if got, want := *none.Quantiles(), *all.Quantiles(); got.N != want.N || got.P99 != want.P99 || got.P50 != want.P50 {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// rounds makes n rounds of two fleets whose true ratio is given. Both share a drift of the machine, each has noise.
func rounds(rng *rand.Rand, n int, ratio, noise float64) (ours, theirs []float64) {
	for i := range n {
		drift := 100 * (1 + 0.3*math.Sin(float64(i)))
		ours = append(ours, ratio*drift*math.Exp(noise*rng.NormFloat64()))
		theirs = append(theirs, drift*math.Exp(noise*rng.NormFloat64()))
	}
	return ours, theirs
}

func TestTheIntervalHoldsTheTrueRatioAboutAsOftenAsItSays(t *testing.T) {
	for _, n := range []int{4, 8, 16} {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		const runs = 200
		held := 0
		for range runs {
			ours, theirs := rounds(rng, n, 1, 0.05)
			r, ok := Compare(ours, theirs, rng)
			if !ok {
				t.Fatal("not comparable")
			}
			if *r.Low <= 1 && 1 <= *r.High {
				held++
			}
		}
		if share := float64(held) / runs; share < 0.93 {
			t.Errorf("%d rounds: the interval held the true ratio in %.1f %% of the runs, want 95", n, 100*share)
		}
	}
}

// Each run has a bias of its own, larger than its turns' noise: turns that were drawn one by one would promise an
// interval several times too narrow.
func TestTheIntervalOfPooledTurnsHoldsTheTruthWhereRunsDiffer(t *testing.T) {
	const tries, runs, turns = 200, 6, 30
	rng := rand.New(rand.NewPCG(7, 8))
	held, alone := 0, 0
	for range tries {
		var ours, theirs [][]float64
		var flatOurs, flatTheirs []float64
		for range runs {
			a, b := rounds(rng, turns, math.Exp(0.03*rng.NormFloat64()), 0.02)
			ours, theirs = append(ours, a), append(theirs, b)
			flatOurs, flatTheirs = append(flatOurs, a...), append(flatTheirs, b...)
		}
		pooled, ok := ComparePooled(ours, theirs, rng)
		single, _ := Compare(flatOurs, flatTheirs, rng)
		if !ok || pooled.Rounds != runs*turns || pooled.Runs != runs || math.Abs(pooled.Value-single.Value) > 1e-9 {
			t.Fatalf("got %+v, %v beside %+v", pooled, ok, single)
		}
		if *pooled.Low <= 1 && 1 <= *pooled.High {
			held++
		}
		if *single.Low <= 1 && 1 <= *single.High {
			alone++
		}
	}
	if held < tries*92/100 || alone > tries/2 {
		t.Errorf("drawn by run %d of %d intervals hold the truth, by turn %d; want 95 %%, and few", held, tries, alone)
	}
	if r, ok := ComparePooled([][]float64{{1, 2}, {1, 2}, {1, 2}}, [][]float64{{1, 1}, {1, 1}, {1, 1}}, rng); !ok ||
		r.Low != nil {
		t.Errorf("three runs gave %+v, %v; want a ratio without an interval", r, ok)
	}
}

func TestAMeanHasTheIntervalOfItsSample(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	r, ok := Mean([]float64{-1, 0, 1, 0, -1, 1}, rng)
	if !ok || math.Abs(r.Value) > 1e-9 || *r.Low > -0.3 || *r.High < 0.3 {
		t.Errorf("got %+v, %v", r, ok)
	}
	for name, values := range map[string][]float64{"nothing": nil, "not a number": {1, math.NaN()}} {
		if _, ok := Mean(values, rng); ok {
			t.Errorf("%s has a mean", name)
		}
	}
}

func TestADifferenceOfFivePercentIsFound(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 3))
	ours, theirs := rounds(rng, 12, 1.05, 0.02)
	r, _ := Compare(ours, theirs, rng)
	if *r.Low <= 1 || math.Abs(r.Value-1.05) > 0.02 {
		t.Errorf("got %v [%v, %v], want 1.05 and an interval above 1", r.Value, *r.Low, *r.High)
	}
}

func TestWhatIsMissingIsNotCompared(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for name, c := range map[string]struct{ ours, theirs []float64 }{
		"nothing":         {nil, nil},
		"unequal rounds":  {[]float64{1, 2}, []float64{1}},
		"zero":            {[]float64{1, 2}, []float64{1, 0}},
		"not a number":    {[]float64{1, math.NaN()}, []float64{1, 1}},
		"negative figure": {[]float64{-1, 1}, []float64{1, 1}},
	} {
		if r, ok := Compare(c.ours, c.theirs, rng); ok {
			t.Errorf("%s: got %v", name, r)
		}
	}
}

func TestAnIntervalIsFiniteWhateverTheRounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, ours := range [][]float64{{1, 1, 1, 100}, {1, 1, 1.0000001, 3}, {1, 1.0001, 50, 50.0001}, {2, 2, 2, 2}} {
		r, ok := Compare(ours, []float64{1, 1, 1, 1}, rng)
		if !ok || math.IsInf(*r.High, 0) || math.IsNaN(*r.Low) || *r.Low > r.Value || *r.High < r.Value {
			t.Errorf("%v: %v [%v, %v]", ours, r.Value, *r.Low, *r.High)
		}
	}
}

// A threshold is held against the interval's end, so one stalled round must move that at least as far as Student's
// interval would.
func TestOneStalledRoundWidensTheInterval(t *testing.T) {
	for _, c := range []struct {
		values  []float64
		student float64 // quantile 0.975 of Student's t
	}{
		{[]float64{20, 20, 20, 20, 20, 20, 20, 3000}, 2.365},
		{[]float64{20, 21, 19, 23, 22, 20, 18, 3000}, 2.365},
		{[]float64{20, 21, 19, 3000}, 3.182},
		{[]float64{-20, -21, -19, -3000}, 3.182},
	} {
		mean, err := meanAndError(each(c.values))
		r, _ := Mean(c.values, rand.New(rand.NewPCG(1, 2)))
		off := *r.High - mean
		if mean < 0 {
			off = mean - *r.Low
		}
		if off < c.student*err {
			t.Errorf("%v: %v [%v, %v], want %v more at the side of the stall", c.values, r.Value, *r.Low, *r.High,
				c.student*err)
		}
	}
}

func TestFewRoundsGiveARatioWithoutAnInterval(t *testing.T) {
	r, ok := Compare([]float64{2, 2, 2}, []float64{1, 1, 1}, rand.New(rand.NewPCG(1, 1)))
	if !ok || math.Abs(r.Value-2) > 1e-9 || r.Low != nil {
		t.Errorf("got %+v, %v", r, ok)
	}
}
