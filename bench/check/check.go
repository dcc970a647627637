// Package check holds a report against the thresholds of its scenario. A figure that isn't there fails, whatever the
// threshold: what wasn't measured hasn't been reached. It is pure.
package check

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/scenario"
)

// Check judges a report by thresholds; those of other sizes than the report's are left out.
func Check(r *report.Report, thresholds []scenario.Threshold) ([]report.Verdict, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("reading the report: %w", err)
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("reading the report: %w", err)
	}
	var verdicts []report.Verdict
	for _, t := range thresholds {
		if len(t.Sizes) > 0 && !slices.Contains(t.Sizes, r.Config.Size) {
			continue
		}
		v := report.Verdict{Threshold: t}
		if value, ok := find(tree, t.Figure); ok {
			v.Value = &value
			v.OK = (t.Min == nil || value >= *t.Min) && (t.Max == nil || value <= *t.Max)
		}
		verdicts = append(verdicts, v)
	}
	return verdicts, nil
}

// find follows a dotted path to a number.
func find(tree any, path string) (float64, bool) {
	for part := range strings.SplitSeq(path, ".") {
		m, ok := tree.(map[string]any)
		if !ok {
			return 0, false
		}
		tree = m[part]
	}
	value, ok := tree.(float64)
	return value, ok
}
