package run

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/bench/stats"
)

// maxLateness is how late the generator may be at its 99th percentile. Latencies count from the intended time, so what
// is beyond would be the generator's and not the fleet's.
const maxLateness = 50 * time.Millisecond

// lateWith returns a complaint if the generator didn't keep its schedule.
func lateWith(what string, lateness *stats.Quantiles) string {
	if lateness == nil {
		return fmt.Sprintf("the lateness of the generator's %s is not known", what)
	}
	if lateness.P99 > float64(maxLateness.Milliseconds()) {
		return fmt.Sprintf("the generator fell behind with its %s: %.0f ms late at its 99th percentile, %v allowed", what,
			lateness.P99, maxLateness)
	}
	return ""
}

// judgeGenerator marks the run as not valid if the generator didn't keep its schedule with the load, or with the
// changes beside it. Bursts and closed loads have no schedule. The rounds of a search for the knee are judged by
// [tally.add].
func (r *runner) judgeGenerator(name string, results *report.Results) {
	l := r.scenario.Load
	g := results.Generator
	if g == nil {
		return
	}
	punctual := func(what string, lateness *stats.Quantiles) {
		if complaint := lateWith(what, lateness); complaint != "" {
			r.invalid("%s: %s", name, complaint)
		}
	}
	if l.Changes > 0 {
		punctual("changes", g.Changes)
	}
	if l.Arrivals == scenario.Nothing || l.Arrivals == scenario.Burst && l.Due == scenario.DueNow ||
		l.Arrivals == scenario.Closed || len(l.Rates) > 0 {
		return
	}
	if l.Arrivals != scenario.Burst {
		g.Offered = l.Rate
	}
	punctual("load", g.Lateness)
}

// judgeChanges returns a complaint if the changes can't support a ratio of a fleet that is sent them to one that
// isn't: if they caused hardly any reconciles in the first, or some in the second. One reconcile may cover several
// changes of an At.
func judgeChanges(as scenario.Reference, changes, reconciles int) string {
	looked := fmt.Sprintf("%s of %s", report.Count(reconciles, "reconcile"), report.Count(changes, "change"))
	switch {
	case as == scenario.Unserved && reconciles*20 > changes:
		return looked + ": none was to reach this fleet"
	case as != scenario.Unserved && reconciles*2 < changes:
		return looked + ": too few reached the fleet"
	}
	return ""
}

// judgeWrites returns a complaint if objects are done and the audit logs don't show who served them. Lines are missing
// then, so figures of writes per object would keep bounds that they may break, and the witness judges only a part.
func judgeWrites(done, unlogged int) string {
	if unlogged > 0 {
		return fmt.Sprintf("%s, and the audit logs don't show who served %d of them", report.Count(done, "done object"),
			unlogged)
	}
	return ""
}

// maxRepeats is by how much the reconciles per object may differ within a sweep.
const maxRepeats = 0.05

// judgeRepeats returns a complaint if a fleet of a sweep reconciled its objects more or less often than the smallest
// one. The capacity counts reconciles, and those that were repeated serve nobody.
func judgeRepeats(sweep []report.SweepPoint) string {
	var first float64
	for _, p := range sweep {
		reconciles := 0
		for _, n := range p.Results.ReconcilesPerReplica {
			reconciles += n
		}
		if reconciles == 0 || p.Results.Objects == 0 {
			continue // there is no capacity then
		}
		per := float64(reconciles) / float64(p.Results.Objects)
		if first == 0 {
			first = per
		}
		if math.Abs(per/first-1) > maxRepeats {
			return fmt.Sprintf("%s took %.2f reconciles per object, the smallest fleet %.2f: the capacity counts repeats",
				report.Count(p.Replicas, "replica"), per, first)
		}
	}
	return ""
}

// judgeWitness marks the run as not valid if a fleet broke an invariant: its figures would describe something that
// doesn't work.
func (r *runner) judgeWitness(name string, results *report.Results) {
	if n := results.Violations; n != nil && *n > 0 {
		r.invalid("%s: the witness found %s in the audit logs: %s", name, report.Count(*n, "violation"),
			results.FirstViolation)
	}
}

// Figures of the rounds of a search for the knee.
const rateFigure, lateFigure = "rate_per_s", "lateness_ms.p99"

// knee returns the highest rate that was served in time, nil if none was looked for. If some rate was too high, the
// knee was found; otherwise it is only known not to be below the last rate.
func knee(l scenario.Load, rounds []report.Round) *report.Knee {
	if l.SLO == 0 {
		return nil
	}
	out := &report.Knee{SLO: float64(l.SLO.D()) / float64(time.Millisecond)}
	for _, r := range rounds {
		rate := r.Figures[rateFigure]
		late, measured := r.Figures[lateFigure]
		if measured {
			out.Points = append(out.Points, stats.Point{X: rate, Y: late})
		}
		if measured && late <= out.SLO {
			out.Rate = rate
		} else { // a rate at which no At has started is too much
			out.Found = true
		}
	}
	return out
}

// scaleOut sets the capacities of a sweep beside n times the smallest fleet's per replica.
func scaleOut(l scenario.Load, sweep []report.SweepPoint) *report.ScaleOut {
	if len(sweep) < 2 || l.Arrivals != scenario.Burst { // only a burst keeps everybody busy
		return nil
	}
	out := &report.ScaleOut{
		Unit: "reconciles per second", Capacity: map[string]float64{}, Efficiency: map[string]float64{},
		Makespan: map[string]float64{},
	}
	base := sweep[0]
	for _, p := range sweep {
		n := strconv.Itoa(p.Replicas)
		more := float64(p.Replicas) / float64(base.Replicas)
		if p.Results.Reconciles != nil && base.Results.Reconciles != nil {
			out.Capacity[n] = *p.Results.Reconciles
			out.Efficiency[n] = *p.Results.Reconciles / (*base.Results.Reconciles * more)
		}
		if p.Results.Throughput != nil && base.Results.Throughput != nil {
			out.Makespan[n] = *p.Results.Throughput / (*base.Results.Throughput * more)
		}
	}
	return out
}

// watchCost sets what the replicas of a sweep receive beside what the smallest fleet's receive, per object: loads of a
// random length differ a little.
func watchCost(sweep []report.SweepPoint) *report.WatchCost {
	if len(sweep) < 2 || sweep[0].Results.Objects == 0 {
		return nil
	}
	base := sum(sweep[0].Results.WatchBytes) / float64(sweep[0].Results.Objects)
	if base == 0 {
		return nil
	}
	out := &report.WatchCost{SumOverOne: map[string]float64{}, MaxOverShare: map[string]float64{},
		MaxOverEqual: map[string]float64{}}
	for _, p := range sweep {
		if len(p.Results.WatchBytes) == 0 || p.Results.Objects == 0 {
			continue
		}
		n, objects := strconv.Itoa(p.Replicas), float64(p.Results.Objects)
		out.SumOverOne[n] = sum(p.Results.WatchBytes) / objects / base
		out.MaxOverEqual[n] = slices.Max(p.Results.WatchBytes) / (base * objects / float64(p.Replicas))
		if len(p.Results.ObjectsPerReplica) != len(p.Results.WatchBytes) {
			continue // without samples it isn't known which objects a replica had
		}
		for i, bytes := range p.Results.WatchBytes {
			if own := p.Results.ObjectsPerReplica[i]; own > 0 {
				out.MaxOverShare[n] = max(out.MaxOverShare[n], bytes/(base*float64(own)))
			}
		}
	}
	return out
}
