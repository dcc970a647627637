package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/must"
)

// lines is what go test -json prints: ACTION [TEST] of package p, separated by semicolons.
func lines(text string) io.Reader {
	var b strings.Builder
	for line := range strings.SplitSeq(text, ";") {
		action, test, _ := strings.Cut(strings.TrimSpace(line), " ")
		b.WriteString(`{"Action":"` + action + `","Package":"p","Test":"` + test + "\"}\n")
	}
	return strings.NewReader(b.String())
}

func TestAPackagePassesOnlyIfTestsOfItRanAndNoneFailed(t *testing.T) {
	for name, c := range map[string]struct {
		output                  io.Reader
		passed, failed, skipped int
		fault                   string
	}{
		"all passed":          {lines("run A; run A/b; pass A/b; pass A; pass"), 2, 0, 0, ""},
		"a benchmark":         {lines("run A; pass"), 1, 0, 0, ""},
		"one was skipped":     {lines("run A; skip A; run B; pass B; pass"), 1, 0, 1, ""},
		"one failed":          {lines("run A; pass A; run B; fail B; fail"), 1, 1, 0, "B, p"},
		"no test ran":         {lines("start; pass"), 0, 0, 0, "p ran no test"},
		"it was cut short":    {lines("run A; pass A; run B; fail"), 1, 1, 0, "B, p"},
		"it never ended":      {lines("run A; pass A; run B"), 1, 1, 0, "B, p has no verdict"},
		"it doesn't compile":  {lines("fail"), 0, 0, 0, "p"},
		"nothing was printed": {strings.NewReader(""), 0, 0, 0, "no package was tested"},
		"there are no test files": {
			strings.NewReader(`{"Action":"output","Package":"p","Output":"?   \tp\t[no test files]\n"}` + "\n" +
				`{"Action":"skip","Package":"p"}`), 0, 0, 0, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &reader{log: io.Discard, out: &printer{to: io.Discard}, packages: map[string]*pkg{}}
			must.Succeed(t, r.read(c.output))
			var got counts
			fault := ""
			if err := r.verdict(&got); err != nil {
				fault = err.Error()
			}
			if got.passed != c.passed || got.failed != c.failed || len(got.skipped) != c.skipped || fault != c.fault {
				t.Errorf("%+v, %q; want %+v", got, fault, c)
			}
		})
	}
}

func TestASuiteFailsOverItsBudgetAndWhenACommandFails(t *testing.T) {
	t.Chdir(t.TempDir())
	must.Succeed(t, makeFolders())
	for name, c := range map[string]struct {
		suite suite
		fault string
	}{
		"it writes to both": {suite{budget: time.Minute, steps: []step{
			command("sh", "-c", "seq 9999 & seq 9999 >&2; wait"),
		}}, ""},
		"in time":       {suite{budget: time.Minute, steps: []step{command("true")}}, ""},
		"over budget":   {suite{budget: time.Nanosecond}, "over its budget"},
		"a bad command": {suite{budget: time.Minute, steps: []step{command("false")}}, "false: exit status 1"},
		"one that hangs": {
			suite{budget: time.Second, steps: []step{command("sleep", "60")}}, "stopped after TIME; over its budget",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.suite.name = "s"
			r := c.suite.run(t.Context(), &printer{to: io.Discard})
			got := regexp.MustCompile(`after [0-9hms]+`).ReplaceAllString(strings.Join(r.faults, "; "), "after TIME")
			if got != c.fault {
				t.Errorf("%q, want %q", got, c.fault)
			}
		})
	}
}

func TestTheTableFailsIfASuiteDidOrIfNoTestRan(t *testing.T) {
	good := &result{suite: suite{name: "good"}, counts: counts{passed: 2}}
	skips := &result{suite: suite{name: "skips"}, counts: counts{passed: 2, skipped: []string{"p A"}}}
	bad := &result{suite: suite{name: "bad"}, counts: counts{failed: 1}, faults: []string{"B"}}
	now := time.Now()
	builds := &result{suite: suite{name: "build", essential: true}, counts: counts{passed: 1}}
	builds.began, builds.ended = now, now.Add(time.Hour)
	long := &result{suite: suite{name: "long"}, began: builds.ended, ended: builds.ended.Add(budget + time.Second)}
	no, aSkips := func(string) bool { return false }, func(test string) bool { return test == "p A" }
	for fault, results := range map[string][]*result{
		"failed: over the budget of all suites (output in out/gate)": {builds, long},
		"": {good, builds}, "failed: bad (output in out/gate)": {good, bad}, "failed: no test ran (output in out/gate)": {{}},
		"failed: a test was skipped: -allow-skips accepts that (output in out/gate)": {
			good, skips},
	} {
		var out strings.Builder
		got := ""
		if err := table(&out, results, budget, no); err != nil {
			got = err.Error()
		}
		if got != fault {
			t.Errorf("%q, want %q\n%s", got, fault, out.String())
		}
	}
	var out strings.Builder
	if err := table(&out, []*result{skips}, budget, aSkips); err != nil {
		t.Errorf("skips were allowed: %v", err)
	}
	more := &result{suite: suite{name: "more"}, counts: counts{passed: 2, skipped: []string{"p B"}}}
	if err := table(io.Discard, []*result{skips, more}, budget, aSkips); err == nil {
		t.Error("a test may be skipped, so another one was")
	}
	_ = table(&out, []*result{skips, bad}, budget, aSkips) // what it prints counts here
	want := fmt.Sprintf("NOT TESTED: p A\n\n2 passed, 1 failed, 1 skipped in 0s of %v, builds in 0s\n", budget)
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("%s\nwant the end %q", out.String(), want)
	}
}

