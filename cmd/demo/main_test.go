package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/must"
)

func TestAWaitInVainSaysWhatWasWantedAndWhatWasSeen(t *testing.T) {
	st := &story{fleet: &lab.Fleet{}, board: newBoard(2, 2)}
	err := st.until(t.Context(), time.Millisecond, "all is well", func(snapshot) bool { return false })
	if err == nil || !strings.HasPrefix(err.Error(), "not within 0s: all is well (last seen: 00:00  Ats 0 pending") {
		t.Errorf("got %v", err)
	}
}

func TestATableIsDrawnOnceMoreAtTheEndButNotAfterAnInterrupt(t *testing.T) {
	defer func(was *os.File) { os.Stdout = was }(os.Stdout)
	for end, drawn := range map[error]bool{errDone: true, errInterrupted: false} {
		out, in, err := os.Pipe()
		must.Succeed(t, err)
		os.Stdout = in
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(end)
		draw(ctx, newBoard(2, 2))
		must.Succeed(t, in.Close())
		text, err := io.ReadAll(out)
		must.Succeed(t, err)
		if strings.Contains(string(text), "REPLICA") != drawn {
			t.Errorf("%v: %q", end, text)
		}
	}
}

// variableInterrupted makes a process of this test interrupt itself.
const variableInterrupted = "DEMO_TEST_INTERRUPTED"

// told writes to the standard output, and then closes the channel.
type told chan struct{}

func (t told) Write(text []byte) (int, error) {
	defer close(t)
	return os.Stdout.Write(text)
}

func TestAnInterruptIsAnsweredAtOnceAndTheCleanupSurvivesThatNobodyReadsIt(t *testing.T) {
	if os.Getenv(variableInterrupted) != "" {
		said := told(make(chan struct{}))
		ctx, stop := interruptible(said)
		defer stop()
		must.Succeed(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
		<-ctx.Done()
		<-said
		if !errors.Is(context.Cause(ctx), errInterrupted) {
			os.Exit(exitFailed)
		}
		os.Exit(exitInterrupted)
	}
	for _, read := range []bool{true, false} {
		out, in, err := os.Pipe()
		must.Succeed(t, err)
		demo := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		demo.Env, demo.Stdout = append(os.Environ(), variableInterrupted+"=1"), in
		if !read {
			must.Succeed(t, out.Close())
		}
		must.Succeed(t, demo.Start())
		must.Succeed(t, in.Close())
		if read {
			lines := bufio.NewScanner(out)
			for lines.Scan() && lines.Text() != "demo: stopping" {
			}
			if lines.Text() != "demo: stopping" {
				t.Error("nothing was said")
			}
		}
		if err := demo.Wait(); demo.ProcessState.ExitCode() != exitInterrupted {
			t.Errorf("with a reader: %t: %v", read, err)
		}
	}
}
