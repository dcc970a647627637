package report

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/bench/stats"
)

// Column returns a figure of all rounds, nil if a round lacks it.
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

// Figured returns the names of the figures that the first round has, sorted.
func Figured(rounds []Round) []string {
	if len(rounds) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(rounds[0].Figures))
}

// Ratios compares rounds that were run in turns, a over b, by every figure that all rounds of both have. There is a
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

// AllRatios compares the sharded fleets of one or more runs with what ran beside them: with the references; the
// turns of the given name with the other turns; and beside each noise with the fleet that serves the noisy cluster
// apart. The names of the ratios are figure/reference, figure/turn or figure/noise.
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
		compare(name, func(r *Report) []Round {
			return ofAllowed(r.Results.Noises[name].Rounds, func(p99 float64) float64 { return p99 })
		}, func(r *Report) []Round {
			if control := r.References[string(scenario.Apart)]; control != nil {
				return ofAllowed(control.Noises[name].Rounds, func(p99 float64) float64 { return patience*p99 + r.grace() })
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

// patience is the factor by which the 99th percentile of the others' Ats beside a noise may exceed the control's.
const patience = 1.5

// grace is how many ms it may be above that. The default size has one short round, which only shows what costs
// seconds.
func (r *Report) grace() float64 {
	if r.Config.Size == scenario.DefaultSize {
		return 500
	}
	return 20
}

// Allowed is a figure of rounds beside a noise: for our fleet the 99th percentile of the others' Ats, for the
// control the bound that it sets for ours. So the ratio of the two is at most 1 if the bound is kept.
const Allowed = "neighbour_ms.p99_of_allowed"

// ofAllowed adds the figure Allowed to rounds beside a noise, computed from the 99th percentile of the others' Ats.
func ofAllowed(rounds []Round, of func(p99 float64) float64) []Round {
	out := slices.Clone(rounds)
	for i := range out {
		if p99, ok := out[i].Figures["neighbour_ms.p99"]; ok {
			out[i].Figures = maps.Clone(out[i].Figures)
			out[i].Figures[Allowed] = of(p99)
		}
	}
	return out
}

// Derived computes a run's ratios and intervals from its rounds. They are the same however often they are computed.
// turns is the name that AllRatios takes.
func Derived(r *Report, turns string) (ratios, intervals map[string]stats.Ratio) {
	rng := rand.New(rand.NewPCG(r.Config.Load.Seed, 42))
	ratios, intervals = AllRatios([]*Report{r}, turns, rng), intervalsOf(r, rng)
	maps.Copy(intervals, sweepIntervals(r))
	return ratios, intervals
}

// intervalsOf returns the intervals of the fleet's own figures, over its rounds.
func intervalsOf(r *Report, rng *rand.Rand) map[string]stats.Ratio {
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

// sweepIntervals are those of a sweep's efficiencies and watch bytes, where there are enough rounds. The fleets of a
// sweep run one after the other, so rounds are not paired.
func sweepIntervals(p *Report) map[string]stats.Ratio {
	out := map[string]stats.Ratio{}
	if len(p.Sweep) < 2 {
		return out
	}
	base := p.Sweep[0]
	for _, point := range p.Sweep[1:] {
		add := func(path, figure string, over float64) {
			column := func(at SweepPoint) []float64 { return Column(at.Results.Rounds, figure) }
			if r, ok := stats.CompareUnpaired(column(point), column(base)); ok && r.Low != nil {
				out[path+"."+strconv.Itoa(point.Replicas)] = stats.Ratio{Value: r.Value / over, Low: new(*r.Low / over),
					High: new(*r.High / over), Rounds: r.Rounds}
			}
		}
		if more := float64(point.Replicas) / float64(base.Replicas); p.ScaleOut != nil {
			add("scale_out.efficiency", "reconciles_per_s", more)
			add("scale_out.makespan_efficiency", "throughput_per_s", more)
		}
		if p.WatchCost != nil {
			add("watch_cost.sum_over_one", "watch_bytes_per_object", 1)
		}
	}
	return out
}
