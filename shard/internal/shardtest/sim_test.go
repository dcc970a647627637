package shardtest

import (
	"bytes"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var seeds = flag.Uint64("seeds", 20_000, "how many schedules TestSim runs")

func TestSimEveryInvariantHoldsInEverySchedule(t *testing.T) {
	var sim Simulator
	total, failed := RunSeeds(&sim, 1, *seeds)
	if failed != 0 {
		t.Fatal(sim.Explain(failed))
	}
	for kind, n := range total.Faults {
		if n == 0 && *seeds >= 1000 {
			t.Errorf("no schedule had a %v: the simulation shows nothing about it", FaultKind(kind))
		}
	}
	if total.Moves == 0 || total.Claims == 0 || total.Seals == 0 || total.Lapses == 0 {
		t.Errorf("nothing happened: %+v", total)
	}
}

func TestASeedReplaysTheSameRunToTheLetter(t *testing.T) {
	var first, again bytes.Buffer
	var used Simulator
	used.Run(NewSchedule(7), nil) // a simulator that has run something else before
	(&Simulator{Verbose: true}).Run(NewSchedule(42), &first)
	used.Verbose = true
	used.Run(NewSchedule(42), &again)
	if diff := cmp.Diff(first.String(), again.String()); diff != "" {
		t.Errorf("the second run differs:\n%s", diff)
	}
}

// A clock rate that is off by more than the margin covers is where the promise ends. That the simulator finds it shows
// that its clocks and its checks work.
func TestClockRatesBeyondTheMarginBreakI1AndShrinkToFewFaults(t *testing.T) {
	var sim Simulator
	for seed := uint64(1); seed < 3000; seed++ {
		schedule := NewSchedule(seed)
		for i := range schedule.Rates {
			schedule.Rates[i] = []float64{0.6, 1.5}[i%2]
		}
		r := sim.Run(schedule, nil)
		if !strings.Contains(r.Failure, "I1") && !strings.Contains(r.Failure, "R3") {
			continue
		}
		if kept := sim.Shrink(schedule); len(kept) > len(schedule.Faults)/2+1 {
			t.Errorf("seed %d: %d of %d faults are left after shrinking", seed, len(kept), len(schedule.Faults))
		}
		return
	}
	t.Error("no schedule failed, though clocks run at very different rates")
}

func TestAClockNeverRunsBackOnItsMonotonicSide(t *testing.T) {
	c := clock{rate: 1.05, origin: time.Hour}
	before := c.read(10 * time.Second)
	c.fallAsleep(10 * time.Second)
	asleep := c.read(20 * time.Second)
	if asleep.Mono != before.Mono || asleep.Wall <= before.Wall {
		t.Errorf("a sleeping machine's clocks go from %v to %v: want the wall clock alone to go on", before, asleep)
	}
	c.wakeUp(20 * time.Second)
	c.jumped = -time.Hour
	after := c.read(21 * time.Second)
	if after.Mono <= asleep.Mono || after.Wall >= before.Wall {
		t.Errorf("after waking and setting the wall clock back, the clocks read %v", after)
	}
	if at := c.trueTime(after.Mono); at < 21*time.Second || at > 21*time.Second+time.Millisecond {
		t.Errorf("a wake for what the clock reads at 21s comes at %v", at)
	}
}
