package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/tenure-dev/tenure/bench/check"
	"github.com/tenure-dev/tenure/bench/report"
	benchrun "github.com/tenure-dev/tenure/bench/run"
	"github.com/tenure-dev/tenure/bench/scenario"
)

// tour is what a new user wants to know, in about five minutes.
var tour = []struct{ scenario, question string }{
	{"at-burst", "How fast is it, and compared with what?"},
	{"scale-out", "How far does it scale?"},
	{"handoff", "What does a planned move cost?"},
	{"crash", "What does a failure cost?"},
}

// runTour runs the scenarios of the tour and writes a page that leads to theirs.
func runTour(args []string, stdout, stderr io.Writer) error {
	var options benchrun.Options
	fs := flag.NewFlagSet("tour", flag.ContinueOnError)
	fs.SetOutput(stderr)
	out := fs.String("out", filepath.Join("out", "tour"), "`folder` for the pages and reports")
	fs.StringVar(&options.Tenure, "tenure", "", "the `binary` of a replica (default: tenure beside this program, or bin/tenure)")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return fmt.Errorf("making the folder of the tour: %w", err)
	}
	klog.SetLogger(logr.Discard()) // libraries would write between the lines of progress
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once, and its children with it
	options.Progress = stderr
	var stops []report.Stop
	var findings error
	for i, t := range tour {
		fmt.Fprintf(stderr, "tour, %d of %d: %s\n", i+1, len(tour), t.question)
		s, err := scenario.Read(t.scenario, nil)
		if err != nil {
			return err
		}
		options.Command = "bench run " + t.scenario
		r, err := benchrun.Run(ctx, s, options)
		if err != nil {
			return err
		}
		if r.Checks, err = check.Check(r, s.Thresholds); err != nil {
			return err
		}
		f := runFlags{jsonFile: filepath.Join(*out, t.scenario+".json"), htmlFile: filepath.Join(*out, t.scenario+".html")}
		if err := f.write(r); err != nil {
			return err
		}
		report.Text(stdout, r)
		if err := judge(stdout, r); err != nil {
			findings = errFindings
		}
		stops = append(stops, report.Stop{Question: t.question, Report: r, Page: t.scenario + ".html"})
		if err := writeTour(filepath.Join(*out, "index.html"), stops); err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "\nOpen %s\n", filepath.Join(*out, "index.html"))
	return findings
}

func writeTour(path string, stops []report.Stop) error {
	page, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing the page of the tour: %w", err)
	}
	return errors.Join(report.Tour(page, stops), page.Close())
}
