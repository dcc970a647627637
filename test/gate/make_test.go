package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

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
