// Command bench measures and judges Tenure. Its subcommands print a text a person can read, and write JSON on request.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes, the same for all subcommands.
const (
	exitOK       = 0
	exitFindings = 1
	exitUsage    = 2
)

// errFindings means that the command worked and found something, which its report shows. Any other error is bad
// input.
var errFindings = errors.New("findings")

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use: "bench", Short: "Measures and judges Tenure",
		Long:          "Measures and judges Tenure.\n\nExit code: 0 clean, 1 findings, 2 bad flags or input.",
		SilenceErrors: true, SilenceUsage: true, SuggestionsMinimumDistance: 2,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			hint := ""
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				hint = fmt.Sprintf(", did you mean %s?", strings.Join(near, " or "))
			}
			return fmt.Errorf("unknown command %q%s (bench help lists them)", args[0], hint)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(cmd.Help(), errors.New("want a command"))
		},
	}
	root.AddCommand(newList(), newRun(), newTour(), newCompare(), newPool(), newCheck(), newPublish(),
		newAlgorithms(), newFloor(),
		newWitness())
	return root
}

func run(args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once, and its children with it
	cmd, err := root.ExecuteContextC(ctx)
	code, text := outcome(ctx, err)
	if text != "" {
		fmt.Fprintf(stderr, "%s: %s\n", cmd.CommandPath(), text)
	}
	return code
}

// outcome returns the exit code for a command's error, and what to print. A signal's context is over: what fails then
// fails because of it.
func outcome(ctx context.Context, err error) (code int, text string) {
	switch {
	case err == nil:
		return exitOK, ""
	case errors.Is(err, errFindings):
		return exitFindings, ""
	case ctx.Err() != nil:
		return exitUsage, "interrupted"
	}
	return exitUsage, err.Error()
}

// clusterFile is a flag value CLUSTER=FILE.
type clusterFile struct{ cluster, path string }

// clusterFiles reads the values of the repeated flag --kubeconfig.
func clusterFiles(values []string) ([]clusterFile, error) {
	var out []clusterFile
	for _, v := range values {
		cluster, path, _ := strings.Cut(v, "=")
		if path == "" || cluster == "" {
			return nil, fmt.Errorf("--kubeconfig %s: want CLUSTER=FILE", v)
		}
		out = append(out, clusterFile{cluster, path})
	}
	return out, nil
}

// exactlyOne demands one argument, and says what it is.
func exactlyOne(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return fmt.Errorf("want %s", what)
		case 1:
			return nil
		}
		return fmt.Errorf("want %s, one, got %q", what, args)
	}
}
