package console

import (
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Renewals notes when each Lease was last seen to change, on the clock of whoever looks, since a replica's may differ.
// The zero value has seen nothing. It is not safe for concurrent use.
type Renewals struct{ leases map[string]leaseSeen }

type leaseSeen struct {
	version string
	changed time.Time
	// sure reports whether the change itself was seen. Otherwise the Lease was first found in this state.
	sure bool
}

// See notes the present Leases, and returns what [Snapshot].Seen wants. A Lease that hasn't changed since it was first
// seen isn't in the result: for it, the time in the Lease itself counts. A nil Renewals notes nothing.
func (r *Renewals) See(leases []coordinationv1.Lease, now time.Time) map[string]time.Time {
	if r == nil {
		return nil
	}
	if r.leases == nil {
		r.leases = map[string]leaseSeen{}
	}
	seen, present := map[string]time.Time{}, map[string]bool{}
	for i := range leases {
		l := &leases[i]
		present[l.Name] = true
		was, known := r.leases[l.Name]
		if !known || was.version != l.ResourceVersion {
			was = leaseSeen{version: l.ResourceVersion, changed: now, sure: known}
			r.leases[l.Name] = was
		}
		if was.sure {
			seen[l.Name] = was.changed
		}
	}
	maps.DeleteFunc(r.leases, func(name string, _ leaseSeen) bool { return !present[name] })
	return seen
}
