package run

import (
	"math"
	"testing"
	"time"
)

func TestWhatOthersTookIsWhatWasBusyAndNotOurs(t *testing.T) {
	before := usage{busy: 10 * time.Second, all: 100 * time.Second, ours: 3 * time.Second}
	after := usage{busy: 40 * time.Second, all: 140 * time.Second, ours: 23 * time.Second}
	if got := others(before, after); math.Abs(got-0.25) > 1e-9 {
		t.Errorf("got %v, want a quarter", got)
	}
	if got := others(after, after); got != 0 {
		t.Errorf("got %v for no time at all", got)
	}
}

func TestTheMachinesTimeIsReadWithoutItsIdleOne(t *testing.T) {
	busy, all, ok := parseCPU("cpu  100 20 30 400 50 6 7 8 0 0")
	if !ok || busy != 1710*time.Millisecond || all != 6210*time.Millisecond {
		t.Errorf("busy %v of %v, %v", busy, all, ok)
	}
	for _, bad := range []string{"", "cpu 1 2", "intr 1 2 3 4 5 6 7 8 9", "cpu a b c d e f g h"} {
		if _, _, ok := parseCPU(bad); ok {
			t.Errorf("%q was read", bad)
		}
	}
}
