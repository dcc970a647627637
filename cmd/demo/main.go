// Command demo shows Tenure at work on this machine: three replicas share the Ats of three real clusters, one replica
// is killed half way, a fourth one joins; then a dozen Deployments are kept in all clusters while copies are deleted
// and scaled by hand and a cluster freezes. In the end the API servers are asked whether anything was lost, early, done
// twice or left as it was, and Jaeger whether it has the whole story.
//
// `make demo` builds what it needs and runs it. With a terminal it draws a live table, and stays up until Ctrl-C so
// that one can look around; without one it prints a line every two seconds and ends, with exit code 0 only if
// everything holds. Everything it starts dies with it, however it ends.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Exit codes.
const (
	exitFailed      = 1 // something doesn't hold, or couldn't be started
	exitUsage       = 2
	exitInterrupted = 130
)

// errInterrupted is the cause of a context that a signal ended.
var errInterrupted = errors.New("interrupted")

func main() { os.Exit(realMain()) }

func realMain() int {
	started := false
	err := newDemo(os.Getenv, func(s *settings) error {
		started = true
		// Libraries would write over the table; what matters is in the replicas' own logs.
		klog.SetLogger(logr.Discard())
		log.SetLogger(logr.Discard())
		ctx, stop := interruptible(os.Stdout)
		defer stop()
		return run(ctx, s)
	}).Execute()
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(os.Stderr, "demo: interrupted; everything is stopped")
		return exitInterrupted
	}
	fmt.Fprintf(os.Stderr, "demo: %v\n", err)
	if !started {
		return exitUsage
	}
	return exitFailed
}

// interruptible returns a context that the first signal ends. It says so at once where progress is shown, since what
// was started may take seconds to end. A second signal ends the process at once, and with it its children. But if the
// second signal is SIGHUP, from a terminal that is closed, it is ignored. So is SIGPIPE: Ctrl-C may have ended the
// reader of our output, too, and what was started must still be stopped and removed.
func interruptible(progress io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-signals
		signal.Reset(syscall.SIGINT, syscall.SIGTERM)
		signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
		cancel(errInterrupted)
		drawing.Lock() // a table that is drawn after this would overwrite the line, so none is
		defer drawing.Unlock()
		fmt.Fprintln(progress, "\ndemo: stopping")
	}()
	return ctx, func() { cancel(nil) }
}
