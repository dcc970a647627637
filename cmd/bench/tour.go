package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/bench/check"
	"github.com/tenure-dev/tenure/bench/report"
)

// tour is what a new user wants to know, in about five minutes.
var tour = []struct{ scenario, question string }{
	{"at-burst", "How fast is it, and compared with what?"},
	{"scale-out", "How far does it scale?"},
	{"handoff", "What does a planned move cost?"},
	{"crash", "What does a failure cost?"},
}

// newTour runs the scenarios of the tour, and writes an index page that leads to their pages.
func newTour() *cobra.Command {
	var out string
	var f runFlags
	cmd := &cobra.Command{
		Use: "tour", Short: "the scenarios that a new user wants to see, in about five minutes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			index := filepath.Join(out, "index.html")
			var stops []report.Stop
			var findings error
			for i, t := range tour {
				fmt.Fprintf(cmd.ErrOrStderr(), "tour, %d of %d: %s\n", i+1, len(tour), t.question)
				one := f
				one.options.Command = "bench run " + t.scenario
				one.jsonFile, one.htmlFile = filepath.Join(out, t.scenario+".json"), filepath.Join(out, t.scenario+".html")
				r, err := one.run(cmd, t.scenario)
				if errors.Is(err, errFindings) {
					findings = err
				} else if err != nil {
					return err
				}
				published, err := check.Published(r)
				if err != nil {
					return err
				}
				published = slices.DeleteFunc(published, func(v report.Verdict) bool {
					return v.Measured == nil // in this size
				})
				stops = append(stops, report.Stop{Question: t.question, Report: r, Published: published,
					Page: t.scenario + ".html"})
				if err := writePage(index, func(w io.Writer) error { return report.Tour(w, stops) }); err != nil {
					return err
				}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "\nOpen %s\n", index)
			return findings
		},
	}
	cmd.Flags().StringVar(&out, "out", filepath.Join("out", "tour"), "`folder` for the pages and reports")
	return f.forReplicas(cmd)
}
