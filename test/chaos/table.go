package main

import (
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/tenure-dev/tenure/bench/machine"
	"github.com/tenure-dev/tenure/bench/witness"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// print prints what was done and what came of it.
func (r *run) print(a *account, report *witness.Report, targets []target) {
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
	row("\nFAULTS", "count", "hits", "lateness of Ats that fell due meanwhile")
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
			ds = append(ds, latenessOf(a.during(f))...)
			hits += f.Hits
		}
		row(kind, len(byKind[kind]), hits, witness.SpreadOf(ds))
	}
	row("all but starts", len(r.faults)-len(byKind[started+" (calm)"]))
	row("replicas that ended by themselves, started anew", len(r.deaths))

	if now, ok := machine.Now(); ok {
		row("\nMACHINE", "all the while", "", now.Since(r.machine))
	}
	row("\nAts", len(r.load.all()), "", witness.SpreadOf(latenessOf(a.ats)))
	a.printMoves(row, report)
	if excused, _ := a.errors(); len(excused) > 0 {
		row("\nERRORS EXCUSED", "lines")
		for _, of := range slices.Sorted(maps.Keys(excused)) {
			row(of, excused[of])
		}
	}
	row("\nTARGETS", "measured", "", "should be at most")
	for _, t := range targets {
		verdict := "met"
		if !t.met {
			verdict = "MISSED"
		}
		row(t.name, t.measured, verdict, t.most)
	}
	w.Flush()
	fmt.Fprintln(r.out, "\nWITNESS")
	r.blame(report.Text(r.out))
}

// printMoves prints the moves, the gaps that they left, and the bounds that they must keep.
func (a *account) printMoves(row func(...any), report *witness.Report) {
	lines := a.activations()
	kinds := map[protocol.MoveKind]int{}
	for _, l := range lines {
		kinds[l.Kind]++
	}
	row("\nMOVES", "count", "", "gap by the new holder's log")
	always := func(time.Time) bool { return true }
	for _, kind := range []protocol.MoveKind{protocol.Join, protocol.Planned, protocol.Exit, protocol.Crash} {
		if kind == protocol.Planned || kind == protocol.Exit {
			row(kind, kinds[kind], "all", witness.SpreadOf(gaps(lines, kind, always)))
			row("", "", "calm", witness.SpreadOf(gaps(lines, kind, a.calm)))
			row("", "", "calm, keys due, by the audit logs", witness.SpreadOf(a.audited(report, kind)))
			continue
		}
		row(kind, kinds[kind])
	}
	row("\nUNSERVED", "", "", "from the signal to the shard's being active elsewhere")
	for _, kind := range []string{"SIGKILL", "SIGTERM"} {
		calm, _ := a.unserved(kind, true)
		stormy, _ := a.unserved(kind, false)
		row(kind, "", "calm", witness.SpreadOf(calm))
		row(kind, "", "in storms", witness.SpreadOf(stormy))
	}
	row("\nLATENESS of Ats in calm scenarios")
	row("no fault near", "", "", witness.SpreadOf(latenessOf(a.normal())))
	for _, kind := range []string{"SIGKILL", "SIGTERM"} {
		held, others := a.apart(kind)
		row(kind, "", "shards of the victim", witness.SpreadOf(latenessOf(held)))
		row("", "", "all others", witness.SpreadOf(latenessOf(others)))
	}
}
