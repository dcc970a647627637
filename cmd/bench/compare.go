package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/bench/check"
	"github.com/tenure-dev/tenure/bench/compare"
	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/scenario"
)

// readReport reads a report and checks that it is one.
func readReport(path string) (*report.Report, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a report: %w", err)
	}
	r := report.Report{File: path}
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%s is no report: %w", path, err)
	}
	if r.Schema != report.Schema {
		return nil, fmt.Errorf("%s has schema %q, want %s", path, r.Schema, report.Schema)
	}
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", path, err)
	}
	return &r, nil
}

// onReports returns a command that takes at least and at most so many reports; most 0 means no limit.
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
			var reports []*report.Report
			for _, path := range args {
				r, err := readReport(path)
				if err != nil {
					return err
				}
				reports = append(reports, r)
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

// judging adds the flag that says where a scenario's thresholds are.
func judging(cmd *cobra.Command, file *string) *cobra.Command {
	cmd.Flags().StringVar(file, "scenario", "", "the scenario's `file`, if it is none of `bench list`")
	return cmd
}

// refuse refuses reports that were edited, and another file for a scenario that is one of ours.
func refuse(file string, reports []*report.Report) error {
	for _, r := range reports {
		if err := check.Genuine(r); err != nil {
			return err
		}
		if file != "" && slices.Contains(scenario.Names(), r.Scenario) {
			return fmt.Errorf("--scenario %s: %s is one of `bench list`, and judged by its own file: leave the flag out", file,
				r.Scenario)
		}
	}
	return nil
}

// newPool makes one report of several runs, and holds it against the scenario's thresholds.
func newPool() *cobra.Command {
	var file string
	return judging(onReports("pool FILE...", "put several runs of a scenario together", 1, 0,
		func(out io.Writer, reports []*report.Report) error {
			if err := refuse(file, reports); err != nil {
				return err
			}
			pooled, err := compare.Pool(reports)
			if err != nil {
				return err
			}
			if err := errors.Join(compare.PoolText(out, pooled), check.Judge(pooled, file)); err != nil {
				return err
			}
			return judge(out, pooled)
		}), &file)
}

func newCheck() *cobra.Command {
	var file string
	return judging(onReports("check FILE", "hold a report against its scenario's thresholds", 1, 1,
		func(out io.Writer, r []*report.Report) error {
			if err := refuse(file, r); err != nil {
				return err
			}
			if err := check.Judge(r[0], file); err != nil {
				return err
			}
			verdict := judge(out, r[0])
			if err := check.Publishable(r, file); err != nil {
				fmt.Fprintln(out, "warning:", strings.ReplaceAll(err.Error(), "\n", "\nwarning: "))
			}
			return verdict
		}), &file)
}

// newPublish writes the figures of reports into the file of results, or prints why it can't.
func newPublish() *cobra.Command {
	var into, file string
	cmd := judging(onReports("publish FILE...", "write the figures of a run, or of several runs of a scenario, to the "+
		"file of results", 1, 0,
		func(out io.Writer, reports []*report.Report) error {
			if err := refuse(file, reports); err != nil {
				return err
			}
			results, err := os.ReadFile(into)
			if err != nil {
				return fmt.Errorf("reading the results: %w", err)
			}
			text, err := check.Publish(string(results), reports, file)
			if err != nil {
				fmt.Fprintf(out, "not published:\n%v\n", err)
				return errFindings
			}
			if err := os.WriteFile(into, []byte(text), 0o644); err != nil {
				return fmt.Errorf("writing the results: %w", err)
			}
			fmt.Fprintf(out, "%s, %s: published in %s\n", reports[0].Scenario, reports[0].Config.Size, into)
			return nil
		}), &file)
	cmd.Flags().StringVar(&into, "into", filepath.Join("bench", "RESULTS.md"), "`file` of results")
	return cmd
}
