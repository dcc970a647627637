package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/bench/witness"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/lab"
)

// gaps returns how long shards had no holder at handoffs of a kind, by the new holders' logs.
func gaps(lines []lab.Line, kind protocol.MoveKind, within func(time.Time) bool) []time.Duration {
	var all []time.Duration
	for _, l := range lines {
		if l.Kind == kind && within(l.Time) {
			all = append(all, l.Gap())
		}
	}
	return all
}

// unserved returns the times from a fault's start until each of the victim's shards was active elsewhere in a later
// epoch.
func unserved(f fault, lines []lab.Line) (all []time.Duration, missing []string) {
	for shard, epoch := range f.Tenures {
		if first := lab.FirstActive(lines, shard, epoch+1, f.Start); first != nil {
			all = append(all, first.Time.Sub(f.Start))
		} else {
			missing = append(missing, shard)
		}
	}
	return all, missing
}

// lateAt is an At and how late it was.
type lateAt struct {
	madeAt
	late  time.Duration
	shard string // under which it was served
}

// latenessOf returns the lateness of each.
func latenessOf(ats []lateAt) []time.Duration {
	ds := make([]time.Duration, len(ats))
	for i, a := range ats {
		ds[i] = a.late
	}
	return ds
}

// latest returns the latest At. There must be one.
func latest(ats []lateAt) lateAt {
	return slices.MaxFunc(ats, func(x, y lateAt) int { return cmp.Compare(x.late, y.late) })
}

func (a lateAt) String() string { return fmt.Sprintf("%v (%s/%s)", a.late, a.cluster, a.name) }

// lateness returns the Ats of the load that were served, each with the time since it was due, and those that never
// were.
func lateness(load []madeAt, served []witness.Served) (all []lateAt, never []madeAt) {
	first := map[[2]string]witness.Served{} // by cluster and name; after a restore an At may be served again
	for _, s := range served {
		at := [2]string{s.Cluster, s.Name}
		if old, again := first[at]; s.Namespace == atNamespace && (!again || s.Time.Before(old.Time)) {
			first[at] = s
		}
	}
	for _, m := range load {
		if s, ok := first[[2]string{m.cluster, m.name}]; ok {
			all = append(all, lateAt{m, max(0, s.Time.Sub(m.due)), s.Shard})
		} else {
			never = append(never, m)
		}
	}
	return all, never
}

// felt returns until when a fault may make Ats late. A calm fault ends when everything is at rest.
func (a *account) felt(f fault) time.Time {
	if f.Calm {
		return f.End.Add(calmTail)
	}
	return f.End.Add(a.lease + 2*time.Second)
}

// during returns the Ats that a fault may have made late: those that fell due while it was felt, and those that were
// due and not yet served when it began.
func (a *account) during(f fault) []lateAt {
	end := a.felt(f)
	var all []lateAt
	for _, at := range a.ats {
		if at.due.After(f.Start.Add(-exitLate)) && at.due.Add(at.late).After(f.Start) && at.due.Before(end) {
			all = append(all, at)
		}
	}
	return all
}

// apart returns the Ats that calm faults of a kind may have made late, split by whether the victim held their shard.
// The other shards' Ats show what else went on, on a machine that all processes share.
func (a *account) apart(kind string) (held, others []lateAt) {
	for _, f := range a.faults {
		if !f.Calm || !strings.HasPrefix(f.Kind, kind) {
			continue
		}
		for _, at := range a.during(f) {
			if _, ok := f.Tenures[at.shard]; ok {
				held = append(held, at)
			} else {
				others = append(others, at)
			}
		}
	}
	return held, others
}

// normal returns the Ats that fell due in calm scenarios while no fault was felt.
func (a *account) normal() []lateAt {
	return slices.DeleteFunc(slices.Clone(a.ats), func(at lateAt) bool {
		return !a.calm(at.due) || slices.ContainsFunc(a.faults, func(f fault) bool {
			return window{f.Start.Add(-exitLate), a.felt(f)}.holds(at.due)
		})
	})
}

// unserved returns the times from faults of a kind until the victim's shards were active elsewhere. The error names
// shards that never were.
func (a *account) unserved(kind string, calm bool) (all []time.Duration, never error) {
	var errs []error
	for _, f := range a.faults {
		if !strings.HasPrefix(f.Kind, kind) || f.Calm != calm {
			continue
		}
		ds, missing := unserved(f, a.activations())
		all = append(all, ds...)
		if len(missing) > 0 {
			errs = append(errs, fmt.Errorf("unserved: shards %v were never served again after %s", missing, f))
		}
	}
	return all, errors.Join(errs...)
}

// activations returns the tenures that began at all replicas, in no order.
func (a *account) activations() (all []lab.Line) {
	for _, l := range a.logs {
		if l.Activation() {
			all = append(all, l.Line)
		}
	}
	return all
}
