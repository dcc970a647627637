// Command bench measures and judges Tenure. Its subcommands print a text a person can read, and write JSON on request.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// Exit codes, the same for all subcommands.
const (
	exitOK       = 0
	exitFindings = 1
	exitUsage    = 2
)

// command is one subcommand. run returns errFindings for a judgement that isn't clean; other errors are bad input.
type command struct {
	name, synopsis, summary string
	run                     func(args []string, stdout, stderr io.Writer) error
}

func commands() []command {
	return []command{
		{"list", "list", "list the scenarios", runList},
		{"run", "run SCENARIO|FILE", "carry a scenario out and report", runRun},
		{"tour", "tour", "the scenarios that a new user wants to see, in about five minutes", runTour},
		{"compare", "compare A B", "set two reports side by side", runCompare},
		{"pool", "pool FILE...", "put the turns of several runs together", runPool},
		{"check", "check FILE", "hold a report against its scenario's thresholds", runCheck},
		{"algorithms", "algorithms", "the planner beside other algorithms, without a cluster", runAlgorithms},
		{"floor", "floor", "the bare client that run compares with", runFloor},
		{"witness", "witness DIR", "judge the invariants from API servers' audit logs", runWitness},
	}
}

// errFindings says that the command worked and found something: the report has been printed.
var errFindings = errors.New("findings")

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return exitUsage
	}
	if args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		usage(stdout)
		return exitOK
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return exitCode(c.name, c.run(args[1:], stdout, stderr), stderr)
		}
	}
	fmt.Fprintf(stderr, "bench: unknown command %q; bench help lists them\n", args[0])
	return exitUsage
}

func exitCode(name string, err error, stderr io.Writer) int {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.Is(err, errFindings):
		return exitFindings
	}
	fmt.Fprintf(stderr, "bench %s: %v\n", name, err)
	return exitUsage
}

func usage(w io.Writer) {
	fmt.Fprint(w, "usage: bench COMMAND [flags]\n\ncommands:\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-16s %s\n", c.synopsis, c.summary)
	}
	fmt.Fprint(w, "\nbench COMMAND -h shows a command's flags.\nExit code: 0 clean, 1 findings, 2 bad flags or input.\n")
}
