package attacks

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/tenure-dev/tenure/pkg/text"
	"github.com/tenure-dev/tenure/test/must"
)

// canary stands for a secret in what is attacked with.
const canary = "canary-b81f6a03"

// leastCases is how many the corpus has at least. It only ever grows.
const leastCases = 340

// named are cases with a name of their own.
type named interface{ caseName() string }

// read reads the cases of a family. Names are unique, so that a failure says which case it is.
func read[C named](t testing.TB, family string) []C {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", family+".yaml"))
	must.Succeed(t, err)
	var cases []C
	if err := yaml.UnmarshalStrict(text, &cases); err != nil {
		t.Fatalf("%s: %v", family, err)
	}
	seen := map[string]bool{}
	for _, c := range cases {
		if seen[c.caseName()] || c.caseName() == "" {
			t.Fatalf("%s: there are two cases %q", family, c.caseName())
		}
		seen[c.caseName()] = true
	}
	return cases
}

func TestTheCorpusIsAsLargeAsItWas(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	must.Succeed(t, err)
	sum := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.Succeed(t, err)
		n := strings.Count("\n"+string(text), "\n- name:")
		t.Logf("%s: %d", filepath.Base(file), n)
		sum += n
	}
	if sum < leastCases {
		t.Errorf("%d cases, at least %d are wanted", sum, leastCases)
	}
}

// traps are what an attack may not touch.
type traps struct {
	file, program string
	mark          string // exists once the program has run
	pipe          int    // of inotify
}

// setTraps makes a file whose opening is noticed, and a program that leaves a mark.
func setTraps(t testing.TB) *traps {
	t.Helper()
	dir := t.TempDir()
	s := &traps{file: filepath.Join(dir, "file"), program: filepath.Join(dir, "program"), mark: filepath.Join(dir, "mark")}
	for path, content := range map[string]string{s.file: canary, s.program: "#!/bin/sh\ntouch " + s.mark + "\n"} {
		must.Succeed(t, os.WriteFile(path, []byte(content), 0o700))
	}
	var err error
	s.pipe, err = syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = syscall.Close(s.pipe) })
	_, err = syscall.InotifyAddWatch(s.pipe, s.file, syscall.IN_OPEN)
	must.Succeed(t, err)
	return s
}

// check fails the test if one of them was touched since the last check.
func (s *traps) check(t testing.TB) {
	t.Helper()
	if n, err := syscall.Read(s.pipe, make([]byte, 4096)); err == nil && n > 0 {
		t.Error("the file was opened")
	}
	if _, err := os.Stat(s.mark); err == nil {
		t.Error("the program was run")
		_ = os.Remove(s.mark)
	}
}

// bounded fails the test if what is done takes long or much memory: an attack has to cost its victim little.
func bounded(t testing.TB, do func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	do()
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	if took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 128<<20 {
		t.Errorf("it took %d MiB", bytes>>20)
	}
}

// shown fails the test if what somebody will see has the canary in it, or what isn't fit to be shown.
func shown(t testing.TB, what string) {
	t.Helper()
	if strings.Contains(what, canary) {
		t.Errorf("the canary is shown: %s", what)
	}
	if text.Line(what, len(what)) != what {
		t.Errorf("a character is shown that isn't printable: %q", what)
	}
}

func TestTheTrapsSnap(t *testing.T) {
	s := setTraps(t)
	s.check(t)
	caught := &testing.T{}
	_, err := os.ReadFile(s.file)
	must.Succeed(t, err)
	if s.check(caught); !caught.Failed() {
		t.Error("a file was opened and nobody noticed")
	}
	must.Succeed(t, os.WriteFile(s.mark, nil, 0o600))
	caught = &testing.T{}
	if s.check(caught); !caught.Failed() {
		t.Error("a program was run and nobody noticed")
	}
}
