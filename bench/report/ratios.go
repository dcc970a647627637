package report

import (
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/bench/stats"
)

// Column is a figure of all rounds, nil if one of them lacks it.
func Column(rounds []Round, figure string) []float64 {
	var values []float64
	for _, r := range rounds {
		v, ok := r.Figures[figure]
		if !ok {
			return nil
		}
		values = append(values, v)
	}
	return values
}

// Figured are the names of the figures that the first round has, sorted.
func Figured(rounds []Round) []string {
	if len(rounds) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(rounds[0].Figures))
}

// Ratios compares rounds in turns by every figure that both have in all of them, the first over the second. There is a
// list of rounds for each run; several runs are resampled whole.
func Ratios(a, b [][]Round, rng *rand.Rand) map[string]stats.Ratio {
	out := map[string]stats.Ratio{}
	if len(a) == 0 || len(a) != len(b) {
		return out
	}
	for _, figure := range Figured(a[0]) {
		var ours, theirs [][]float64
		for i := range a {
			ours, theirs = append(ours, Column(a[i], figure)), append(theirs, Column(b[i], figure))
		}
		ratio, ok := stats.ComparePooled(ours, theirs, rng)
		if len(a) == 1 {
			ratio, ok = stats.Compare(ours[0], theirs[0], rng)
		}
		if ok {
			out[figure] = ratio
		}
	}
	return out
}

// AllRatios compares the sharded fleets of one or more runs with what each ran beside: with its references, in turns
// with what it does otherwise, and beside each noise with the fleet that serves it apart. Ratios are by
// figure/reference, or by figure/noise.
func AllRatios(runs []*Report, turns string, rng *rand.Rand) map[string]stats.Ratio {
	out := map[string]stats.Ratio{}
	compare := func(name string, ours, theirs func(*Report) []Round) {
		var a, b [][]Round
		for _, r := range runs {
			a, b = append(a, ours(r)), append(b, theirs(r))
		}
		for figure, ratio := range Ratios(a, b, rng) {
			out[figure+"/"+name] = ratio
		}
	}
	for _, name := range slices.Sorted(maps.Keys(runs[0].References)) {
		compare(name, func(r *Report) []Round { return r.Results.Rounds }, func(r *Report) []Round {
			if r.References[name] == nil {
				return nil
			}
			return r.References[name].Rounds
		})
	}
	for _, name := range slices.Sorted(maps.Keys(runs[0].Results.Noises)) {
		compare(name, func(r *Report) []Round { return r.Results.Noises[name].Rounds }, func(r *Report) []Round {
			if control := r.References[string(scenario.Apart)]; control != nil {
				return control.Noises[name].Rounds
			}
			return nil
		})
	}
	for _, name := range slices.Sorted(maps.Keys(runs[0].Results.Turns)) {
		if name != turns {
			compare(name, func(r *Report) []Round { return r.Results.Turns[turns] },
				func(r *Report) []Round { return r.Results.Turns[name] })
		}
	}
	return out
}

// patience is how many times the control's 99th percentile the others may take beside a noise before what is beyond
// counts.
const patience = 1.5

// Excesses say, for each noise that was also served by a fleet of its own (apart), by how much the 99th percentile of
// the other clusters' Ats is beyond 1.5 times that of the control, in ms: a mean over rounds in turns, or over runs.
// Below zero they are within. A noise that wasn't measured in all rounds of both fleets is absent.
func Excesses(runs []*Report, rng *rand.Rand) map[string]stats.Ratio {
	out := map[string]stats.Ratio{}
	for _, name := range slices.Sorted(maps.Keys(runs[0].Results.Noises)) {
		if len(runs) == 1 {
			if mean, ok := stats.Mean(runs[0].beyond(name), rng); ok {
				out[ExcessOf(name)] = mean
			}
			continue
		}
		var means []float64
		for _, r := range runs {
			if mean, ok := stats.Mean(r.beyond(name), rng); ok {
				means = append(means, mean.Value)
			}
		}
		if len(means) == len(runs) { // what a run lacks the pool lacks
			mean, _ := stats.Mean(means, rng)
			mean.Runs = len(runs)
			out[ExcessOf(name)] = mean
		}
	}
	return out
}

// beyond is the excess beside a noise in each round, nil if it wasn't measured in all rounds of both fleets.
func (r *Report) beyond(noise string) []float64 {
	control := r.References[string(scenario.Apart)]
	if control == nil {
		return nil
	}
	out := Column(r.Results.Noises[noise].Rounds, "neighbour_ms.p99")
	theirs := Column(control.Noises[noise].Rounds, "neighbour_ms.p99")
	if len(out) != len(theirs) {
		return nil
	}
	for i := range out {
		out[i] -= patience * theirs[i]
	}
	return out
}

// ExcessOf is the path of a noise's excess among the intervals.
func ExcessOf(noise string) string { return "neighbours." + noise + ".excess_ms" }

// Intervals are those of the fleet's own figures, over its rounds.
func Intervals(r *Report, rng *rand.Rand) map[string]stats.Ratio {
	out := map[string]stats.Ratio{}
	if len(r.Config.Load.Rates) > 0 {
		return out // each round is of another rate
	}
	for _, figure := range Figured(r.Results.Rounds) {
		if mean, ok := stats.Mean(Column(r.Results.Rounds, figure), rng); ok && mean.Low != nil {
			out["results."+figure] = mean
		}
	}
	return out
}
