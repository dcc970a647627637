package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// checkout is a folder with the Makefile and what its rules ask for, at a path with a space in it. go and git are
// stand-ins: this one writes an archive of nothing, that one a file where -o says.
func checkout(t *testing.T) (root string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "a folder")
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"Makefile": string(makefile), "test/controlplane/progress.awk": "{ print }",
		"test/controlplane/go.mod": "", "test/controlplane/go.sum": "", "test/jaeger/go.mod": "", "test/jaeger/go.sum": "",
		"config/monitoring/gen/go.mod": "", "config/monitoring/gen/go.sum": "",
		"path/git": `#!/bin/sh
[ "$1" != archive ] || tar -cf "$3" -T /dev/null
`,
		"path/go": `#!/bin/sh
while [ "$1" != -o ]; do shift; done
case "$2" in */) ;; *) echo built >"$2" ;; esac
`,
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", filepath.Join(root, "path")+string(os.PathListSeparator)+os.Getenv("PATH"))
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
	root := checkout(t)
	makeIn(t, root, "controlplane", "jaeger", "promtool", "build", "lab", "before")
	for _, name := range []string{"controlplane", "jaeger", "promtool", "tenure-lab", "tenure-before"} {
		if _, err := os.Stat(filepath.Join(root, "bin", name)); err != nil {
			t.Error(err)
		}
	}
}
