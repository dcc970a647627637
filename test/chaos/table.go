package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tenure-dev/tenure/bench/machine"
	"github.com/tenure-dev/tenure/bench/witness"
	"github.com/tenure-dev/tenure/test/lab"
)

// print tells what was done and what came of it.
func (r *run) print(report *witness.Report) {
	lines, err := r.fleet.Activations()
	r.blame(err)
	late, err := r.lateness()
	r.blame(err)
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	row := func(cells ...any) {
		for i, c := range cells {
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, c)
		}
		fmt.Fprintln(w)
	}
	row("\nFAULTS", "count", "requests hit", "lateness of Ats that fell due meanwhile")
	byKind := map[string][]fault{}
	for _, f := range r.faults {
		kind := f.Kind
		if f.Calm {
			kind += " (calm)"
		}
		byKind[kind] = append(byKind[kind], f)
	}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		var ds []time.Duration
		hits := 0
		for _, f := range byKind[kind] {
			ds = append(ds, latenessOf(r.during(f, late))...)
			hits += f.Hits
		}
		row(kind, len(byKind[kind]), hits, spreadOf(ds))
	}
	row("all but starts", len(r.faults)-len(byKind[started+" (calm)"]))
	row("replicas that ended by themselves, started anew", len(r.deaths))

	if now, ok := machine.Now(); ok {
		row("\nMACHINE", "all the while", "", now.Since(r.machine))
	}
	row("\nAts", len(r.load.all()), "", spreadOf(latenessOf(late)))
	r.printMoves(row, lines, late)
	if report != nil {
		r.printWitness(row, report)
		r.printTargets(row, report, lines, late)
	}
	w.Flush()
}

// calmTime says whether a moment lies in a calm scenario.
func (r *run) calmTime(t time.Time) bool {
	for _, c := range r.calms {
		if t.After(c[0]) && t.Before(c[1]) {
			return true
		}
	}
	return false
}

func (r *run) unserved(kind string, calm bool) []time.Duration {
	lines, err := r.fleet.Activations()
	r.blame(err)
	var all []time.Duration
	for _, f := range r.faults {
		if !strings.HasPrefix(f.Kind, kind) || f.Calm != calm {
			continue
		}
		ds, missing := unserved(f, lines)
		all = append(all, ds...)
		if len(missing) > 0 {
			r.blame(fmt.Errorf("shards %v of %s were never served again after %s at %s", missing, f.Victim, f.Kind, f.Start.Format(time.RFC3339Nano)))
		}
	}
	return all
}

// printMoves tells of the moves, the gaps that they left, and of what must hold for them.
func (r *run) printMoves(row func(...any), lines []lab.Line, late []lateAt) {
	kinds := map[string]int{}
	for _, l := range lines {
		kinds[l.Kind]++
	}
	row("\nMOVES", "count", "", "gap by the new holder's log")
	always := func(time.Time) bool { return true }
	for _, kind := range []string{"join", "claim", "planned", "exit", "crash"} {
		if kind == "planned" || kind == "exit" {
			row(kind, kinds[kind], "all", spreadOf(gaps(lines, kind, always)))
			row("", "", "calm", spreadOf(gaps(lines, kind, r.calmTime)))
			continue
		}
		row(kind, kinds[kind])
	}
	row("\nUNSERVED", "", "", "from the signal to the shard's being active elsewhere")
	for _, kind := range []string{"SIGKILL", "SIGTERM"} {
		row(kind, "", "calm", spreadOf(r.unserved(kind, true)))
		row(kind, "", "in storms", spreadOf(r.unserved(kind, false)))
	}
	row("\nLATENESS of Ats in calm scenarios")
	row("no fault near", "", "", spreadOf(latenessOf(r.normal(late))))
	for _, kind := range []string{"SIGKILL", "SIGTERM"} {
		held, others := r.apart(kind, late)
		row(kind, "", "shards of the victim", spreadOf(latenessOf(held)))
		row("", "", "all others", spreadOf(latenessOf(others)))
	}
}

// nearFault says whether a fault was felt at a moment.
func (r *run) nearFault(t time.Time) bool {
	for _, f := range r.faults {
		if t.After(f.Start.Add(-exitLate)) && t.Before(r.felt(f)) {
			return true
		}
	}
	return false
}

// printWitness tells what the audit logs say.
func (r *run) printWitness(row func(...any), report *witness.Report) {
	row("\nWITNESS", fmt.Sprintf("%d log lines", report.Input.Lines))
	row("writes judged", report.Writes.Judged, "", fmt.Sprintf("%d objects, %d tenures", report.Writes.Objects, report.Writes.Tenures))
	for _, kind := range slices.Sorted(maps.Keys(report.Counts)) {
		row(string(kind), report.Counts[kind])
	}
	row("fenced at the server", fmt.Sprintf("%+v", report.Fenced))
	row("Ats", fmt.Sprintf("%d seen, %d DONE, %d Pods, %d made again", report.Ats.Seen, report.Ats.Done, report.Ats.Pods, report.Ats.PodsRemade))
	moves := report.Moves.Planned + report.Moves.Exit + report.Moves.Crash
	row("moves", moves, "", fmt.Sprintf("%d planned, %d exit, %d crash; %d writes, %.2f a move, at most %d; %d claims", report.Moves.Planned, report.Moves.Exit, report.Moves.Crash,
		report.Moves.Writes, report.Moves.PerMove, report.Moves.MaxWrites, report.Moves.Claim))
	if c := report.Coordination; c.PerSecond != nil {
		row("coordination writes", fmt.Sprintf("%.2f per second and replica", *c.PerSecond), "", fmt.Sprintf("steady state of %d replica-seconds, lease %v", c.SteadySeconds, r.lease))
	}
	for _, n := range report.Notices {
		row("notice: " + n)
	}
}
