package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/tenure-dev/tenure/bench/check"
	"github.com/tenure-dev/tenure/bench/report"
	benchrun "github.com/tenure-dev/tenure/bench/run"
	"github.com/tenure-dev/tenure/bench/scenario"
)

const runUsage = `usage: bench run SCENARIO|FILE [--set path=value ...] [flags]

Starts control planes and replicas on this machine, gives them the scenario's load, and reports. Settings are applied
to the scenario by their dotted path: --set size=full, --set fleet.replicas=5, --set load.count=1000.

`

// settings collects repeated --set flags.
type settings []string

func (s *settings) String() string { return "" }

func (s *settings) Set(v string) error {
	*s = append(*s, v)
	return nil
}

// runFlags are the command line of run.
type runFlags struct {
	scenario, jsonFile, htmlFile string
	set                          settings
	kubeconfigs                  named
	options                      benchrun.Options
}

func parseRun(args []string, stdout io.Writer) (runFlags, error) {
	var f runFlags
	fs := flag.NewFlagSet("run", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Var(&f.set, "set", "`path=value` of a field of the scenario; repeatable")
	fs.StringVar(&f.jsonFile, "json", "", "write the report as JSON to this `file`")
	fs.StringVar(&f.htmlFile, "html", "", "write the report as a page to this `file`")
	fs.StringVar(&f.options.Tenure, "tenure", "", "the `binary` of a replica (default: tenure beside this program, or bin/tenure)")
	fs.StringVar(&f.options.Dir, "dir", "", "keep logs, audit logs and samples in this `folder` (default: a temporary one)")
	fs.Var(&f.kubeconfigs, "kubeconfig", "run in these clusters, `CLUSTER=FILE`, instead of on control planes of our own; repeatable, one is called home")
	fs.StringVar(&f.options.Profile, "profile", "", "take CPU profiles of the replicas in the first round, into this `folder`")
	rest := args
	for {
		if err := fs.Parse(rest); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				fmt.Fprint(stdout, runUsage)
				fs.SetOutput(stdout)
				fs.PrintDefaults()
			}
			return f, err
		}
		if fs.NArg() == 0 {
			break
		}
		if f.scenario != "" {
			return f, fmt.Errorf("one scenario wanted, got %q and %q", f.scenario, fs.Arg(0))
		}
		f.scenario, rest = fs.Arg(0), fs.Args()[1:]
	}
	if f.scenario == "" {
		return f, errors.New("want a scenario (bench list) or a file")
	}
	for _, k := range f.kubeconfigs {
		if k.cluster == "" {
			return f, fmt.Errorf("--kubeconfig %s: want CLUSTER=FILE", k.value)
		}
		if f.options.Kubeconfigs == nil {
			f.options.Kubeconfigs = map[string]string{}
		}
		f.options.Kubeconfigs[k.cluster] = k.value
	}
	f.options.Command = "bench run " + strings.Join(args, " ")
	return f, nil
}

func runRun(args []string, stdout, stderr io.Writer) error {
	f, err := parseRun(args, stdout)
	if err != nil {
		return err
	}
	s, err := scenario.Read(f.scenario, f.set)
	if err != nil {
		return err
	}
	klog.SetLogger(logr.Discard()) // libraries would write between the lines of progress
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once, and its children with it
	f.options.Progress = stderr
	result, err := benchrun.Run(ctx, s, f.options)
	if err != nil {
		return err
	}
	if result.Checks, err = check.Check(result, s.Thresholds); err != nil {
		return err
	}
	if err := f.write(result); err != nil {
		return err
	}
	report.Text(stdout, result)
	return judge(stdout, result)
}

// judge prints the verdicts; an invalid run and a missed threshold are findings.
func judge(stdout io.Writer, r *report.Report) error {
	failed := !r.Valid
	for _, v := range r.Checks {
		fmt.Fprintln(stdout, v.Text())
		failed = failed || !v.OK
	}
	for _, warning := range r.Warnings {
		fmt.Fprintln(stdout, "warning:", warning)
	}
	for _, reason := range r.Reasons {
		fmt.Fprintln(stdout, "INVALID:", reason)
	}
	if failed {
		return errFindings
	}
	return nil
}

func (f runFlags) write(r *report.Report) error {
	for _, file := range []string{f.jsonFile, f.htmlFile} {
		if file == "" {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("making a folder for the report: %w", err)
		}
	}
	if f.jsonFile != "" {
		data, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
		if err := os.WriteFile(f.jsonFile, append(data, '\n'), 0o644); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
	}
	if f.htmlFile == "" {
		return nil
	}
	out, err := os.Create(f.htmlFile)
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	defer out.Close()
	if err := report.HTML(out, r); err != nil {
		return err
	}
	return out.Close()
}
