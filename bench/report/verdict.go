package report

import (
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/bench/stats"
)

// Verdict is one threshold and what became of it.
type Verdict struct {
	scenario.Threshold
	// Measured is the figure, nil if the report doesn't have it. Where it has an interval its bound is held against the
	// threshold, not its value.
	Measured *stats.Ratio `json:"measured"`
	// OK says that the threshold holds, or that its miss is a known one.
	OK bool `json:"ok"`
	// Known says that this is a miss, and that it is listed.
	Known bool `json:"known,omitempty"`
	// Note is a remark of the list of known misses.
	Note string `json:"note,omitempty"`
}

// Value is what was measured, for a person.
func (v Verdict) Value() string {
	if v.Measured == nil {
		return "missing"
	}
	return IntervalText(*v.Measured)
}

// IntervalText is a figure with its interval, if it has one.
func IntervalText(r stats.Ratio) string {
	if r.Low == nil {
		return fmt.Sprintf("%.4g", r.Value)
	}
	return fmt.Sprintf("%.4g [%.4g, %.4g]", r.Value, *r.Low, *r.High)
}

// Word is the verdict in one word.
func (v Verdict) Word() string {
	switch {
	case v.Known:
		return "known miss"
	case v.OK:
		return "ok"
	}
	return "FAIL"
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
	text := fmt.Sprintf("%-10s  %s is %s, wanted %s (%s)", v.Word(), v.Figure, v.Value(), v.Wanted(), v.Why)
	if v.Note != "" {
		text += "; " + v.Note
	}
	return text
}
