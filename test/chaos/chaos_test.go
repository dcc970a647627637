package main

import (
	"context"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/bench/witness"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/must"
)

// TestNoInvariantBreaksInAShortStorm is a few minutes of what `make chaos` does. It asserts invariants, and no figures.
func TestNoInvariantBreaksInAShortStorm(t *testing.T) {
	err := play(t.Context(), settings{
		seed: uint64(time.Now().UnixNano()) % 1_000_000, bound: 10 * time.Minute, calm: 3, faults: 16, moves: 60, rate: 20,
		lease: 5 * time.Second, replicas: 3, shards: 8, quiet: 2 * time.Second, lenient: true, patience: restWithin, slack: 1,
		scenarios: []string{"calm", "storm", "moves"},
	}, t.Output())
	must.Succeed(t, err)
}

// TestNoInvariantBreaksInAShortUntidyRun has one of each kind of untidy fault that is over soon.
func TestNoInvariantBreaksInAShortUntidyRun(t *testing.T) {
	err := play(t.Context(), settings{
		seed: uint64(time.Now().UnixNano()) % 1_000_000, bound: 6 * time.Minute, untidy: 4, rate: 20,
		kinds: regexp.MustCompile("one replica cut off|Lease deleted|record deleted|Secret rotated"),
		lease: 5 * time.Second, replicas: 3, shards: 4, quiet: time.Second, lenient: true, patience: restWithin, slack: 1,
		scenarios: []string{untidy},
	}, t.Output())
	must.Succeed(t, err)
}

func TestFlagsThatMakeNoSenseAreNamedBeforeAnythingStarts(t *testing.T) {
	for args, want := range map[string]string{
		"":                       "",
		"--kinds record":         "",
		"--kinds nonsense":       "--kinds \"nonsense\" matches none of:\n  home restored, 1 s old\n",
		"--kinds (":              "--kinds: error parsing regexp",
		"--objects 0":            "--objects 0: want at least 1",
		"--calm -1 --handoffs 0": "--calm -1: want at least 1 (--scenario says what is played)\n--handoffs 0",
		"--replicas 1":           "--replicas 1: want at least 2",
		"--for 0s":               "--for 0s: want at least 1s",
		"--quiet -1s":            "--quiet -1s: want at least 0s",
		"--rate NaN":             "--rate NaN: want more than 0",
		"--shards-per-cluster 3": "--shards-per-cluster 3: want a power of two up to 256, or 0",
		"--tenure /no/such":      "/no/such, named by --tenure",
		"--scenario none":        "--scenario \"none\": want calm",
	} {
		_, err := parse(strings.Fields(args))
		if want == "" {
			must.Succeed(t, err)
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", args, err, want)
		}
	}
}

func TestGatesThatDoNotExistAreRefusedBeforeAnythingIsBuilt(t *testing.T) {
	var out strings.Builder
	if code := runGates(t.Context(), []string{"--only", "nonsense"}, &out); code != 2 ||
		!strings.Contains(out.String(), "matches none of these gates and faults:\n  I1 write after a handoff\n") {
		t.Errorf("exit code %d, and it says:\n%s", code, out.String())
	}
}

func TestArgumentsThatNothingChangedInAreCountedAsNone(t *testing.T) {
	args := []string{"--v=2", "--feature-gates=A=true,B=true"}
	got, n := replaceIn(args, "B=true", "B=false")
	if diff := cmp.Diff([]string{"--v=2", "--feature-gates=A=true,B=false"}, got); diff != "" || n != 1 {
		t.Errorf("%d changed, (-want +got):\n%s", n, diff)
	}
	if got, n = replaceIn(args, "C=true", "C=false"); n != 0 || cmp.Diff(args, got) != "" {
		t.Errorf("got %q, %d changed; want none", got, n)
	}
}

func TestFaultsWithoutEffectDoNotCount(t *testing.T) {
	for name, c := range map[string]struct {
		fault       fault
		ended       bool // the run, before the fault took effect
		done, noted int
	}{
		"took effect":                         {fault{Hits: 1}, false, 1, 1},
		"took effect, and the run ended":      {fault{Hits: 1}, true, 1, 1},
		"shows one sign of two":               {fault{Hits: 1, Of: 2}, false, 0, 1},
		"nobody looked for a sign":            {fault{}, false, 0, 1},
		"the run ended before it could do so": {fault{}, true, 0, 0},
	} {
		ctx, end := context.WithCancel(t.Context())
		if c.ended {
			end()
		}
		r := &run{out: io.Discard}
		r.note(ctx, c.fault)
		if end(); r.done() != c.done || len(r.faults) != c.noted {
			t.Errorf("%s: %d count, %d noted; want %d, %d", name, r.done(), len(r.faults), c.done, c.noted)
		}
	}
}

