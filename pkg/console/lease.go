package console

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// members are the incarnations that Leases or records know of.
type members struct {
	byID map[protocol.Incarnation]*Replica
	// lead is the coordinator that the lead record names, "" if there is none; led reports whether there is a lead
	// record.
	lead protocol.Incarnation
	led  bool
	// unread are Leases that make no sense.
	unread []string
}

// readLeases judges every Lease of the fleet.
func readLeases(s Snapshot) *members {
	m := &members{byID: map[protocol.Incarnation]*Replica{}}
	for i := range s.Records.Leases {
		lease := &s.Records.Leases[i]
		said, err := inspect.ReadLease(lease)
		if err != nil {
			m.unread = append(m.unread, err.Error())
			continue
		}
		if said.Coordinator {
			m.lead, m.led = said.Incarnation, true
		} else {
			m.byID[said.Incarnation] = replicaOf(said, lease, s)
		}
	}
	if r := m.byID[m.lead]; r != nil {
		r.Coordinator = true
	}
	return m
}

func replicaOf(l inspect.Lease, raw *coordinationv1.Lease, s Snapshot) *Replica {
	duration := durationOf(l)
	r := &Replica{
		Name: cmp.Or(l.Replica, string(l.Incarnation)), Incarnation: l.Incarnation, Build: l.Build, Weight: max(1, l.Weight),
		LeaseDuration: seconds(duration), State: Live, Unfit: l.Unfit, Clusters: l.Clusters,
	}
	renewed := raw.CreationTimestamp.Time
	if raw.Spec.RenewTime != nil {
		renewed = raw.Spec.RenewTime.Time
	}
	r.Young = s.Now.Sub(raw.CreationTimestamp.Time) < 2*duration
	seen, watched := s.Seen[raw.Name]
	if !watched {
		seen.Since = s.Now
	}
	ahead := renewed.Sub(seen.Since)
	// A time that is ahead by no more than the duration is past soon enough. One that is past by more may be that of a
	// clock that is behind.
	unseen := !l.Sealed && !seen.Changed
	early := unseen && ahead > duration
	late := unseen && s.Repeated && -ahead > duration && s.Now.Sub(seen.Since) < r.renewsWithin()
	r.Doubtful = early || late
	if early || seen.Changed && ahead.Abs() > duration {
		r.ClockAhead = seconds(ahead)
	}
	if seen.Changed || watched && early {
		renewed, r.Watched = seen.Since, true
	}
	ago := s.Now.Sub(renewed)
	r.RenewedAgo = seconds(ago)
	switch {
	case l.Sealed:
		r.State = Sealed
	case !late && ago > duration, early && ago >= r.renewsWithin():
		r.State = Quiet
	case l.Leaving:
		r.State = Leaving
	}
	return r
}

// named returns the incarnation that a record names. If there is no Lease of it, its state is Missing.
func (m *members) named(id protocol.Incarnation) *Replica {
	r := m.byID[id]
	if r == nil {
		r = &Replica{Name: nameOf(id), Incarnation: id, State: Missing, Weight: 1}
		m.byID[id] = r
	}
	return r
}

// nameOf is the replica's name without the suffix that makes it an incarnation.
func nameOf(id protocol.Incarnation) string {
	if cut := strings.LastIndexByte(string(id), '-'); cut > 0 {
		return string(id)[:cut]
	}
	return string(id)
}

// sorted lists the incarnations by name, with a key for each. It leaves out those that are sealed or missing, hold
// nothing and don't coordinate: they are history.
func (m *members) sorted() []*Replica {
	all := slices.SortedFunc(maps.Values(m.byID), func(a, b *Replica) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(string(a.Incarnation), string(b.Incarnation)))
	})
	all = slices.DeleteFunc(all, func(r *Replica) bool {
		return (r.State == Sealed || r.State == Missing) && r.Shards == 0 && !r.Coordinator
	})
	for i, r := range all {
		r.Key = keyOf(i)
	}
	return all
}

const keys = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// keyOf returns the letter of the i-th replica; "#" if there are no more letters, as in fleets too large for a
// screen.
func keyOf(i int) string {
	if i < len(keys) {
		return keys[i : i+1]
	}
	return "#"
}

// sinceTime is how long ago a moment was, which may be longer than a Duration holds.
func sinceTime(now, then time.Time) Seconds {
	return Seconds(now.Unix()-then.Unix()) + Seconds(now.Nanosecond()-then.Nanosecond())/1e9
}
