package witness

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// maxTextViolations and maxTextNotices keep the text within a screen. The JSON report has more.
const (
	maxTextViolations = 5
	maxTextNotices    = 8
)

// Text writes the report as a table of at most one screen, violations first.
func (r *Report) Text(w io.Writer) error {
	b := bufio.NewWriter(w)
	r.textVerdict(b)
	r.textCounts(b)
	r.textFigures(b)
	for i, n := range r.Notices {
		if i == maxTextNotices {
			fmt.Fprintf(b, "note: and %d more\n", len(r.Notices)-i)
			break
		}
		fmt.Fprintf(b, "note: %s\n", n)
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

func (r *Report) textVerdict(b *bufio.Writer) {
	verdict := "no violation found"
	if r.Unwitnessed != "" {
		verdict = "UNWITNESSED: " + r.Unwitnessed + "; no violation found in what there is"
	}
	if !r.OK {
		verdict = fmt.Sprintf("%d VIOLATIONS", r.Count())
	}
	fmt.Fprintf(b, "%s (%d lines in %d files, %.0f s of logs)\n", verdict, r.Input.Lines, r.Input.Files,
		r.To.Sub(r.From).Seconds())
	shown := r.sample(maxTextViolations)
	for _, v := range shown {
		fmt.Fprintf(b, "  %s\n", v)
	}
	if more := r.Count() - len(shown); more > 0 {
		fmt.Fprintf(b, "  and %d more (the JSON report lists some of each kind)\n", more)
	}
}

// sample picks n violations, one of each kind before a second of any.
func (r *Report) sample(n int) []Violation {
	var out []Violation
	for round := range n {
		nth := make(map[Kind]int)
		for _, v := range r.Violations {
			if nth[v.Kind] == round && len(out) < n {
				out = append(out, v)
			}
			nth[v.Kind]++
		}
	}
	return out
}

func (r *Report) textCounts(b *bufio.Writer) {
	var parts []string
	for _, k := range kinds {
		parts = append(parts, fmt.Sprintf("%s %s %d", k.invariant, k.kind, r.Counts[k.kind]))
	}
	for group := range slices.Chunk(parts, 6) {
		fmt.Fprintf(b, "  %s\n", strings.Join(group, " | "))
	}
}

func (r *Report) textFigures(b *bufio.Writer) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(b, "%-13s "+format+"\n", append([]any{name}, args...)...)
	}
	w := r.Writes
	row("writes", "%d judged: %d objects, %d shards, %d tenures; in flight with a higher epoch: %d by key, %d by shard",
		w.Judged, w.Objects, w.Shards, w.Tenures, w.ConcurrentKeys, w.ConcurrentShards)
	f := r.Fenced
	row("fenced",
		"at the server: %d conflicts, %d already exist, %d by the epoch rule, %d invalid, %d other",
		f.Conflict, f.AlreadyExists, f.EpochRule, f.Invalid, f.Other)
	a := r.Ats
	row("ats", "%d seen, %d done, %d not due, %d settling; lost %d", a.Seen, a.Done, a.NotDue, a.Settling,
		r.Counts[LostAt])
	row("pods", "%d, %d made again; duplicate %d, early %d, after DONE %d (in flight %d)",
		a.Pods, a.PodsRemade, r.Counts[DuplicatePod], r.Counts[EarlyPod], r.Counts[PodAfterDone], a.DoneConcurrent)
	longest := ""
	if a.Latest != "" {
		longest = ", the longest " + a.Latest
	}
	row("lateness", "%s%s", a.Lateness, longest)
	m := r.Moves
	row("moves",
		"%d planned, %d exit, %d crash, %d claims; %d writes, %.2f a move, at most %d; %d plans called off (%d writes); %d "+
			"refused",
		m.Planned, m.Exit, m.Crash, m.Join, m.Writes, m.PerMove, m.MaxWrites, m.CalledOff, m.CalledOffWrites, m.Rejected)
	row("  in flight", "%d writes at a change of holder, at most %d at one, answered at most %.1f ms after it",
		m.InFlight, m.MaxInFlight, m.InFlightMs)
	for _, kind := range slices.Sorted(maps.Keys(m.Kinds)) {
		k := m.Kinds[kind]
		row("  "+string(kind), "gap %s; unserved %s, %d keys due", k.Gap, k.Unserved, k.Due)
	}
	c := r.Coordination
	row("coordination", "%d writes by %d replicas; steady %s a second and replica, at most %s (%d replica-seconds)",
		c.Writes, c.Replicas, rate(c.PerSecond), rate(c.MaxPerSecond), c.SteadySeconds)
}

func rate(v *float64) string {
	if v == nil {
		return "unknown"
	}
	return fmt.Sprintf("%.2f", *v)
}

func (s Spread) String() string {
	if s.N == 0 {
		return "none measured"
	}
	return fmt.Sprintf("p50 %.1f ms, p99 %.1f ms, max %.1f ms (n=%d)", s.P50, s.P99, s.Max, s.N)
}
