package run

import (
	"math"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/bench/machine"
	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/test/expect"
)

func TestARunTellsWhichGoVariablesWereSet(t *testing.T) {
	for _, name := range report.GoVariables {
		t.Setenv(name, "")
	}
	if e := environment(scenario.Scenario{}, Options{}); len(e.GoSettings) > 0 {
		t.Errorf("%s, and nothing was set", e.GoText())
	}
	t.Setenv("GOMEMLIMIT", "1GiB")
	t.Setenv("GOGC", "400")
	expect.Equal(t, "set", "GOGC=400, GOMEMLIMIT=1GiB", environment(scenario.Scenario{}, Options{}).GoText())
}

func TestWhatOthersTookIsWhatWasBusyAndNotOurs(t *testing.T) {
	before := usage{machine: machine.Times{Busy: 10 * time.Second, All: 100 * time.Second}, ours: 3 * time.Second}
	after := usage{machine: machine.Times{Busy: 40 * time.Second, All: 140 * time.Second}, ours: 23 * time.Second}
	if got, ok := others(before, after); !ok || math.Abs(got-0.25) > 1e-9 {
		t.Errorf("got %v (known: %v), want a quarter", got, ok)
	}
	if got, ok := others(after, after); ok { // as where /proc/stat has zeros
		t.Errorf("got %v for no time at all", got)
	}
}
