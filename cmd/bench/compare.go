package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

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

// runPool puts the turns of several runs together.
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
	return pooled.Text(stdout)
}

// runCheck holds a report against the thresholds that its scenario has now, or those of the report for a scenario that
// isn't one of ours.
func runCheck(args []string, stdout, _ io.Writer) error {
	if len(args) != 1 {
		return errors.New("want one report: bench check FILE")
	}
	r, err := readReport(args[0])
	if err != nil {
		return err
	}
	thresholds := r.Config.Thresholds
	if s, err := scenario.Read(r.Scenario, []string{"size=" + r.Config.Size}); err == nil {
		thresholds = s.Thresholds
	}
	if r.Checks, err = check.Check(r, thresholds); err != nil {
		return err
	}
	return judge(stdout, r)
}
