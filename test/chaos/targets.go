package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/bench/witness"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/lab"
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
	// dueWithin is a number of planned handoffs under load. With so many, a key must have been due at one of them.
	dueWithin = 10
)

// target is a figure and its upper bound.
type target struct {
	name           string
	measured, most any
	met            bool
}

// unmeasured returns a target for something that was done, but of which there is no sample. It isn't met, since
// nothing is known.
func unmeasured(name string, most any) target { return target{name, "no sample", most, false} }

// targets returns the figures of calm scenarios, in which nothing else goes on, with their bounds.
func (a *account) targets(report *witness.Report) (all []target) {
	// add judges a figure of some samples. Without samples, the target is missed if the scenarios promise some, and
	// left out if they don't.
	add := func(name string, promised bool, of witness.Spread, ms float64, most time.Duration) {
		measured, most := lab.Millis(ms), time.Duration(float64(most)*a.slack)
		switch {
		case of.N > 0:
			all = append(all, target{name, measured, most, measured <= most})
		case promised:
			all = append(all, unmeasured(name, most))
		}
	}
	lines := a.activations()
	// Moving tens of shards at once isn't comparable: the handoff scenario moves one at a time.
	handoff, planned := slices.Contains(a.scenarios, "handoff"), witness.SpreadOf(gaps(lines, protocol.Planned, a.calm))
	if handoff {
		add("gap of a planned handoff, p50", true, planned, planned.P50, plannedP50)
		add("gap of a planned handoff, p99", true, planned, planned.P99, plannedP99)
	}
	exit := witness.SpreadOf(gaps(lines, protocol.Exit, a.calm))
	add("gap of a clean exit, p99", a.did("SIGTERM"), exit, exit.P99, exitP99)
	for _, kind := range []protocol.MoveKind{protocol.Planned, protocol.Exit} {
		promised := kind == protocol.Planned && handoff && planned.N >= dueWithin
		waited := witness.SpreadOf(a.audited(report, kind))
		add("keys due at handoffs ("+string(kind)+"), by the audit logs, p99", promised, waited, waited.P99, auditedP99)
	}
	crashes, _ := a.unserved("SIGKILL", true)
	crash := witness.SpreadOf(crashes)
	add("unserved after SIGKILL, p99", a.did("SIGKILL"), crash, crash.P99, a.lease+crashP99)
	add("unserved after SIGKILL, max", a.did("SIGKILL"), crash, crash.Max, a.lease+crashMax)
	if slices.Contains(a.scenarios, "calm") {
		all = append(all, a.noticed()...)
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

// noticed returns what a user of the Ats notices of calm crashes and exits.
func (a *account) noticed() (all []target) {
	normal := a.normal()
	crashed := a.lease + crashP99 + lab.Millis(witness.SpreadOf(latenessOf(normal)).P99)
	for kind, most := range map[string]time.Duration{"SIGKILL": crashed, "SIGTERM": exitLate} {
		name := "an At that fell due after " + kind + ", the latest"
		held, others := a.apart(kind)
		switch ats := append(held, others...); {
		case len(ats) > 0 && len(normal) > 0:
			at := latest(ats)
			all = append(all, target{name, at, most, at.late <= most})
		case a.did(kind):
			all = append(all, unmeasured(name, most))
		}
	}
	return all
}

// did reports whether a calm fault of a kind was made.
func (a *account) did(kind string) bool {
	return slices.ContainsFunc(a.faults, func(f fault) bool { return f.Calm && strings.HasPrefix(f.Kind, kind) })
}

// audited returns how long due keys were unserved at calm handoffs of a kind, by the audit logs alone.
func (a *account) audited(report *witness.Report, kind protocol.MoveKind) (all []time.Duration) {
	for _, h := range report.Handoffs {
		if h.Kind == kind && h.UnservedMs != nil && a.calm(h.Time) {
			all = append(all, lab.Millis(*h.UnservedMs))
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
