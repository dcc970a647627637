package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/bench/witness"
)

const witnessUsage = `usage: bench witness DIR [flags]

Reads the audit logs below DIR (files audit*.log, rotated and .gz too, one folder per cluster) and reports every
broken invariant with the log lines that prove it.

`

// named collects repeated CLUSTER=VALUE flags; without CLUSTER= the value stands alone.
type named []struct{ cluster, value string }

func (n *named) String() string { return "" }

func (n *named) Set(s string) error {
	cluster, value, found := strings.Cut(s, "=")
	if !found {
		cluster, value = "", s
	}
	if value == "" {
		return errors.New("want FILE or CLUSTER=FILE")
	}
	*n = append(*n, struct{ cluster, value string }{cluster, value})
	return nil
}

type witnessFlags struct {
	dir, jsonFile    string
	ats, kubeconfigs named
	rules            witness.Rules
}

func parseWitness(args []string, stdout io.Writer) (witnessFlags, error) {
	var f witnessFlags
	fs := flag.NewFlagSet("witness", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&f.jsonFile, "json", "", "also write the report as JSON to this `file` (- is stdout, instead of the text)")
	fs.Var(&f.ats, "ats", "list of Ats, `[CLUSTER=]FILE`: {\"ats\":[...]} or kubectl get ats -A -o json; repeatable")
	fs.Var(&f.kubeconfigs, "kubeconfig", "read the Ats live, `CLUSTER=FILE`; repeatable")
	fs.DurationVar(&f.rules.Skew, "skew", 0, "by how much the clocks of two API servers may differ")
	fs.DurationVar(&f.rules.Settle, "settle", time.Second, "how long an At may be due at the end of the logs before it is lost")
	fs.IntVar(&f.rules.MaxListed, "max", 20, "how many violations of one kind to list")
	// Flags may stand before and after DIR.
	for rest := args; ; {
		if err := fs.Parse(rest); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				fmt.Fprint(stdout, witnessUsage)
				fs.SetOutput(stdout)
				fs.PrintDefaults()
			}
			return f, err
		}
		if fs.NArg() == 0 {
			break
		}
		if f.dir != "" {
			return f, fmt.Errorf("one directory wanted, got %q and %q", f.dir, fs.Arg(0))
		}
		f.dir, rest = fs.Arg(0), fs.Args()[1:]
	}
	if f.dir == "" {
		return f, errors.New("want a directory of audit logs (bench witness -h)")
	}
	for _, k := range f.kubeconfigs {
		if k.cluster == "" {
			return f, fmt.Errorf("--kubeconfig %s: want CLUSTER=FILE", k.value)
		}
	}
	if f.rules.Skew < 0 || f.rules.Settle < 0 || f.rules.MaxListed < 1 {
		return f, errors.New("--skew and --settle can't be negative, --max must be at least 1")
	}
	return f, nil
}

func runWitness(args []string, stdout, _ io.Writer) error {
	f, err := parseWitness(args, stdout)
	if err != nil {
		return err
	}
	facts, err := f.facts()
	if err != nil {
		return err
	}
	report, err := witness.Read(f.dir, witness.Options{Facts: facts, Rules: f.rules})
	if err != nil {
		return err
	}
	if err := f.write(report, stdout); err != nil {
		return err
	}
	if !report.OK {
		return errFindings
	}
	return nil
}

func (f witnessFlags) facts() (witness.Facts, error) {
	var facts witness.Facts
	for _, a := range f.ats {
		data, err := os.ReadFile(a.value)
		if err != nil {
			return facts, fmt.Errorf("opening the list of Ats: %w", err)
		}
		ats, err := witness.ParseAts(data, a.cluster)
		if err != nil {
			return facts, fmt.Errorf("%s: %w", a.value, err)
		}
		facts.Ats = append(facts.Ats, ats...)
	}
	for _, k := range f.kubeconfigs {
		ats, err := listAts(k.cluster, k.value)
		if err != nil {
			return facts, err
		}
		facts.Ats = append(facts.Ats, ats...)
	}
	return facts, nil
}

func (f witnessFlags) write(report *witness.Report, stdout io.Writer) error {
	if f.jsonFile == "" {
		return report.Text(stdout)
	}
	data, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	data = append(data, '\n')
	if f.jsonFile == "-" {
		_, err = stdout.Write(data)
		return err
	}
	if err := os.WriteFile(f.jsonFile, data, 0o644); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return report.Text(stdout)
}
