package jaeger

import (
	"slices"
	"time"
)

// Orphans returns the spans whose parent isn't in the trace.
func (t *Trace) Orphans() []Span {
	known := map[string]bool{}
	for i := range t.Spans {
		known[t.Spans[i].ID] = true
	}
	var orphans []Span
	for _, s := range t.Spans {
		if s.Parent != "" && !known[s.Parent] {
			orphans = append(orphans, s)
		}
	}
	return orphans
}

// Reconcile is the span of the reconcile that the trace is about, nil if it is about something else.
func (t *Trace) Reconcile() *Span {
	i := slices.IndexFunc(t.Spans, func(s Span) bool { return s.Tags["tenure.result"] != "" })
	if i < 0 {
		return nil
	}
	return &t.Spans[i]
}

// Work is how long the trace's reconcile took, not counting the wait in the queue; 0 if it has none.
func (t *Trace) Work() time.Duration {
	root := t.Reconcile()
	if root == nil {
		return 0
	}
	took := root.Duration
	for _, s := range t.Spans {
		if s.Parent == root.ID && s.Name == "queue wait" {
			took -= s.Duration
		}
	}
	return took
}

// Slowest returns the trace with the longest Work, alone; none if there is no reconcile among them.
func Slowest(traces []Trace) []Trace {
	longest := time.Duration(-1)
	var found []Trace
	for _, t := range traces {
		if t.Reconcile() == nil {
			continue
		}
		if took := t.Work(); took > longest {
			longest, found = took, []Trace{t}
		}
	}
	return found
}
