// Command tenure is a replica of the Tenure controller: it shares the Ats of many clusters with the other replicas.
//
// Without a subcommand it is the manager. `tenure help` lists the flags; each has an environment variable too. The
// subcommands status, why and plan answer the questions of the person on call.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker (-X main.version=...).
var version = "devel"

// Exit codes.
const (
	exitFailed = 1 // something went wrong while running, or is wrong with the fleet that was asked about
	exitUsage  = 2 // the command line makes no sense
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	if len(args) > 0 && (args[0] == "help" || args[0] == "-h" || args[0] == "--help") {
		printUsage(stdout)
		return 0
	}
	if len(args) > 0 && args[0] == "version" {
		fmt.Fprintln(stdout, "tenure", version)
		return 0
	}
	if len(args) > 0 && questions[args[0]] != nil {
		return ask(ctx, args[0], args[1:], getenv, stdout, stderr)
	}
	if len(args) > 0 && args[0] == "trace" {
		return runTrace(ctx, args[1:], getenv, stdout, stderr)
	}
	opts, err := parseFlags(args, getenv)
	switch {
	case errors.Is(err, flag.ErrHelp):
		printUsage(stdout)
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "tenure: %v (see tenure help)\n", err)
		return exitUsage
	}
	if err := runManager(ctx, opts, stderr); err != nil {
		fmt.Fprintf(stderr, "tenure: %v\n", err)
		return exitFailed
	}
	return 0
}

func printUsage(w io.Writer) {
	fmt.Fprint(w, `tenure shares the work of one controller on many clusters among its replicas.

usage: tenure [flags]                run one replica
       tenure status [flags]         the fleet on one screen, and what is wrong
       tenure why KIND/NAME [flags]  who works on an At or a Deployment, and what it waits for
       tenure plan [flags]           what would move, if there were more or fewer replicas
       tenure trace WHAT [flags]     traces of an object, a shard or the slowest reconcile, from Jaeger
       tenure version                print the version

What follows is about running a replica; status, why and plan have flags of their own (--help).

Each flag can be given as an environment variable too: --lease-duration is TENURE_LEASE_DURATION.

`)
	fs, _ := newFlags()
	fs.SetOutput(w)
	fs.PrintDefaults()
}
