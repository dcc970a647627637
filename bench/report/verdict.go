package report

import (
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/bench/scenario"
)

// Verdict is one threshold and what became of it.
type Verdict struct {
	scenario.Threshold
	// Value is nil if the report doesn't have the figure.
	Value *float64 `json:"value"`
	OK    bool     `json:"ok"`
}

// Measured is the value for a person.
func (v Verdict) Measured() string {
	if v.Value == nil {
		return "missing"
	}
	return fmt.Sprintf("%.4g", *v.Value)
}

// Wanted is the threshold for a person.
func (v Verdict) Wanted() string {
	var bounds []string
	if v.Min != nil {
		bounds = append(bounds, fmt.Sprintf("at least %g", *v.Min))
	}
	if v.Max != nil {
		bounds = append(bounds, fmt.Sprintf("at most %g", *v.Max))
	}
	return strings.Join(bounds, " and ")
}

// Text is the verdict in one line.
func (v Verdict) Text() string {
	word := "ok  "
	if !v.OK {
		word = "FAIL"
	}
	return fmt.Sprintf("%s  %s is %s, wanted %s (%s)", word, v.Figure, v.Measured(), v.Wanted(), v.Why)
}
