package report

import (
	"math"
	"math/rand/v2"
	"testing"
)

// beside is a run of a fleet and its control with these 99th percentiles of the others, in ms, in each round.
func beside(noise string, ours, theirs []float64) *Report {
	rounds := func(values []float64) map[string]Noisy {
		var out []Round
		for _, v := range values {
			figures := map[string]float64{}
			if v > 0 {
				figures["neighbour_ms.p99"] = v
			}
			out = append(out, Round{Figures: figures})
		}
		return map[string]Noisy{noise: {Rounds: out}}
	}
	return &Report{Results: &Results{Noises: rounds(ours)},
		References: map[string]*Results{"apart": {Noises: rounds(theirs)}}}
}

func TestTheOthersAreHeldAgainstThoseOfAFleetOfItsOwn(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	ours, theirs := []float64{140, 85, 110, 70}, []float64{80, 100, 60, 80} // of 140, 170, 110 and 140
	want := math.Sqrt(0.5)                                                  // 1, 1/2, 1 and 1/2
	got := AllRatios([]*Report{beside("late", ours, theirs)}, "", rng)[Allowed+"/late"]
	if math.Abs(got.Value-want) > 1e-9 || got.Low == nil || *got.Low > 0.6 || *got.High < 0.8 {
		t.Errorf("got %+v, want a geometric mean of %.3f with an interval", got, want)
	}
	short := beside("late", []float64{310, 310}, []float64{80, 80}) // of 620
	short.Config.Size = "small"
	if of := AllRatios([]*Report{short}, "", rng)[Allowed+"/late"]; math.Abs(of.Value-0.5) > 1e-9 {
		t.Errorf("got %+v in short rounds, want half of 1.5 times 80 ms, and 500 ms", of)
	}
	worse := beside("late", []float64{560, 340, 440, 280}, theirs)
	pooled := AllRatios([]*Report{beside("late", ours, theirs), worse}, "", rng)[Allowed+"/late"]
	if math.Abs(pooled.Value-2*want) > 1e-9 || pooled.Low != nil || pooled.Runs != 2 {
		t.Errorf("got %+v of two runs, want a mean of %.3f of two runs without an interval", pooled, 2*want)
	}
}

// A missing figure must not be replaced by any value: it would look as if the bound had been kept.
func TestANoiseThatWasNotMeasuredIsNotCompared(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	whole := beside("late", []float64{100}, []float64{80})
	without := beside("late", []float64{100}, nil)
	without.References = nil
	for name, runs := range map[string][]*Report{
		"none of the others in one round":     {beside("late", []float64{100, 0}, []float64{80, 80})},
		"none of the control's in one round":  {beside("late", []float64{100, 90}, []float64{80, 0})},
		"a round less in the control":         {beside("late", []float64{100, 90}, []float64{80})},
		"no control":                          {without},
		"one of two runs without that noise":  {whole, beside("silent", []float64{100}, []float64{80})},
		"one of two runs without the control": {whole, without},
	} {
		if got := AllRatios(runs, "", rng); len(got) != 0 {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestAFigureThatARoundLacksIsNotCompared(t *testing.T) {
	a := []Round{{Figures: map[string]float64{"x": 2, "y": 1, "z": 1}}, {Figures: map[string]float64{"x": 4, "y": 1}}}
	b := []Round{{Figures: map[string]float64{"x": 1, "z": 1}}, {Figures: map[string]float64{"x": 2, "z": 1}}}
	got := Ratios([][]Round{a}, [][]Round{b}, rand.New(rand.NewPCG(1, 1)))
	if len(got) != 1 || math.Abs(got["x"].Value-2) > 1e-9 {
		t.Errorf("got %v, want x alone, with 2", got)
	}
}

func TestAnEfficiencyHasAnIntervalWhereThereAreRounds(t *testing.T) {
	point := func(n int, rates ...float64) SweepPoint {
		res := &Results{}
		for _, rate := range rates {
			res.Rounds = append(res.Rounds, Round{Figures: map[string]float64{"reconciles_per_s": rate}})
		}
		return SweepPoint{Replicas: n, Results: res}
	}
	p := &Report{ScaleOut: &ScaleOut{},
		Sweep: []SweepPoint{point(1, 50, 51, 49, 50), point(4, 180, 182, 178, 181)}}
	got := sweepIntervals(p)["scale_out.efficiency.4"]
	if math.Abs(got.Value-0.9) > 0.01 || got.Low == nil || *got.Low < 0.85 || *got.High > 0.95 {
		t.Errorf("got %+v, want about 0.9 and its interval", got)
	}
	p.Sweep[1] = point(4, 180)
	if got := sweepIntervals(p); len(got) != 0 {
		t.Errorf("one round has the intervals %v", got)
	}
}
