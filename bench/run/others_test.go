package run

import (
	"math"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/bench/machine"
)

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
