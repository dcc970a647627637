package compare

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/samples"
	"github.com/tenure-dev/tenure/bench/stats"
)

// Pool makes one report of several runs of one scenario, with a seed each, of one commit on one machine. Rounds and
// turns are compared within their own run, and runs are resampled whole. A figure that each run has once becomes the
// mean over the runs. Counts are added up, and of maxima the largest is kept.
func Pool(reports []*report.Report) (*report.Report, error) {
	if len(reports) == 0 {
		return nil, errors.New("no reports")
	}
	if err := poolable(reports); err != nil {
		return nil, err
	}
	if len(reports) == 1 {
		return reports[0], nil
	}
	pooled := *reports[0]
	pooled.Runs = len(reports)
	rng := rand.New(rand.NewPCG(uint64(len(reports)), 42))
	pooled.Ratios, pooled.Intervals = report.AllRatios(reports, samples.Untraced, rng), map[string]stats.Ratio{}
	var runs []map[string]float64
	for _, r := range reports {
		if o := r.Environment.Others; o != nil && (pooled.Environment.Others == nil || *o > *pooled.Environment.Others) {
			pooled.Environment.Others = o // the busiest
		}
		one, err := Figures(map[string]any{
			"results": r.Results, "references": r.References, "scale_out": r.ScaleOut, "watch_cost": r.WatchCost, "knee": r.Knee,
		})
		if err != nil {
			return nil, err
		}
		runs = append(runs, one)
	}
	for _, path := range slices.Sorted(maps.Keys(runs[0])) {
		var values []float64
		for _, run := range runs {
			if v, ok := run[path]; ok {
				values = append(values, v)
			}
		}
		if len(values) < len(runs) {
			continue // the pool leaves out a figure that one run lacks
		}
		figure, ok := stats.Mean(values, rng)
		switch {
		case Added(path):
			figure = stats.Ratio{Value: figure.Value * float64(len(values))}
		case Longest(path):
			figure = stats.Ratio{Value: slices.Max(values)}
		}
		if ok {
			figure.Runs = len(runs)
			pooled.Intervals[path] = figure
		}
	}
	return &pooled, nil
}

// poolable names the first run that doesn't belong to the others.
func poolable(reports []*report.Report) error {
	first := reports[0]
	for i, r := range reports {
		twin := slices.IndexFunc(reports[:i], func(o *report.Report) bool {
			return o.Config.Load.Seed == r.Config.Load.Seed
		})
		var err error
		switch {
		case r.Scenario != first.Scenario:
			err = fmt.Errorf("is of scenario %s, %s of %s", r.Scenario, first.File, first.Scenario)
		case r.Config.Size != first.Config.Size:
			err = fmt.Errorf("is of size %q, %s of %q", r.Config.Size, first.File, first.Config.Size)
		case !first.Config.SameButSeed(r.Config):
			err = fmt.Errorf("was taken with different settings than %s", first.File)
		case r.Environment.Tenure != first.Environment.Tenure:
			err = fmt.Errorf("is of another commit than %s", first.File)
		case !maps.Equal(r.Environment.GoSettings, first.Environment.GoSettings):
			err = fmt.Errorf("was taken with other Go variables than %s", first.File)
		case !r.Environment.SameMachine(first.Environment):
			err = fmt.Errorf("was taken on another machine than %s", first.File)
		case twin >= 0:
			err = fmt.Errorf("has the seed %d, as %s: is it the same run?", r.Config.Load.Seed, reports[twin].File)
		case !r.Valid:
			err = fmt.Errorf("is not valid: %v", r.Reasons)
		case r.Results == nil:
			err = errors.New("has no results")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", r.File, err)
		}
	}
	return nil
}

// added are the figures of a fleet that are counts of what happened.
var added = []string{"objects", "copies", "lost", "duplicates", "early", "violations", "conflicts"}

// longest are the figures that are the largest or longest of their kind in a run.
var longest = []string{"max", "own_begun_s", "own_settled_s"}

// Added says whether a figure, by its path, is a count: those of several runs are added up.
func Added(path string) bool { return slices.Contains(added, last(path)) }

// Longest says whether a figure, by its path, is the largest of its kind: of several runs the largest is kept.
func Longest(path string) bool { return slices.Contains(longest, last(path)) }

func last(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// Figures are the numbers in a report, or in parts of one, by their dotted paths.
func Figures(parts any) (map[string]float64, error) {
	data, err := json.Marshal(parts)
	var tree any
	if err == nil {
		err = json.Unmarshal(data, &tree)
	}
	if err != nil {
		return nil, fmt.Errorf("reading a report: %w", err)
	}
	out := map[string]float64{}
	var walk func(path string, at any)
	walk = func(path string, at any) {
		switch at := at.(type) {
		case map[string]any:
			for name, below := range at {
				walk(strings.TrimPrefix(path+"."+name, "."), below)
			}
		case float64:
			out[path] = at
		}
	}
	walk("", tree)
	return out, nil
}

// PoolText writes what a pool says for a person.
func PoolText(w io.Writer, p *report.Report) error {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(columns, "figure/reference\t%s, ours over the reference's (of turns: %s over the others)\n",
		report.Count(max(1, p.Runs), "run"), samples.Untraced)
	for _, figure := range slices.Sorted(maps.Keys(p.Ratios)) {
		fmt.Fprintf(columns, "%s\t%s\n", figure, report.RatioText(p.Ratios[figure]))
	}
	return columns.Flush()
}
