package localjaeger

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/must"
)

func startForTest(t *testing.T) *Jaeger {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	j, err := Start(ctx, Config{})
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := j.Stop(); err != nil {
			t.Error(err)
		}
	})
	return j
}

// Start has read a page and reached the address for spans.
func TestStopLeavesNoPortAndNoFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	j := startForTest(t)
	must.Succeed(t, j.Stop())
	for _, address := range []string{j.otlp, strings.TrimPrefix(j.QueryURL(), "http://")} {
		if connection, err := net.Dial("tcp", address); err == nil {
			connection.Close()
			t.Errorf("somebody listens on %s", address)
		}
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "tenure-jaeger-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

func TestAMissingBinarySaysHowToGetIt(t *testing.T) {
	t.Setenv(BinaryVariable, filepath.Join(t.TempDir(), "nothing"))
	_, err := Start(t.Context(), Config{})
	if !errors.Is(err, localplane.ErrNoBinary) || !strings.Contains(err.Error(), BinaryVariable) {
		t.Errorf("error is %v", err)
	}
}

func TestAStartThatFailsShowsTheLogAndLeavesNoFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	binary := filepath.Join(t.TempDir(), "jaeger")
	must.Succeed(t, os.WriteFile(binary, []byte("#!/bin/sh\necho cannot work today\nexit 3\n"), 0o700))
	_, err := Start(t.Context(), Config{Binary: binary})
	if err == nil || !strings.Contains(err.Error(), "cannot work today") ||
		!strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error is %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "tenure-jaeger-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