func TestAProcessThatEndedWithoutTheSignalWasNotKilledByIt(t *testing.T) {
	for script, killed := range map[string]bool{
		"kill -9 $$": true, "kill -15 $$": false, "exit 0": false, "exit 137": false,
	} {
		c := exec.Command("/bin/sh", "-c", script)
		_ = c.Run() // its state says how it ended
		if got := endedBy(c.ProcessState, syscall.SIGKILL); got != killed {
			t.Errorf("%s: killed %v", script, got)
		}
	}
}

func TestOnlyANewIncarnationOfTheSameReplicaHasJoined(t *testing.T) {
	before := map[string]bool{"r1-aaaaa": true, "r2-bbbbb": true}
	for name, want := range map[string]bool{"r1-ccccc": true, "r1-aaaaa": false, "r2-ddddd": false} {
		if got := joined("r1", before, map[string]bool{name: true, "r2-bbbbb": true}); got != want {
			t.Errorf("%s: joined %v", name, got)
		}
	}
}

func TestHogsThatHardlyRanHadNoEffect(t *testing.T) {
	for used, want := range map[time.Duration]bool{0: false, 290 * time.Millisecond: false, 300 * time.Millisecond: true} {
		if got := (fault{Of: hogsGet, Hits: hundredths(used, 6*time.Second)}).tookEffect(); got != want {
			t.Errorf("%v of 6s: %v", used, got)
		}
	}
	if got := hundredths(0, 0); got != 0 {
		t.Errorf("no time at all: %d", got)
	}
}

func TestALongUntidyRunOwesEachKindOfFault(t *testing.T) {
	for name, c := range map[string]struct {
		made   map[string]int
		wanted int
		owes   bool // the kind "old", of two
	}{
		"nothing was made":                        {nil, 4, true},
		"some are missing":                        {map[string]int{"old": 1, "new": 2}, 4, true},
		"as many as wanted, of both":              {map[string]int{"old": 1, "new": 3}, 4, false},
		"as many as wanted, of the other":         {map[string]int{"new": 4}, 4, true},
		"one, in a run that has no room for both": {map[string]int{"new": 1}, 1, false},
	} {
		if got := owed("old", c.made, c.wanted, 2); got != c.owes {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestAShardIsUnservedUntilALaterEpochIsActive(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	active := func(shard string, epoch int64, after time.Duration) lab.Line {
		return lab.Line{Shard: shard, Epoch: epoch, Time: began.Add(after)}
	}
	lines := []lab.Line{
		active("west/0", 3, -time.Second),  // the victim's own
		active("west/0", 5, 9*time.Second), // and again, later
		active("west/0", 4, 5*time.Second),
		active("west/1", 9, 2*time.Second), // the epoch that it had
	}
	ds, missing := unserved(fault{Start: began, Tenures: map[string]int64{"west/0": 3, "west/1": 9}}, lines)
	expect.Equal(t, "unserved for", []time.Duration{5 * time.Second}, ds)
	expect.Equal(t, "unserved to the end", []string{"west/1"}, missing)
}

func TestAnAtIsLateUntilItWasFirstServed(t *testing.T) {
	due := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a, b, early := madeAt{cluster: "west", name: "a", due: due}, madeAt{cluster: "east", name: "a", due: due},
		madeAt{cluster: "west", name: "b", due: due}
	all, never := lateness([]madeAt{a, b, early}, []witness.Served{
		{Cluster: "west", Namespace: atNamespace, Name: "a", Shard: "west/1", Time: due.Add(9 * time.Second)},
		{Cluster: "west", Namespace: atNamespace, Name: "a", Shard: "west/0", Time: due.Add(2 * time.Second)},
		{Cluster: "west", Namespace: "other", Name: "a", Time: due},
		{Cluster: "west", Namespace: atNamespace, Name: "b", Shard: "west/0", Time: due.Add(-time.Second)},
	})
	unexported := cmp.AllowUnexported(lateAt{}, madeAt{})
	expect.Equal(t, "late", []lateAt{{a, 2 * time.Second, "west/0"}, {early, 0, "west/0"}}, all, unexported)
	expect.Equal(t, "never served", []madeAt{b}, never, unexported)
}

func TestAtsOfTheVictimsShardsAreToldFromOthers(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(name, shard string, due time.Duration) lateAt {
		return lateAt{madeAt: madeAt{name: name, due: began.Add(due)}, late: time.Second, shard: shard}
	}
	a := &account{faults: []fault{
		{Kind: "SIGTERM", Calm: true, Start: began, End: began.Add(time.Second), Tenures: map[string]int64{"west/0": 3}},
		{Kind: "SIGKILL", Calm: true, Start: began, End: began.Add(time.Second), Tenures: map[string]int64{"west/1": 3}},
	}, ats: []lateAt{at("a", "west/0", 0), at("b", "west/1", 0), at("c", "west/0", time.Minute)}}
	held, others := a.apart("SIGTERM")
	if len(held) != 1 || held[0].name != "a" || len(others) != 1 || others[0].name != "b" {
		t.Errorf("held %v, others %v; want a, b, and c in neither", held, others)
	}
}
