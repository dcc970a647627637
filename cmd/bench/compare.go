package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

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

// runCompare sets two reports side by side.
func runCompare(args []string, stdout, _ io.Writer) error {
	if len(args) != 2 {
		return errors.New("want two reports: bench compare A.json B.json")
	}
	a, err := readReport(args[0])
	if err != nil {
		return err
	}
	b, err := readReport(args[1])
	if err != nil {
		return err
	}
	c, err := compare.Compare(a, b)
	if err != nil {
		return err
	}
	return c.Text(stdout)
}

// runPool puts the turns of several runs together, and holds their ratios against the scenario's thresholds.
func runPool(args []string, stdout, _ io.Writer) error {
	if len(args) == 0 {
		return errors.New("want reports of runs in turns: bench pool FILE...")
	}
	var reports []*report.Report
	for _, path := range args {
		r, err := readReport(path)
		if err != nil {
			return err
		}
		reports = append(reports, r)
	}
	pooled, err := compare.Pool(reports)
	if err != nil {
		return err
	}
	if err := pooled.Text(stdout); err != nil {
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
	return judge(stdout, &of)
}

// runCheck holds a report against its thresholds.
func runCheck(args []string, stdout, _ io.Writer) error {
	if len(args) != 1 {
		return errors.New("want one report: bench check FILE")
	}
	r, err := readReport(args[0])
	if err != nil {
		return err
	}
	if r.Checks, err = check.Check(r, thresholdsOf(r)); err != nil {
		return err
	}
	return judge(stdout, r)
}

// thresholdsOf returns those that a report's scenario has now, or the report's own for a scenario that isn't one of ours.
func thresholdsOf(r *report.Report) []scenario.Threshold {
	if s, err := scenario.Read(r.Scenario, []string{"size=" + r.Config.Size}); err == nil {
		return s.Thresholds
	}
	return r.Config.Thresholds
}
