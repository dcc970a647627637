package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/bench/witness"
	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/lab"
)

// check is one thing that must hold.
type check struct {
	what  string
	found string
	ok    bool
}

// tally counts what the API servers show at the end.
type tally struct {
	ats, done, early int // early: marked as begun before their time
	shards, orphans  int
	shares           map[string]int // live replica -> shards
}

func count(o *observation) tally {
	t := tally{shares: map[string]int{}}
	for _, ats := range o.ats {
		for _, at := range ats {
			if t.ats++; at.Status.Phase == cnatv1alpha1.AtDone {
				t.done++
			}
			if due := dueTime(at); due.IsZero() || (at.Status.StartTime != nil && at.Status.StartTime.Time.Before(due)) {
				t.early++
			}
		}
	}
	for _, name := range o.replicas {
		t.shares[name] = 0
	}
	for _, s := range o.shards {
		t.shards++
		if replica, ok := o.live[s.Status.Holder]; ok {
			t.shares[replica]++
		} else {
			t.orphans++
		}
	}
	return t
}

// dueTime is zero if the schedule can't be read.
func dueTime(at cnatv1alpha1.At) time.Time {
	due, err := time.Parse(time.RFC3339, at.Spec.Schedule)
	if err != nil {
		return time.Time{}
	}
	return due
}

// early counts the Ats that were marked as begun before their time, and the Pods that were made before it.
func early(o *observation) int { return count(o).early + o.witness.Counts[witness.EarlyPod] }

// lateness is that of the latest At.
func lateness(o *observation) time.Duration { return lab.Millis(o.witness.Ats.Lateness.Max) }

// judge holds what was found against what must hold.
func judge(o *observation) []check {
	t, pods, tooEarly := count(o), o.witness.Ats.Pods, early(o)
	checks := []check{
		{"Ats DONE", fmt.Sprintf("%d of %d", t.done, o.expected), t.done == o.expected && t.ats == o.expected},
		{"Pods made for them", fmt.Sprint(pods), pods == o.expected && o.witness.Counts[witness.PodWithoutAt] == 0},
		{"second Pods of one At", fmt.Sprint(o.witness.Ats.PodsRemade), o.witness.Ats.PodsRemade == 0},
		{"started before their time", fmt.Sprint(tooEarly), tooEarly == 0},
		{"shards held by live replicas", fmt.Sprintf("%d of %d", t.shards-t.orphans, t.shards),
			t.shards > 0 && t.orphans == 0},
		{"shards per replica", shares(t.shares), even(t.shares)},
	}
	checks = append(checks, bounded("latest after its time", "%s", o.lease+latestAfterLease, lateness(o)))
	gaps := map[protocol.MoveKind][]time.Duration{}
	for _, h := range o.handoffs {
		if h.GapMS == nil {
			checks = append(checks, check{"handoff of " + h.Shard, "the logs don't tell how long it took", false})
			continue
		}
		gaps[h.Kind] = append(gaps[h.Kind], lab.Millis(*h.GapMS))
	}
	checks = append(checks, handoffCheck(o))
	for _, kind := range []protocol.MoveKind{protocol.Crash, protocol.Planned} { // the kinds that the demo causes
		if !slices.ContainsFunc(o.handoffs, func(h handoff) bool { return h.Kind == kind }) {
			checks = append(checks, check{fmt.Sprintf("gaps, %s", kind), "there were none", false})
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(gaps)) {
		most, spread := longestGap, witness.SpreadOf(gaps[kind])
		if kind == protocol.Crash {
			most = o.lease + crashAfterLease
		}
		what, median := fmt.Sprintf("gaps, %s: %d", kind, spread.N), length(lab.Millis(spread.P50))
		// a handoff of an empty shard may take no time
		checks = append(checks, bounded(what, median+" median, %s longest", most, max(1, lab.Millis(spread.Max))))
	}
	checks = append(checks, watchCheck(o))
	checks = append(checks, o.second.checks()...)
	for _, t := range o.traces {
		checks = append(checks, t.check())
	}
	return append(checks, witnessCheck(o.witness))
}

// Bounds. They are several times what a machine with two processors shows that does nothing else.
const (
	// latestAfterLease is how late an At may be, on top of the lease duration for which a crash leaves it alone: half of
	// them are due at once.
	latestAfterLease = 15 * time.Second
	// longestGap is how long a shard may be unserved while it moves, crashAfterLease how long after a crash, on top of the
	// lease duration.
	longestGap      = 500 * time.Millisecond
	crashAfterLease = 2 * time.Second
	// repairedWithin is how long a copy may differ from its source, caughtUpWithin how long after its cluster is back.
	repairedWithin = 5 * time.Second
	caughtUpWithin = 30 * time.Second
)

// bounded checks a measured duration against its bound. In the text, %s stands for the duration.
func bounded(what, text string, most, took time.Duration) check {
	return check{what, fmt.Sprintf(text, length(took)) + ", at most " + most.String(), took > 0 && took <= most}
}

func shares(of map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, of[name]))
	}
	return strings.Join(parts, ", ")
}

