// Package check holds reports against the thresholds of their scenario, knows which misses are known, and writes
// figures to the file of results. A figure that isn't there fails, whatever the threshold: what wasn't measured hasn't
// been reached. Where a figure has an interval, its worse bound is held against the threshold.
//
// misses.yaml lists the misses that are known, and that list is exact. A miss that isn't listed fails, and so does one
// that is worse than listed. A listed figure that no longer misses also fails, until its entry is deleted.
package check

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/bench/compare"
	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/bench/stats"
)

// Judge sets the report's checks. It takes the thresholds that the scenario has now, never those in the report. file is
// the scenario's file, or "" if it is one of ours. Known misses apply only to runs with the scenario's own settings and
// none of [report.GoVariables]; with others every miss fails.
func Judge(r *report.Report, file string) error {
	s, err := scenario.Read(cmp.Or(file, r.Scenario), []string{"size=" + r.Config.Size})
	switch {
	case err != nil:
		return fmt.Errorf("the thresholds of scenario %q: %w; name the scenario's file by --scenario", r.Scenario, err)
	case s.Name != r.Scenario:
		return fmt.Errorf("the report is of scenario %q, and %s of %q", r.Scenario, file, s.Name)
	}
	var known []Miss
	if s.SameSettings(r.Config) && len(r.Environment.GoSettings) == 0 {
		if known, err = Misses(); err != nil {
			return err
		}
	}
	r.Checks, err = Check(r, s.Thresholds, known)
	return err
}

// Check judges a report by thresholds; those of other sizes than the report's are left out.
func Check(r *report.Report, thresholds []scenario.Threshold, known []Miss) ([]report.Verdict, error) {
	find, err := figuresOf(r)
	if err != nil {
		return nil, err
	}
	verdicts := []report.Verdict{}
	for _, t := range thresholds {
		if !t.For(r.Config.Size) {
			continue
		}
		v := report.Verdict{Threshold: t}
		if value, ok := find(t.Figure); ok {
			v.Measured, v.OK = &value, holds(value, t.Min, t.Max)
		}
		for _, m := range known {
			if m.Scenario == r.Scenario && m.Size == r.Config.Size && m.Figure == t.Figure {
				m.judge(&v)
			}
		}
		verdicts = append(verdicts, v)
	}
	return verdicts, nil
}

// holds says whether a figure is within bounds with all of its interval.
func holds(r stats.Ratio, lowest, highest *float64) bool {
	low, high := r.Value, r.Value
	if r.Low != nil {
		low, high = *r.Low, *r.High
	}
	return (lowest == nil || low >= *lowest) && (highest == nil || high <= *highest)
}

// figuresOf returns what finds a report's figures by their dotted paths, each with its interval if it has one.
func figuresOf(r *report.Report) (func(path string) (stats.Ratio, bool), error) {
	figures, err := compare.Figures(r)
	if err != nil {
		return nil, err
	}
	return func(path string) (stats.Ratio, bool) {
		if with, ok := r.Intervals[path]; ok {
			return with, true
		}
		if figure, found := strings.CutPrefix(path, "ratios."); found { // whose name may have a dot
			name, field := "", figure
			if i := strings.LastIndexByte(figure, '.'); i > 0 {
				name, field = figure[:i], figure[i+1:]
			}
			ratio, ok := r.Ratios[name]
			if bound := map[string]*float64{"low": ratio.Low, "high": ratio.High}[field]; bound != nil {
				return stats.Ratio{Value: *bound, Rounds: ratio.Rounds}, ok
			}
			return ratio, ok && field == "value"
		}
		if r.Runs > 0 { // what follows would be of the first run only
			return stats.Ratio{}, false
		}
		value, ok := figures[path]
		return stats.Ratio{Value: value}, ok
	}, nil
}
