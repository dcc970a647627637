package report

import (
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/tenure-dev/tenure/bench/stats"
)

// Ratios compares rounds in turns by every figure that both have in all of them: the first over the second.
func Ratios(a, b []Round, rng *rand.Rand) map[string]stats.Ratio {
	out := map[string]stats.Ratio{}
	if len(a) == 0 || len(b) == 0 {
		return out
	}
	for _, figure := range slices.Sorted(maps.Keys(a[0].Figures)) {
		column := func(rounds []Round) []float64 {
			var values []float64
			for _, r := range rounds {
				if v, ok := r.Figures[figure]; ok {
					values = append(values, v)
				}
			}
			return values
		}
		if ratio, ok := stats.Compare(column(a), column(b), rng); ok {
			out[figure] = ratio
		}
	}
	return out
}

// TurnRatios compares what a fleet does in turns with one of the things that it does, by figure/name.
func TurnRatios(turns map[string][]Round, with string, rng *rand.Rand) map[string]stats.Ratio {
	out := map[string]stats.Ratio{}
	for _, name := range slices.Sorted(maps.Keys(turns)) {
		if name == with {
			continue
		}
		for figure, ratio := range Ratios(turns[with], turns[name], rng) {
			out[figure+"/"+name] = ratio
		}
	}
	return out
}
