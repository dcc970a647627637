package shardtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

var (
	seeds = flag.Uint64("seeds", sized(50_000), "how many schedules TestSim runs from seed 1 on")
	fresh = flag.Uint64("fresh", sized(20_000), "how many schedules TestSim runs from a seed that it draws")
)

// sized is a twentieth with -race, which is some ten times slower: what it looks for is in the simulator's few
// goroutines.
func sized(n uint64) uint64 {
	race := debug.BuildSetting{Key: "-race", Value: "true"}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, race) {
		return n / 20
	}
	return n
}

// onRecord is how many schedules failed once; raise it with each that joins them, so that none is lost unnoticed.
const onRecord = 87

// Those that failed once come first: they are few, and the most likely to fail again.
func TestSimEveryInvariantHoldsInEverySchedule(t *testing.T) {
	known, err := Regressions()
	if err != nil || len(known) < onRecord {
		t.Fatalf("%d schedules are on record (%v), want all %d that failed once", len(known), err, onRecord)
	}
	workers, base := runtime.GOMAXPROCS(0), rand.Uint64N(1<<48)
	total := Recorded(known, workers)
	for _, part := range []struct{ first, count uint64 }{{1, *seeds}, {base, *fresh}} {
		if len(total.Kinds) == 0 {
			total.Add(Seeds(part.first, part.count, workers, 1))
		}
	}
	t.Logf("seeds from 1, and %d from %d", *fresh, base)
	for _, kind := range total.Failed() {
		var sim Simulator
		story, _ := sim.Explain(total.Kinds[kind].Schedule)
		t.Fatalf("%s\nreplay: go run ./shard/internal/shardtest/cmd/sim %s", story, total.Kinds[kind].Replay)
	}
	for kind, n := range total.Faults {
		if n == 0 && *seeds >= 1000 {
			t.Errorf("no schedule had a %v: the simulation shows nothing about it", FaultKind(kind))
		}
	}
	if total.Moves == 0 || total.Claims == 0 || total.Seals == 0 || total.Lapses == 0 {
		t.Errorf("nothing happened: %+v", total.Stats)
	}
}

func TestASeedReplaysTheSameRunToTheLetter(t *testing.T) {
	var first, again bytes.Buffer
	var used Simulator
	used.Run(NewSchedule(7), nil) // a simulator that has run something else before
	(&Simulator{Verbose: true}).Run(NewSchedule(42), &first)
	used.Verbose = true
	used.Run(NewSchedule(42), &again)
	expect.Equal(t, "the second run differs", first.String(), again.String())
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
		small := sim.Shrink(schedule)
		if len(small.Faults) > len(schedule.Faults)/2+1 {
			t.Errorf("seed %d: %d of %d faults are left after shrinking", seed, len(small.Faults), len(schedule.Faults))
		}
		line, err := Regression{Kind: r.Kind, Schedule: small}.Line()
		var read Regression
		must.Succeed(t, errors.Join(err, json.Unmarshal(line, &read)))
		if again := sim.Run(read.Schedule, nil); again.Kind != r.Kind {
			t.Errorf("seed %d fails with %q; shrunk, written and read with %q", seed, r.Kind, again.Kind)
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

// The tally of a record's writes begins anew with its holder, so a move that ended leaves nothing there. A cluster that
// waits for processes of the previous version may come to rest only when they have gone.
func TestAShardThatChangesHandsInQuietFailsTheRun(t *testing.T) {
	for _, c := range []struct {
		moves        int
		waits, fails bool
	}{{0, false, false}, {1, false, true}, {1, true, false}} {
		w := &world{script: true, out: io.Discard}
		w.reset(Schedule{Nodes: 2, Bits: []int{1}, Faulty: 1 << 60, Lag: time.Millisecond})
		w.tallies[0].taken = c.moves
		if c.waits {
			w.nodes[0].up, w.nodes[0].previous = true, true
			w.made[w.ids[0].Cluster] = 1
		}
		w.checkQuiet()
		if got := strings.Contains(w.failure, "change hands"); got != c.fails {
			t.Errorf("%+v: %q", c, w.failure)
		}
	}
}

func TestTwoShardsThatCoverOneSlotAreNeverHeldAtOnceWhateverTheirNames(t *testing.T) {
	for _, c := range []struct {
		name, held, other string
		want              string
	}{
		{"one inside the other", "west/0", "west/01", "I1: shards"},
		{"beside each other", "west/0", "west/1", ""},
		{"one that holds both, which nobody holds", "west/00", "west/01", ""},
		{"the same", "west/0", "west/0", "I1: shard west/0 has two holders"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{script: true, out: io.Discard}
			w.reset(Schedule{Nodes: 2, Faulty: 1 << 60, Lag: time.Millisecond})
			for _, command := range []string{"clusters none:0", "start a b", "run 1s"} {
				must.Succeed(t, w.obey(strings.Fields(command)))
			}
			for i, text := range []string{c.held, c.other, "west/0"} {
				id, err := keyspace.ParseShardID(text)
				must.Succeed(t, err)
				if at := w.shardIndex(id); i < 2 {
					w.nodes[i].gates[at].epoch = 1
					w.nodes[i].setGate(at, open)
				}
			}
			w.checkHolders()
			if !strings.Contains(w.failure, c.want) || (c.want == "") != (w.failure == "") {
				t.Errorf("the failure is %q, want %q", w.failure, c.want)
			}
			w.failure = ""
			w.nodes[0].work()
			w.nodes[1].work()
			if (w.failure != "") != (c.want != "") {
				t.Errorf("both write at one epoch, and the failure is %q", w.failure)
			}
		})
	}
}
