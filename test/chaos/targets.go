package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/bench/witness"
	"github.com/tenure-dev/tenure/shard/protocol"
)

const (
	plannedP50 = 25 * time.Millisecond
	plannedP99 = 100 * time.Millisecond
	exitP99    = 250 * time.Millisecond
	// auditedP99 is how long due keys were unserved, from write to write. It includes the new holder's first write,
	// which the gap in the log leaves out.
	auditedP99 = 250 * time.Millisecond
	// exitLate is how late an At may be because a replica leaves.
	exitLate = 500 * time.Millisecond
	// crashP99 and crashMax are added to the lease duration.
	crashP99 = 500 * time.Millisecond
	crashMax = time.Second
	// writesPerLease is how many writes each replica may send per lease duration at rest: 0.6 a second with the default
	// of 10 s.
	writesPerLease = 6.0
)

// target is a figure and its upper bound.
type target struct {
	name           string
	measured, most any
	met            bool
}

// targets returns the figures of calm scenarios, in which nothing else goes on, with their bounds.
func (a *account) targets(report *witness.Report) (all []target) {
	add := func(name string, measured, most time.Duration) {
		most = time.Duration(float64(most) * a.slack)
		all = append(all, target{name, measured, most, measured <= most})
	}
	lines := a.activations()
	// Moving tens of shards at once isn't comparable: the handoff scenario moves one at a time.
	if slices.Contains(a.scenarios, "handoff") {
		planned := spreadOf(gaps(lines, protocol.Planned, a.calm))
		add("gap of a planned handoff, p50", planned.P50, plannedP50)
		add("gap of a planned handoff, p99", planned.P99, plannedP99)
	}
	if exit := spreadOf(gaps(lines, protocol.Exit, a.calm)); exit.N > 0 {
		add("gap of a clean exit, p99", exit.P99, exitP99)
	}
	for _, kind := range []protocol.MoveKind{protocol.Planned, protocol.Exit} {
		if waited := spreadOf(a.audited(report, kind)); waited.N > 0 {
			add("keys due at a "+strings.ToLower(string(kind))+" handoff, by the audit logs, p99", waited.P99, auditedP99)
		}
	}
	crashes, _ := a.unserved("SIGKILL", true)
	if crash := spreadOf(crashes); crash.N > 0 {
		add("unserved after SIGKILL, p99", crash.P99, a.lease+crashP99)
		add("unserved after SIGKILL, max", crash.Max, a.lease+crashMax)
	}
	// What a user of the Ats notices.
	if normal := a.normal(); slices.Contains(a.scenarios, "calm") && len(normal) > 0 {
		crashed, exited := a.lease+crashP99+spreadOf(latenessOf(normal)).P99, exitLate
		for kind, most := range map[string]time.Duration{"SIGKILL": crashed, "SIGTERM": exited} {
			if held, others := a.apart(kind); len(held)+len(others) > 0 {
				at := latest(append(held, others...))
				all = append(all, target{"an At that fell due after " + kind + ", the latest", at, most, at.late <= most})
			}
		}
	}
	all = append(all, a.untidyTargets()...)
	if c := report.Coordination; c.PerSecond != nil {
		most := writesPerLease / a.lease.Seconds()
		all = append(all, target{
			"coordination writes per second and replica", fmt.Sprintf("%.2f", *c.PerSecond),
			fmt.Sprintf("%.2f (0.60 at a lease of 10s)", most), *c.PerSecond <= most,
		})
	}
	return all
}

// audited returns how long due keys were unserved at calm handoffs of a kind, by the audit logs alone.
func (a *account) audited(report *witness.Report, kind protocol.MoveKind) (all []time.Duration) {
	for _, h := range report.Handoffs {
		if h.Kind == kind && h.UnservedMs != nil && a.calm(h.Time) {
			all = append(all, time.Duration(*h.UnservedMs*float64(time.Millisecond)))
		}
	}
	return all
}

// missed names the targets that weren't met.
func missed(all []target) error {
	var errs []error
	for _, t := range all {
		if !t.met {
			errs = append(errs, fmt.Errorf("missed target: %s: %v, should be at most %v", t.name, t.measured, t.most))
		}
	}
	return errors.Join(errs...)
}
