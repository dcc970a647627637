package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/test/lab"
)

// servers are the suites that start control planes, in the order in which they run. What else there is has no servers
// of its own and runs side by side.
var servers = []struct {
	name     string
	budget   time.Duration
	packages []string
}{
	{"chaos", time.Minute, []string{"./test/chaos"}},
	{"sharding", 5 * time.Minute, []string{"./test/integration/sharding", "./shard/internal/engage/cycles"}},
	{"integration", 5 * time.Minute, []string{"./test/integration"}},
	{"replication", 2 * time.Minute, []string{"./test/integration/replication"}},
	{"lab", 3 * time.Minute, []string{"./test/lab/..."}},
	{"console", 2 * time.Minute, []string{"./test/console", "./test/library", "./test/deploy"}},
	{"bench", 3 * time.Minute, []string{"./bench/run"}},
}

// suites are all that there is to do: phases one after the other, and what a phase holds side by side.
func suites(ctx context.Context) ([][]suite, error) {
	everything, err := packages(ctx, "./...")
	if err != nil {
		return nil, err
	}
	// What goes through very many cases does so without the race detector, and with it through fewer: go test -short.
	simulator := slices.DeleteFunc(slices.Clone(everything), func(p string) bool { return !strings.Contains(p, "/shardtest") })
	if len(simulator) == 0 {
		return nil, fmt.Errorf("no package of the simulator found: the gate's list is out of date")
	}
	withServers := [][]suite{}
	taken := slices.Clone(simulator)
	for _, s := range servers {
		found, err := packages(ctx, s.packages...)
		if err != nil {
			return nil, err
		}
		taken = append(taken, found...)
		withServers = append(withServers, []suite{{name: s.name, budget: s.budget, steps: []step{
			goTest("", append([]string{"-race", "-shuffle=on", "-p=1"}, found...)...),
		}}})
	}
	pure := slices.DeleteFunc(slices.Clone(everything), func(p string) bool { return slices.Contains(taken, p) })
	bench := []string{"./shard/...", "./pkg/telemetry", "./bench/algorithms", "./bench/witness"}
	phases := [][]suite{
		{{name: "build", budget: 25 * time.Minute, essential: true, steps: []step{
			command("go", "mod", "download"),
			command("make", "--no-print-directory", "-j3", "controlplane", "jaeger", "promtool"),
			command("make", "--no-print-directory", "build"),
			command("go", "build", "-race", "./..."),
			command("go", "build", "-race", "-o", binaries+"/tenure-race", "./cmd/tenure"),
			command("go", "build", "-o", binaries+"/", "./cmd/tenure", "./cmd/bench"),
			command("go", "build", "-tags=lab", "-o", binaries+"/"+lab.Hooked, "./cmd/tenure"),
		}}},
		{{name: "lint", budget: 2 * time.Minute, steps: []step{command("make", "--no-print-directory", "lint")}}},
		{{name: "pure", budget: 4 * time.Minute, steps: []step{goTest("", append([]string{"-race", "-short", "-shuffle=on"}, pure...)...)}}},
		{{name: "cases", budget: 3 * time.Minute, steps: []step{
			goTest("", append([]string{"-shuffle=on", "./pkg/replication"}, simulator...)...),
			goTest("", "-race", "-shuffle=on", simulator[0]), // which runs a tenth of its schedules then
		}}},
	}
	return append(append(phases, withServers...), []suite{
		{name: "modules", budget: 2 * time.Minute, steps: []step{
			goTest("test/apiserver", "./..."),
			goTest("config/monitoring/gen", "-count=1", "./..."),
		}},
	}, []suite{{name: "browser", budget: 2 * time.Minute, steps: []step{
		command("make", "--no-print-directory", "chromium"),
		goTest("", "-count=1", "-tags=browser", "./test/browser"),
	}}}, []suite{{name: "microbench", budget: time.Minute, steps: []step{
		goTest("", append([]string{"-run=^$", "-bench=.", "-benchtime=1x"}, bench...)...),
	}}}), nil
}

// packages lists what patterns match; each has to match something.
func packages(ctx context.Context, patterns ...string) ([]string, error) {
	var all []string
	for _, pattern := range patterns {
		out, err := exec.CommandContext(ctx, "go", "list", pattern).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("go list %s: %w\n%s", pattern, err, out)
		}
		found := strings.Fields(string(out))
		if len(found) == 0 || strings.Contains(string(out), "matched no packages") {
			return nil, fmt.Errorf("%s matches no package: the gate's list is out of date", pattern)
		}
		all = append(all, found...)
	}
	return all, nil
}
