package shardtest

import (
	"strings"
	"testing"
	"time"
)

// A replica that had trouble with a cluster is held back from it, so balance is judged only once that time is over, and
// not at all if the trouble never ends.
func TestBalanceIsJudgedOnceNoReplicaIsHeldBackAnyMore(t *testing.T) {
	for _, c := range []struct {
		fault FaultKind
		lasts time.Duration
		stage int // the last one
	}{{Crash, time.Second, 2}, {HangWarm, 9 * time.Second, 3}, {Unreach, 9 * time.Second, 3}, {Unreach, 0, 2}} {
		var sim Simulator
		r := sim.Run(Schedule{
			Nodes: 2, Bits: []int{1}, Joins: make([]time.Duration, 2), Rates: []float64{1, 1}, Faulty: 10 * time.Second,
			Lag: time.Millisecond, LongRun: true, Faults: []Fault{{Kind: c.fault, At: time.Second, For: c.lasts}},
		}, nil)
		w := &sim.world
		if r.Failure != "" || w.stage != c.stage {
			t.Fatalf("after %v for %v the run ends in stage %d, want %d: %s", c.fault, c.lasts, w.stage, c.stage, r.Failure)
		}
		for i := range w.ids { // now A has all
			w.nodes[1].close(i)
			w.nodes[0].setGate(i, open)
		}
		w.checkBalance()
		if got, want := strings.Contains(w.failure, "balance:"), c.lasts > 0; got != want {
			t.Errorf("after %v for %v, one replica has all: %q", c.fault, c.lasts, w.failure)
		}
	}
}