func TestSuitesAreChosenByNameAndEssentialOnesAlways(t *testing.T) {
	phases := [][]suite{{{name: "build", essential: true}}, {{name: "a"}, {name: "b"}}, {{name: "c"}}}
	chosen, err := choose(phases, "b")
	if err != nil || len(chosen) != 2 || chosen[0][0].name != "build" || chosen[1][0].name != "b" || len(chosen[1]) != 1 {
		t.Errorf("%v, %v", chosen, err)
	}
	if _, err := choose(phases, "b,d"); err == nil || !strings.Contains(err.Error(), "-only d") {
		t.Errorf("an unknown suite: %v", err)
	}
}

// On a machine that has built nothing yet, go list downloads modules, and says so.
func TestWhatGoSaysBesideIsNoPackage(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("PATH", folder+string(os.PathListSeparator)+os.Getenv("PATH"))
	for name, c := range map[string]struct {
		script, want, fault string
	}{
		"modules are downloaded": {"echo 'go: downloading example.com/m v1.0.0' >&2; echo p/a; echo p/b", "[p/a p/b]", ""},
		"nothing matches":        {"echo 'go: warning: \"./x\" matched no packages' >&2", "[]", "./x matches no package"},
		"it fails":               {"echo 'no required module' >&2; exit 1", "[]", "no required module"},
	} {
		must.Succeed(t, os.WriteFile(filepath.Join(folder, "go"), []byte("#!/bin/sh\n"+c.script+"\n"), 0o700))
		got, err := packages(t.Context(), "./x")
		if fmt.Sprint(got) != c.want || (err == nil) != (c.fault == "") ||
			err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %v, %v; want %s, %q", name, got, err, c.want, c.fault)
		}
	}
}

func TestWhatATestSaysIsKeptAndTheLogsOfProgramsAreNot(t *testing.T) {
	p := &printer{to: io.Discard}
	p.failure("s", "TestA", []byte("    a_test.go:1: 2, want 1\n    b.go:2: {\"time\":\"2026\",\"msg\":\"m\"}\n--- FAIL: "+
		"TestA\n"))
	want := "--- s: TestA\n    a_test.go:1: 2, want 1\n--- FAIL: TestA\n\n"
	if len(p.failures) != 1 || p.failures[0] != want {
		t.Errorf("%q, want %q", p.failures, want)
	}
}

func TestASlowMachineIsGivenTime(t *testing.T) {
	began := time.Now()
	took := func(name string, d time.Duration) *result {
		return &result{suite: suite{name: name, budget: 10 * time.Minute}, began: began, ended: began.Add(d)}
	}
	for _, c := range []struct {
		name    string
		results []*result
		want    pace
	}{
		{"as usual", []*result{took("cases", 9*time.Minute), took("pure", 5*time.Minute)}, usual},
		{"slow", []*result{took("cases", time.Minute), took("pure", 5*time.Minute+1)}, slow},
		{"nothing known", nil, usual},
	} {
		if got := usual.after(c.results); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	if got := slow.after([]*result{took("chaos", time.Second)}); got != slow {
		t.Errorf("a machine that was slow is so: %+v", got)
	}
}

// go test leaves out a name that matches nothing, and says nothing.
func TestTheTestsOfTheOldestKubernetesExist(t *testing.T) {
	t.Chdir("../..")
	phases, err := suites(t.Context())
	must.Succeed(t, err)
	all := slices.Concat(phases...)
	oldest := all[slices.IndexFunc(all, func(s suite) bool { return s.name == "oldest" })]
	named := 0
	for _, step := range oldest.steps {
		folder := step.args[len(step.args)-1]
		files, err := filepath.Glob(folder + "/*_test.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", folder, err)
		}
		var text []byte
		for _, file := range files {
			part, err := os.ReadFile(file)
			must.Succeed(t, err)
			text = append(text, part...)
		}
		for _, flag := range step.args {
			names, is := strings.CutPrefix(flag, "-run=^(")
			if !is {
				continue
			}
			for name := range strings.SplitSeq(strings.TrimSuffix(names, ")$"), "|") {
				if named++; !bytes.Contains(text, []byte("func "+name+"(t *testing.T)")) {
					t.Errorf("%s has no test %q", folder, name)
				}
			}
		}
	}
	if named < 6 {
		t.Errorf("%d tests are named", named)
	}
}
