package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/must"
)

// checkout is a folder with the Makefile and what its rules ask for, at a path with a space in it. go and git are
// stand-ins: git writes an archive of nothing, go a file where -o says, and waits until so many have.
func checkout(t *testing.T, builds string) (root string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "a folder")
	makefile, err := os.ReadFile("../../Makefile")
	must.Succeed(t, err)
	for name, text := range map[string]string{
		"Makefile": string(makefile), "test/controlplane/progress.awk": "{ print }",
		"test/controlplane/go.mod": "", "test/controlplane/go.sum": "",
		"test/oldest/main.go": "", "test/oldest/go.mod": "", "test/oldest/go.sum": "",
		"test/jaeger/go.mod": "", "test/jaeger/go.sum": "",
		"config/monitoring/gen/go.mod": "", "config/monitoring/gen/go.sum": "",
		"path/git": `#!/bin/sh
[ "$1" != archive ] || tar -cf "$3" -T /dev/null
`,
		"path/go": `#!/bin/sh
while [ "$1" != -o ]; do shift; done
case "$2" in */) ;; *) echo built >"$2" ;; esac
: >"$BUILDS/$$"
until [ "$(ls "$BUILDS" | wc -l)" -ge ` + builds + ` ]; do sleep 0.01; done
`,
	} {
		file := filepath.Join(root, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.Succeed(t, os.WriteFile(file, []byte(text), 0o755))
	}
	t.Setenv("PATH", filepath.Join(root, "path")+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("BUILDS", t.TempDir())
	t.Setenv("MAKEFLAGS", "") // of the make that runs this test
	return root
}

func makeIn(t *testing.T, root string, targets ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "make", targets...)
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("make %v: %v\n%s", targets, err, out)
	}
}

func TestMakeBuildsInAFolderWithASpace(t *testing.T) {
	root := checkout(t, "0")
	makeIn(t, root, "controlplane", "oldest", "jaeger", "promtool", "build", "lab", "before")
	for _, name := range []string{"controlplane", "controlplane-oldest", "jaeger", "promtool", "tenure-lab",
		"tenure-before"} {
		if _, err := os.Stat(filepath.Join(root, "bin", name)); err != nil {
			t.Error(err)
		}
	}
}

// waiter is every program that is built: the one named by WAITS says that it runs, and waits for SIGTERM.
const waiter = `#!/bin/sh
case "$0" in */"$WAITS") ;; *) exit 0 ;; esac
trap 'echo >ended; exit 1' TERM
echo >"$RUNS"
until [ -e "$STOP" ]; do sleep 0.01; done
`

// Each program gets SIGTERM when make gets it, and make waits for its end.
func TestWhoEndsMakeEndsTheProgramThatItRuns(t *testing.T) {
	for _, c := range []struct{ target, program, in string }{
		{"test", "gate", "."}, {"sim", "sim", "."}, {"mutants", "mutants", "."}, {"chaos", "chaos", "."},
		{"chaos", "cycles.test", "shard/internal/engage/cycles"}, {"gates", "chaos", "."}, {"gates", "mutants", "."},
		{"bench", "bench", "."}, {"demo", "demo", "."},
	} {
		t.Run(c.target+" "+c.program, func(t *testing.T) {
			root, folder := checkout(t, "0"), t.TempDir()
			program, runs, stop := filepath.Join(folder, "program"), filepath.Join(folder, "runs"), filepath.Join(folder, "stop")
			must.Succeed(t, os.WriteFile(program, []byte(waiter), 0o755))
			must.Succeed(t, os.WriteFile(filepath.Join(root, "path/go"), []byte(`#!/bin/sh
while [ "$1" != -o ]; do shift || exit; done
case "$2" in */) cp "$PROGRAM" "$2bench" ;; *) cp "$PROGRAM" "$2" ;; esac
`), 0o755))
			must.Succeed(t, os.MkdirAll(filepath.Join(root, c.in), 0o755))
			defer func() { must.Succeed(t, os.WriteFile(stop, nil, 0o644)) }()
			run := exec.CommandContext(t.Context(), "make", c.target)
			run.Dir, run.Stdout, run.Stderr, run.WaitDelay = root, t.Output(), t.Output(), time.Second
			run.Env = append(os.Environ(), "PROGRAM="+program, "WAITS="+c.program, "RUNS="+runs, "STOP="+stop)
			must.Succeed(t, run.Start())
			done := make(chan error, 1)
			go func() { done <- run.Wait() }()
			for there := false; !there; {
				select {
				case err := <-done:
					t.Fatalf("make %s ended before %s ran: %v", c.target, c.program, err)
				case <-time.After(10 * time.Millisecond):
					_, err := os.Stat(runs)
					there = err == nil
				}
			}
			must.Succeed(t, run.Process.Signal(syscall.SIGTERM)) // make's alone
			if err := <-done; err == nil {
				t.Error("make succeeded")
			}
			if _, err := os.Stat(filepath.Join(root, c.in, "ended")); err != nil {
				t.Errorf("%s hadn't ended when make had: %v", c.program, err)
			}
		})
	}
}

func TestSettingsOfABenchmarkNeedAScenario(t *testing.T) {
	root := checkout(t, "0")
	makeIn(t, root, "bench", "SET=size=full", "SCENARIO=handoff", "-n")
	makeIn(t, root, "before", "SET=something else")
	c := exec.CommandContext(t.Context(), "make", "bench", "SET=size=full")
	c.Dir = root
	out, err := c.CombinedOutput()
	if built, _ := filepath.Glob(filepath.Join(root, "bin/*")); err == nil || len(built) > 1 || // before's
		!strings.Contains(string(out), `SET="size=full" needs SCENARIO=name`) {
		t.Errorf("%v, built %q:\n%s", err, built, out)
	}
}

func TestWithoutACloneTheVersionBeforeIsNotBuilt(t *testing.T) {
	root := checkout(t, "0")
	must.Succeed(t, os.Remove(filepath.Join(root, "path/git"))) // the stand-in
	t.Setenv("GIT_DIR", t.TempDir())
	c := exec.CommandContext(t.Context(), "make", "before")
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "takes git and a clone") ||
		!strings.Contains(string(out), "not a git repository") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestTwoMakesBuildTheSameAtATime(t *testing.T) {
	for _, name := range []string{"controlplane", "jaeger", "promtool"} {
		root := checkout(t, "2")
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { makeIn(t, root, name) })
		}
		both.Wait()
		if found, err := filepath.Glob(filepath.Join(root, "bin", "*")); err != nil || len(found) != 1 ||
			filepath.Base(found[0]) != name {
			t.Errorf("%q is left, %v, want %s", found, err, name)
		}
	}
}
