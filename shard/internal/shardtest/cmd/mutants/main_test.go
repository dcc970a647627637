package main

import (
	"os/exec"
	"strings"
	"testing"
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
