package main

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestOnlyATestThatFailedHasCaughtAMutant(t *testing.T) {
	for _, c := range []struct{ name, script, caught, away string }{
		{"a test fails", `echo "--- FAIL: TestA (0s)"; exit 1`, "TestA", ""},
		{"a part of a test fails", `printf -- "--- FAIL: TestA (0s)\n--- FAIL: TestA/b (0s)\n"; exit 1`, "TestA/b", ""},
		{"an invariant is broken", `printf -- "--- FAIL: TestSim (0s)\n seed 3: at 1.5s: a-1: I1: two\n"; exit 1`,
			"TestSim, I1: two", ""},
		{"a schedule panics", `printf -- "--- FAIL: TestSim (0s)\n seed 3: panic: nil\n"; exit 1`, "TestSim, panic: nil", ""},
		{"out of time", `printf -- "--- FAIL: TestA (0s)\npanic: test timed out after 1s\n"; exit 2`, "", "out of time"},
		{"killed", `echo "--- FAIL: TestA (0s)"; kill -9 $$`, "", "signal: killed"},
		{"given up before a test failed", `echo "fatal error"; exit 2`, "", "no test failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, ended := exec.Command("sh", "-c", c.script).CombinedOutput()
			caught, err := firstFailure(string(out), ended)
			if caught != c.caught || (err == nil) != (c.away == "") || (err != nil && !strings.Contains(err.Error(), c.away)) {
				t.Errorf("caught by %q, error %v; want %q, %q", caught, err, c.caught, c.away)
			}
		})
	}
}

func TestATestThatPassesWhenItRunsOnceMoreHasCaughtNothing(t *testing.T) {
	for _, c := range []struct{ name, script, away string }{
		{"it fails again", `echo "--- FAIL: TestA (0s)"; exit 1`, ""},
		{"it passes", `exit 0`, "TestA/b failed, and passed"},
		{"it is killed", `kill -9 $$`, "signal: killed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := again(func(args ...string) (string, error) {
				if got := strings.Join(args, " "); got != "-test.run=^TestA$" {
					t.Errorf("it runs %s", got)
				}
				out, err := exec.Command("sh", "-c", c.script).CombinedOutput()
				return string(out), err
			}, "TestA/b")
			if (err == nil) != (c.away == "") || (err != nil && !strings.Contains(err.Error(), c.away)) {
				t.Errorf("error %v; want %q", err, c.away)
			}
		})
	}
}

func TestOnlyWhatWasJudgedCanGetAway(t *testing.T) {
	for name, c := range map[string]struct {
		of     int
		given  []verdict
		want   string
		caught int
	}{
		"all are caught": {2, []verdict{{name: "a", caught: "x.TestA/b"}, {name: "b", caught: "x.TestB, I1: two"}},
			"", 2},
		"one gets away": {2, []verdict{{name: "a"}, {name: "b", caught: "x.TestB"}},
			"1 seeded bugs weren't caught: a", 1},
		"interrupted": {3, []verdict{{name: "b", caught: "x.TestB"}},
			"interrupted: 2 seeded bugs weren't judged", 1},
		"the list names none": {0, nil, "no seeded bug was judged: --run names none", 0},
	} {
		verdicts := make(chan verdict, len(c.given))
		for _, v := range c.given {
			verdicts <- v
		}
		close(verdicts)
		got := ""
		tests, err := report(c.of, verdicts, time.Now())
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		if len(tests) != c.caught {
			t.Errorf("%s: %v are remembered, want %d", name, tests, c.caught)
		}
	}
}

func TestATestIsRememberedWithoutItsPartAndWhatItSaid(t *testing.T) {
	for caught, want := range map[string]string{
		"at.TestA": "at.TestA", "at.TestA/b": "at.TestA", "shardtest.TestSim, I1: a/b": "shardtest.TestSim",
	} {
		if got := topmost(caught); got != want {
			t.Errorf("%q of %q, want %q", got, caught, want)
		}
	}
}
