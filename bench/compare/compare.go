// Package compare sets two reports side by side. It is pure.
package compare

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/stats"
)

// Comparison is B over A.
type Comparison struct {
	Scenario string
	// Notices say what makes the comparison doubtful.
	Notices []string
	Rows    []Row
}

// Row is one figure of both.
type Row struct {
	Figure string
	A, B   float64
	Ratio  stats.Ratio
}

// Verdict says whether B's figure is larger or smaller than A's, as far as the interval shows it.
func (r Row) Verdict() string {
	switch {
	case r.Ratio.Low == nil:
		return "too few rounds to tell"
	case *r.Ratio.Low > 1:
		return "larger"
	case *r.Ratio.High < 1:
		return "smaller"
	}
	return "no difference found"
}

// Compare compares the sharded fleets of two reports by the figures of their rounds.
func Compare(a, b *report.Report) (*Comparison, error) {
	if a.Scenario != b.Scenario {
		return nil, fmt.Errorf("one is of scenario %s, the other of %s", a.Scenario, b.Scenario)
	}
	if a.Results == nil || b.Results == nil {
		return nil, errors.New("one of them has no results")
	}
	if len(a.Config.Load.Rates)+len(b.Config.Load.Rates) > 0 {
		return nil, errors.New("their rounds are of different rates (load.rates) and have no mean: compare the knees")
	}
	c := &Comparison{Scenario: a.Scenario}
	for name, r := range map[string]*report.Report{"A": a, "B": b} {
		doubt := func(wrong bool, what string) {
			if wrong {
				c.Notices = append(c.Notices, name+" "+what)
			}
		}
		others := r.Environment.Others
		doubt(!r.Valid, "is not valid: "+fmt.Sprint(r.Reasons))
		doubt(others == nil, "was taken on a machine of which it isn't known how busy it was")
		doubt(others != nil && *others > report.MaxOthers, "was taken on a busy machine")
		doubt(r.Profiled, "was taken while profiles were")
		doubt(len(r.Environment.GoSettings) > 0, "was taken with "+r.Environment.GoText())
		doubt(!report.Commit.MatchString(r.Environment.Tenure), fmt.Sprintf("is of no commit: %q", r.Environment.Tenure))
	}
	if a.Environment.Tenure == b.Environment.Tenure {
		c.Notices = append(c.Notices, "their revisions are the same")
	}
	if !a.Config.SameSettings(b.Config) {
		c.Notices = append(c.Notices, "their settings differ")
	}
	if !a.Environment.SameMachine(b.Environment) {
		c.Notices = append(c.Notices, "they were taken on different machines")
	}
	c.Notices = append(c.Notices, "they were not taken in turns: what the machine did meanwhile is in the ratios, "+
		"and brackets cover the spread within each run: API servers differ by percents between runs")
	for _, figure := range figured(a, b) {
		x, y := report.Column(a.Results.Rounds, figure), report.Column(b.Results.Rounds, figure)
		if ratio, ok := stats.CompareUnpaired(y, x); ok {
			c.Rows = append(c.Rows, Row{figure, mean(x), mean(y), ratio})
		} else {
			c.Notices = append(c.Notices, figure+" is left out: a round lacks it, or has 0")
		}
	}
	slices.Sort(c.Notices)
	if len(c.Rows) == 0 {
		return nil, errors.New("they have no figure in common")
	}
	return c, nil
}

// figured returns the figures that any round of two reports has, sorted.
func figured(a, b *report.Report) []string {
	all := map[string]bool{}
	for _, r := range slices.Concat(a.Results.Rounds, b.Results.Rounds) {
		for figure := range r.Figures {
			all[figure] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v / float64(len(values))
	}
	return m
}

// Text writes the comparison for a person.
func (c *Comparison) Text(w io.Writer) error {
	for _, n := range c.Notices {
		fmt.Fprintln(w, "note:", n)
	}
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "figure\tA\tB\tB over A\t")
	for _, r := range c.Rows {
		fmt.Fprintf(columns, "%s\t%.4g\t%.4g\t%s\t%s\n", r.Figure, r.A, r.B, report.RatioText(r.Ratio), r.Verdict())
	}
	return columns.Flush()
}