func even(of map[string]int) bool {
	counts := slices.Collect(maps.Values(of))
	return len(counts) > 0 && slices.Max(counts)-slices.Min(counts) <= 1
}

// handoffCheck compares the handoffs that the watch showed with those in the API server's log.
func handoffCheck(o *observation) check {
	logged := 0
	for _, h := range o.witness.Handoffs {
		if h.From != "" {
			logged++
		}
	}
	c := check{"handoffs", fmt.Sprint(len(o.handoffs)), len(o.handoffs) >= logged}
	switch {
	case !c.ok:
		c.found += fmt.Sprintf(" watched, but %d in the audit log", logged)
	case len(o.handoffs) > logged: // committed, although the API server answered with a timeout
		c.found += fmt.Sprintf(" (%d whose reply was lost)", len(o.handoffs)-logged)
	}
	return c
}

// mode returns where a cluster's watches were filtered: by the API server (server), or by the replicas on arrival
// (client).
func (w watchFacts) mode() string {
	if w.filtered > 0 && w.unfiltered == 0 && w.kept > 0 && w.discarded == 0 {
		return "server"
	}
	return "client"
}

func watchCheck(o *observation) check {
	c := check{what: "watches filtered by the", ok: true}
	in := map[string][]string{}
	for _, name := range workloadClusters {
		w := o.watches[name]
		in[w.mode()] = append(in[w.mode()], name)
		// Replicas drop objects of other shards on arrival: these cost bandwidth, never correctness. But all
		// requests must have a selector.
		c.ok = c.ok && w.filtered > 0 && w.unfiltered == 0
	}
	var parts []string
	for _, mode := range slices.Sorted(maps.Keys(in)) {
		parts = append(parts, mode+" in "+strings.Join(in[mode], ", "))
	}
	c.found = strings.Join(parts, "; ")
	return c
}

// witnessCheck is the judgement of the audit logs alone.
func witnessCheck(r *witness.Report) check {
	c := check{what: "invariants broken (audit logs)", found: fmt.Sprint(r.Count()), ok: r.OK && r.Unwitnessed == ""}
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(r.Counts)) {
		if r.Counts[kind] > 0 {
			kinds = append(kinds, fmt.Sprintf("%s %d", kind, r.Counts[kind]))
		}
	}
	if kinds != nil {
		c.found += ": " + strings.Join(kinds, ", ")
	}
	return c
}

// errDoesNotHold says that the demo ran to its end and something isn't as it must be.
var errDoesNotHold = errors.New("does not hold")

// verdict names what doesn't hold.
func verdict(checks []check) error {
	var failed []string
	for _, c := range checks {
		if !c.ok {
			failed = append(failed, c.what+": "+c.found)
		}
	}
	if failed == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", errDoesNotHold, strings.Join(failed, "; "))
}
