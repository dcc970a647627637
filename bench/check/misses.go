package check

import (
	_ "embed"
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/scenario"
)

//go:embed misses.yaml
var missesFile []byte

// Miss is a threshold that is known not to hold.
type Miss struct {
	Scenario string `json:"scenario"`
	Size     string `json:"size"`
	Figure   string `json:"figure"`
	// Value bounds the miss: the worse end of the figure's interval is no worse than this.
	Value float64 `json:"value"`
	// Since is the commit at which it was first seen.
	Since string `json:"since"`
	Why   string `json:"why"`
}

// Misses reads the list of known misses.
func Misses() ([]Miss, error) { return parseMisses(missesFile) }

func parseMisses(content []byte) ([]Miss, error) {
	var list []Miss
	if err := yaml.UnmarshalStrict(content, &list); err != nil {
		return nil, fmt.Errorf("reading the list of known misses: %w", err)
	}
	var errs []error
	seen := map[[3]string]bool{}
	for i, m := range list {
		complain := func(wrong bool, format string, args ...any) {
			if wrong {
				errs = append(errs, fmt.Errorf("known miss %d, %s: %s", i+1, m.Figure, fmt.Sprintf(format, args...)))
			}
		}
		key := [3]string{m.Scenario, m.Size, m.Figure}
		complain(seen[key], "is listed twice")
		seen[key] = true
		complain(!report.Commit.MatchString(m.Since), "since %q is no commit", m.Since)
		complain(m.Why == "", "why is missing")
		s, err := scenario.Read(m.Scenario, []string{"size=" + m.Size})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found := false
		for _, t := range s.Thresholds {
			if t.Figure == m.Figure && t.For(m.Size) {
				found = true
				complain((t.Min == nil || m.Value >= *t.Min) && (t.Max == nil || m.Value <= *t.Max), "%g is no miss", m.Value)
			}
		}
		complain(!found, "scenario %s has no such threshold in size %s", m.Scenario, m.Size)
	}
	return list, errors.Join(errs...)
}

// judge applies a listed miss to the verdict on its figure.
func (m Miss) judge(v *report.Verdict) {
	switch {
	case v.Measured == nil: // a figure that is missing is never a known miss
	case v.OK:
		v.OK = false
		v.Note = fmt.Sprintf("it is listed as a miss since %.7s and misses no longer: take it out of bench/check/misses.yaml",
			m.Since)
	case v.Min != nil && holds(*v.Measured, &m.Value, v.Max), v.Max != nil && holds(*v.Measured, v.Min, &m.Value):
		v.OK, v.Known = true, true
		v.Note = fmt.Sprintf("known since %.7s: %s", m.Since, m.Why)
	default:
		v.Note = fmt.Sprintf("worse than %g, which is listed since %.7s", m.Value, m.Since)
	}
}
