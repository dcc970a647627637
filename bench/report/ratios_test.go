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
	ours, theirs := []float64{100, 120, 90, 110}, []float64{80, 100, 60, 80} // beyond by -20, -30, 0, -10
	got := Excesses([]*Report{beside("late", ours, theirs)}, rng)["neighbours.late.excess_ms"]
	if math.Abs(got.Value+15) > 1e-9 || got.Low == nil || *got.Low > -20 || *got.High < -10 || *got.High > 30 {
		t.Errorf("got %+v, want a mean of -15 with an interval", got)
	}
	worse := beside("late", []float64{200, 220, 190, 210}, theirs)
	pooled := Excesses([]*Report{beside("late", ours, theirs), worse}, rng)["neighbours.late.excess_ms"]
	if math.Abs(pooled.Value-35) > 1e-9 || pooled.Low != nil || pooled.Runs != 2 {
		t.Errorf("got %+v of two runs, want a mean of 35 of two runs without an interval", pooled)
	}
}

// What wasn't measured hasn't held: no value stands in for it.
func TestANoiseThatWasNotMeasuredHasNoExcess(t *testing.T) {
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
		if got := Excesses(runs, rng); len(got) != 0 {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
