package localjaeger

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/lab/localplane"
)

func startForTest(t *testing.T) *Jaeger {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	j, err := Start(ctx, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Stop(); err != nil {
			t.Error(err)
		}
	})
	return j
}

func TestJaegerAnswersAndTakesSpansOnceStarted(t *testing.T) {
	j := startForTest(t)
	res, err := http.Get(j.QueryURL() + "/api/services")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var services struct{ Data []string }
	if err := json.NewDecoder(res.Body).Decode(&services); err != nil {
		t.Fatal(err)
	}
	connection, err := net.Dial("tcp", j.OTLPEndpoint())
	if err != nil {
		t.Fatal(err)
	}
	connection.Close()
}

func TestStopLeavesNoPortAndNoFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	j := startForTest(t)
	if err := j.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{j.OTLPEndpoint(), strings.TrimPrefix(j.QueryURL(), "http://")} {
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
	if err := os.WriteFile(binary, []byte("#!/bin/sh\necho cannot work today\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Config{Binary: binary})
	if err == nil || !strings.Contains(err.Error(), "cannot work today") ||
		!strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error is %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "tenure-jaeger-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
