package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/bench/check"
	"github.com/tenure-dev/tenure/bench/compare"
	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/scenario"
)

// readReport reads a report and makes sure that it is one.
func readReport(path string) (*report.Report, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a report: %w", err)
	}
	var r report.Report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%s is no report: %w", path, err)
	}
	if r.Schema != report.Schema {
		return nil, fmt.Errorf("%s has schema %q, want %s", path, r.Schema, report.Schema)
	}
	if r.Results == nil {
		return nil, fmt.Errorf("%s has no results", path)
	}
	return &r, nil
}

// readReports reads several.
func readReports(paths []string) ([]*report.Report, error) {
	var reports []*report.Report
	for _, path := range paths {
		r, err := readReport(path)
		if err != nil {
			return nil, err
		}
		reports = append(reports, r)
	}
	return reports, nil
}

// onReports is a command that takes so many reports, without a limit if most is 0.
func onReports(use, short string, least, most int, run func(io.Writer, []*report.Report) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < least || most > 0 && len(args) > most {
				return fmt.Errorf("want reports in JSON: bench %s, got %q", use, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			reports, err := readReports(args)
			if err != nil {
				return err
			}
			return run(cmd.OutOrStdout(), reports)
		},
	}
}

func newCompare() *cobra.Command {
	return onReports("compare A B", "set two reports side by side", 2, 2, func(out io.Writer, r []*report.Report) error {
		c, err := compare.Compare(r[0], r[1])
		if err != nil {
			return err
		}
		return c.Text(out)
	})
}

// newPool puts the turns of several runs together, and holds their ratios against the scenario's thresholds.
func newPool() *cobra.Command {
	return onReports("pool FILE...", "put the turns of several runs together", 1, 0, func(out io.Writer, reports []*report.Report) error {
		pooled, err := compare.Pool(reports)
		if err != nil {
			return err
		}
		if err := pooled.Text(out); err != nil {
			return err
		}
		of := *reports[0]
		of.Ratios = pooled.Ratios
		thresholds := slices.DeleteFunc(slices.Clone(thresholdsOf(&of)), func(t scenario.Threshold) bool {
			return !strings.HasPrefix(t.Figure, "ratios.")
		})
		if of.Checks, err = check.Check(&of, thresholds); err != nil {
			return err
		}
		return judge(out, &of)
	})
}

func newCheck() *cobra.Command {
	return onReports("check FILE", "hold a report against its scenario's thresholds", 1, 1, func(out io.Writer, r []*report.Report) error {
		var err error
		if r[0].Checks, err = check.Check(r[0], thresholdsOf(r[0])); err != nil {
			return err
		}
		return judge(out, r[0])
	})
}

// thresholdsOf returns those that a report's scenario has now, or the report's own for a scenario that isn't one of ours.
func thresholdsOf(r *report.Report) []scenario.Threshold {
	if s, err := scenario.Read(r.Scenario, []string{"size=" + r.Config.Size}); err == nil {
		return s.Thresholds
	}
	return r.Config.Thresholds
}
