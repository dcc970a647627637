package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
)

//go:embed tour.html
var tourText string

var tourTemplate = template.Must(template.Must(pageTemplate.Clone()).New("tour").Parse(tourText))

// Stop is one scenario of a tour.
type Stop struct {
	// Question is what it answers.
	Question string
	Report   *Report
	// Published are the figures that the scenario publishes beside those that have thresholds.
	Published []Verdict
	// Page is the file of its own page, beside the tour's.
	Page string
}

// Figures are those that answer it.
func (s Stop) Figures() []Verdict { return slices.Concat(s.Report.Checks, s.Published) }

// Failed lists the thresholds that don't hold, known misses too.
func (s Stop) Failed() []Verdict {
	var out []Verdict
	for _, v := range s.Report.Checks {
		if !v.OK || v.Known {
			out = append(out, v)
		}
	}
	return out
}

// Tour writes the page that leads to those of several runs.
func Tour(w io.Writer, stops []Stop) error {
	if err := tourTemplate.Execute(w, stops); err != nil {
		return fmt.Errorf("writing the page of the tour: %w", err)
	}
	return nil
}
