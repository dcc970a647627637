package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// suites returns everything that there is to do, in phases. The phases run one after the other. The suites of a
// phase run side by side, as many as the pace allows, the longest first. Suites that measure have the machine for
// themselves. The others mostly wait: for Leases to run out, for servers to start.
func suites(ctx context.Context) ([][]suite, error) {
	everything, err := packages(ctx, "./...")
	if err != nil {
		return nil, err
	}
	var taken []string
	var missing error
	servers := func(name string, budget time.Duration, patterns ...string) suite {
		found, err := packages(ctx, patterns...)
		missing, taken = errors.Join(missing, err), append(taken, found...)
		return suite{name: name, budget: budget, steps: []step{goTest("", slices.Concat(raced, []string{"-p=1"}, found)...)}}
	}
	chaos := servers("chaos", 9*time.Minute, "./test/chaos")
	// The tests of sharding take longest. They are two suites: those with Cluster in their names, and the others.
	sharding := servers("sharding", 14*time.Minute, "./test/integration/sharding")
	clusters := suite{name: "clusters", budget: sharding.budget, steps: []step{sharding.with("-run=Cluster")}}
	sharding.steps = []step{sharding.with("-skip=Cluster")}
	integration := servers("integration", 14*time.Minute, "./test/integration")
	replication := servers("replication", 9*time.Minute, "./test/integration/replication")
	labs := servers("lab", 13*time.Minute, "./test/lab/...")
	console := servers("console", 13*time.Minute, "./test/console")
	library := servers("library", 8*time.Minute, "./test/library", "./test/deploy", "./shard/internal/engage/cycles")
	// The oldest Kubernetes that is supported takes what is installed, and the fleet serves Ats there.
	oldest := suite{name: "oldest", budget: 9 * time.Minute, steps: []step{
		goTest("", slices.Concat(raced, []string{"-p=1", "./test/deploy"})...),
		goTest("", slices.Concat(raced, []string{"-run=" + typesOnOldest, "./test/integration"})...),
		goTest("", slices.Concat(raced, []string{"-run=" + fleetsOnOldest, "./test/integration/sharding"})...),
	}}
	binary, err := filepath.Abs("bin/controlplane-oldest")
	missing = errors.Join(missing, err)
	for i := range oldest.steps {
		oldest.steps[i].env = []string{localplane.BinaryVariable + "=" + binary}
	}
	bench := servers("bench", 5*time.Minute, "./bench/run")

	// Tests with very many cases run all of them without the race detector. With it they run fewer: with go test
	// -short, or by themselves.
	simulator, err := packages(ctx, "./shard/internal/shardtest/...")
	missing, taken = errors.Join(missing, err), append(taken, simulator...)
	// Statistics are sums in one goroutine: the race detector has nothing to find there.
	sums, err := packages(ctx, "./bench/stats")
	missing, taken = errors.Join(missing, err), append(taken, sums...)
	if missing != nil {
		return nil, missing
	}
	cases := suite{name: "cases", budget: 16 * time.Minute, steps: []step{
		goTest("", slices.Concat([]string{"-shuffle=on", "./pkg/replication", "./pkg/at"}, sums, simulator)...),
		goTest("", append(raced, simulator[0])...),
	}}
	for i := range cases.steps { // they hold little and throw much away: collecting garbage takes a quarter of their time
		cases.steps[i].env = []string{"GOGC=400"}
	}
	pure := slices.DeleteFunc(everything, func(p string) bool { return slices.Contains(taken, p) })
	return [][]suite{
		{build},
		{
			{name: "pure", budget: 15 * time.Minute, steps: []step{
				goTest("", slices.Concat(raced, []string{"-short"}, pure)...),
			}},
			cases,
			{name: "lint", budget: 10 * time.Minute, steps: []step{makes("lint")}},
			{name: "modules", budget: 4 * time.Minute, steps: []step{
				goTest("test/apiserver", "./..."), goTest("cmd/release", "-count=1", "./..."),
				goTest("test/chart", "-count=1", "./..."),
				goTest("config/monitoring/gen", "-count=1", "./..."),
			}},
			{name: "browser", budget: 5 * time.Minute, steps: []step{
				makes("chromium"), goTest("test/browser", "-count=1", "./..."),
			}},
			{name: "microbench", budget: 4 * time.Minute, steps: []step{
				goTest("", "-run=^$", "-bench=.", "-benchtime=1x", "./shard/keyspace", "./shard/plan",
					"./shard/internal/engage", "./pkg/fairqueue", "./pkg/telemetry", "./bench/algorithms", "./bench/audit"),
			}},
		},
		{clusters, integration, console, sharding, labs, replication, oldest, library},
		{chaos},
		{bench},
		{{name: "rights", budget: 2 * time.Minute, steps: []step{command("go", "run", "./test/lab/rights/cmd", usedRights)}}},
	}, nil
}

// with returns the suite's first command, go test, with another flag.
func (s suite) with(flag string) step {
	first := s.steps[0]
	first.args = slices.Insert(slices.Clone(first.args), 2, flag)
	return first
}

// typesOnOldest are the tests of Ats that run on the oldest Kubernetes. Package deploy has those of records.
const typesOnOldest = "^(TestAtAPI|TestAtReconciler)$"

// fleetsOnOldest are the tests of fleets that run on the oldest Kubernetes: Ats run once through moves and a crash,
// also past stale caches, and records are kept by the rules of their type.
const fleetsOnOldest = "^(TestAJoinMovesWhatBalanceNeedsAndACrashWhatTheDeadHeld|" +
	"TestACleanExitOfAllLeavesNothingHeldAndTheNextFleetClaimsIt|TestANewHolderWithStaleCachesMakesNoSecondPod|" +
	"TestARecordThatTheLayoutDoesNotListIsNeverServedAndTold)$"

var raced = []string{"-race", "-shuffle=on"}

// build has the budget of a machine that has built nothing yet.
var build = suite{name: "build", budget: 45 * time.Minute, essential: true, steps: []step{
	command("go", "mod", "download"),
	makes("-j3", "controlplane", "oldest", "jaeger", "promtool"),
	makes("build"),
	command("go", "build", "-race", "./..."),
	command("go", "build", "-race", "-o", binaries+"/tenure-race", "./cmd/tenure"),
	command("go", "build", "-o", binaries+"/", "./cmd/tenure", "./cmd/bench"),
	command("go", "build", "-tags=lab", "-o", binaries+"/"+lab.Hooked, "./cmd/tenure"),
	makes("before", "BIN="+binaries),
}}

func makes(targets ...string) step {
	return command(append([]string{"make", "--no-print-directory"}, targets...)...)
}

// packages lists what patterns match; each has to match something.
func packages(ctx context.Context, patterns ...string) ([]string, error) {
	var all []string
	for _, pattern := range patterns {
		// If modules are missing, go names each download on its standard error.
		var said strings.Builder
		list := exec.CommandContext(ctx, "go", "list", pattern)
		list.Stderr = &said
		out, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("go list %s: %w\n%s", pattern, err, said.String())
		}
		found := strings.Fields(string(out))
		if len(found) == 0 {
			return nil, fmt.Errorf("%s matches no package: the gate's list is out of date", pattern)
		}
		all = append(all, found...)
	}
	return all, nil
}
