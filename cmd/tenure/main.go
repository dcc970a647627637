// Command tenure is a replica of the Tenure controller: with the other replicas it shares the Ats of many clusters, and
// the Deployments that are copied to other clusters.
//
// Without a subcommand it is the manager. `tenure help` lists the flags; each has an environment variable too. The
// subcommands status, why, plan, page and trace answer the questions of the person on call; cluster adds and removes
// clusters.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/pkg/text"
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
	os.Exit(run(ctx, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr))
}

// longestError is how much of an error is printed, in bytes: it may list every flag that is wrong.
const longestError = 8 * text.Note

// errUnhealthy means that a question was answered, and that something is wrong with the fleet.
var errUnhealthy = errors.New("something is wrong")

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, lookup func(string) (string, bool), stdout, stderr io.Writer) int {
	root := newRoot(lookup, runManager)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	refuseShells(root)
	unwritten := watchHelp(root)
	cmd, err := root.ExecuteContextC(ctx)
	err = cmp.Or(err, *unwritten)
	var usage *console.UsageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUnhealthy):
		return exitFailed
	case errors.As(err, &usage):
		said := text.Line(strings.ReplaceAll(err.Error(), "\n", "; "), longestError)
		fmt.Fprintf(stderr, "%s: %s%s (see %[1]s --help)\n", cmd.CommandPath(), said, sources(cmd.Flags(), said))
		return exitUsage
	}
	said := text.Line(strings.Join(strings.Fields(err.Error()), " "), longestError)
	fmt.Fprintf(stderr, "%s: %s\n", cmd.CommandPath(), said)
	return exitFailed
}

// newRoot is the whole command line; manage runs a replica.
func newRoot(lookup func(string) (string, bool),
	manage func(context.Context, *options, io.Writer) error) *cobra.Command {
	root := newManager(lookup, manage)
	root.SilenceErrors, root.SilenceUsage, root.SuggestionsMinimumDistance = true, true, 2
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		bad, missing := (*pflag.InvalidValueError)(nil), (*pflag.ValueRequiredError)(nil)
		switch {
		case errors.As(err, &bad):
			err = fmt.Errorf("%w%s", err, wantedInstead(bad.GetFlag(), bad.GetValue()))
		case errors.As(err, &missing):
			err = fmt.Errorf("%w%s", err, cmp.Or(oneOf(missing.GetFlag()), wanted(missing.GetFlag())))
		}
		return usage(err)
	})
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.HasParent() { // the manager has a log; without one, controller-runtime prints a stack after 30 s
			ctrl.SetLogger(logr.Discard())
		}
		return usage(cmp.Or(readEnvironment(cmd.Flags()), checkEmpty(cmd.Flags())))
	}
	root.AddCommand(newStatus(lookup), newWhy(lookup), newPlan(lookup), newPage(lookup), newTrace(lookup),
		newCluster(lookup), &cobra.Command{
			Use: "version", Short: "print the version", Args: noArguments(""),
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), stamp(debug.ReadBuildInfo()))
				return err
			},
		})
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = func(_ *cobra.Command, args []string) error {
			if about, rest, _ := root.Find(args); len(rest) > 0 {
				return noArguments("there is no such command")(about, rest)
			}
			return nil
		}
	}
	return root
}

// refuseShells makes cobra's own command completion refuse arguments as the others do. The command writes to where root
// does now.
func refuseShells(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	completion, _, err := root.Find([]string{"completion"})
	if err != nil {
		return
	}
	completion.Args = noArguments("there is no such shell")
	completion.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() } // else cobra checks no arguments
	for _, shell := range completion.Commands() {
		shell.Args = noArguments("")
	}
}

// watchHelp returns what becomes the error of writing a help text, which cobra ignores.
func watchHelp(root *cobra.Command) *error {
	var unwritten error
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		to, said := cmd.OutOrStdout(), &strings.Builder{}
		cmd.SetOut(said)
		help(cmd, args)
		_, unwritten = io.WriteString(to, said.String())
	})
	return &unwritten
}

// digits are the numbers in the text of a duration.
var digits = regexp.MustCompile("[0-9]+")

// wantedInstead says what a flag takes in place of a value that it refuses.
func wantedInstead(f *pflag.Flag, value string) string {
	if _, err := time.ParseDuration(digits.ReplaceAllString(value, "1")); err == nil && f.Value.Type() == "duration" {
		return ": it is too long: give at most 2562047h" // what time.Duration holds
	}
	return wanted(f)
}

// stamp says what was built: version, commit and its time, Go and platform.
func stamp(info *debug.BuildInfo, ok bool) string {
	from := map[string]string{}
	if ok {
		for _, s := range info.Settings {
			from[s.Key] = s.Value
		}
	}
	commit := cmp.Or(from["vcs.revision"], "unknown commit")
	if from["vcs.modified"] == "true" {
		commit += ", changed"
	}
	if at := from["vcs.time"]; at != "" {
		commit += ", " + at
	}
	return fmt.Sprintf("tenure %s (%s, %s, %s/%s)", version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// usage says that an error is in the command line; nil stays nil.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &console.UsageError{Text: err.Error()}
}

func usagef(format string, args ...any) error {
	return &console.UsageError{Text: fmt.Sprintf(format, args...)}
}

// noArguments refuses arguments, and suggests commands with a similar name.
func noArguments(why string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			why = "did you mean " + strings.Join(near, " or ") + "?"
		}
		return usagef("%s", strings.TrimSuffix(fmt.Sprintf("unexpected argument %q: %s", args[0], why), ": "))
	}
}

// oneArgument demands one argument.
func oneArgument(what string, args []string) error {
	switch len(args) {
	case 0:
		return usagef("name %s", what)
	case 1:
		return nil
	}
	return usagef("name %s, not %d: %s", what, len(args), strings.Join(args, " "))
}

// choices is the annotation of a flag that holds its values.
const choices = "choices"

// complete makes the shell offer the values of a flag, and errors list them.
func complete(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.Flags().SetAnnotation(flag, choices, values) // fails only if there is no such flag
	offer := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	_ = cmd.RegisterFlagCompletionFunc(flag, offer) // fails only if the flag has a completion already
}
