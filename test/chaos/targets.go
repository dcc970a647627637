package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/bench/witness"
	"github.com/tenure-dev/tenure/test/lab"
)

const (
	plannedP50 = 25 * time.Millisecond
	plannedP99 = 100 * time.Millisecond
	exitP99    = 250 * time.Millisecond
	// exitLate is how late an At may be because a replica leaves.
	exitLate = 500 * time.Millisecond
	// crashP99 and crashMax come on top of the lease duration.
	crashP99 = 500 * time.Millisecond
	crashMax = time.Second
	// writesPerLease is what each replica may write in a lease duration at rest: 0.6 a second with the default of 10 s.
	writesPerLease = 6.0
)

// printTargets holds the figures that depend on the machine against what they should be. They are judged only with
// --strict: on a machine that is busy with other things they say more about that than about the replicas.
func (r *run) printTargets(row func(...any), report *witness.Report, lines []lab.Line, late []lateAt) {
	row("\nTARGETS", "measured", "", "should be at most")
	check := func(name string, measured, target any, met bool) {
		verdict := "met"
		if !met {
			verdict = "MISSED"
			r.missed = append(r.missed, fmt.Sprintf("%s: %v, should be at most %v", name, measured, target))
		}
		row(name, measured, verdict, target)
	}
	// Tens of shards moved at once are another thing than one: the handoff scenario moves one at a time.
	if slices.Contains(r.scenarios, "handoff") {
		planned := spreadOf(gaps(lines, "planned", r.calmTime))
		check("gap of a planned handoff, p50", planned.P50, plannedP50, planned.P50 <= plannedP50)
		check("gap of a planned handoff, p99", planned.P99, plannedP99, planned.P99 <= plannedP99)
	}
	if exit := spreadOf(gaps(lines, "exit", r.calmTime)); exit.N > 0 {
		check("gap of a clean exit, p99", exit.P99, exitP99, exit.P99 <= exitP99)
	}
	if crash := spreadOf(r.unserved("SIGKILL", true)); crash.N > 0 {
		check("unserved after SIGKILL, p99", crash.P99, r.lease+crashP99, crash.P99 <= r.lease+crashP99)
		check("unserved after SIGKILL, max", crash.Max, r.lease+crashMax, crash.Max <= r.lease+crashMax)
	}
	// What a user of the Ats sees of it.
	if normal := r.normal(late); slices.Contains(r.scenarios, "calm") && len(normal) > 0 {
		if ats := r.duringCalm("SIGKILL", late); len(ats) > 0 {
			target := r.lease + crashP99 + spreadOf(latenessOf(normal)).P99
			check("an At that fell due after SIGKILL, the latest", latest(ats), target, latest(ats).late <= target)
		}
		if ats := r.duringCalm("SIGTERM", late); len(ats) > 0 {
			check("an At that fell due after SIGTERM, the latest", latest(ats), exitLate, latest(ats).late <= exitLate)
		}
	}
	if c := report.Coordination; c.PerSecond != nil {
		target := writesPerLease / r.lease.Seconds()
		check("coordination writes per second and replica", fmt.Sprintf("%.2f", *c.PerSecond), fmt.Sprintf("%.2f (0.60 at a lease of 10s)", target), *c.PerSecond <= target)
	}
}
