package check

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/samples"
	"github.com/tenure-dev/tenure/bench/stats"
)

// Genuine refuses the report of a run, as it was read from a file, if its ratios or intervals aren't those of its
// rounds, or if it hasn't all rounds.
func Genuine(r *report.Report) error {
	if r.Runs > 0 {
		return fmt.Errorf("%s: is a pool of %d runs, which is judged by their own reports", r.File, r.Runs)
	}
	var errs []error
	refuse := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", r.File, fmt.Sprintf(format, args...)))
	}
	rates := len(r.Config.Load.Rates) // the last ones aren't tried if one was too high
	wanted := max(rates, r.Config.Rounds*max(1, len(r.Config.Noises)))
	for _, f := range r.Fleets() {
		if n := len(f.Results.Rounds); r.Valid && n != wanted && (n == 0 || n > rates) {
			refuse("it has %s of %s, and its settings ask for %d", report.Count(n, "round"), f.Name, wanted)
		}
	}
	ratios, intervals := report.Derived(r, samples.Untraced)
	for _, c := range []struct {
		what           string
		shown, derived map[string]stats.Ratio
	}{{"ratio", r.Ratios, ratios}, {"interval", r.Intervals, intervals}} {
		names := slices.Collect(maps.Keys(c.shown))
		names = slices.AppendSeq(names, maps.Keys(c.derived))
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			if shown, derived := c.shown[name], c.derived[name]; !alike(shown, derived) {
				refuse("its %s of %s is %s, and its rounds give %s", c.what, name, report.IntervalText(shown),
					report.IntervalText(derived))
			}
		}
	}
	return errors.Join(errs...)
}

// alike reports whether two ratios are equal but for the last digits, in which kinds of processors differ.
func alike(a, b stats.Ratio) bool {
	near := func(x, y *float64) bool {
		return x == nil && y == nil || x != nil && y != nil && math.Abs(*x-*y) <= 1e-9*math.Abs(*x)
	}
	return near(&a.Value, &b.Value) && near(a.Low, b.Low) && near(a.High, b.High) && a.Rounds == b.Rounds &&
		a.Runs == b.Runs
}
