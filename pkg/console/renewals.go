package console

import (
	"context"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/shard/inspect"
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

// lookAgain reads the records once more if, by the times in the Leases, no replica is alive: this clock may be ahead of
// theirs. A Lease that changes meanwhile is alive, whatever its time.
func (g Gatherer) lookAgain(ctx context.Context, home client.Client, s *Snapshot) (err error) {
	var pause Seconds
	for _, r := range readLeases(*s).byID {
		switch r.State {
		case Live, Leaving:
			return nil
		case Quiet:
			pause = max(pause, r.LeaseDuration/waitDivisor)
		}
	}
	if pause == 0 { // there is none
		return nil
	}
	seen := &Renewals{}
	seen.See(s.Records.Leases, s.Now)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(min(pause.Duration(), longestLook)):
	}
	if s.Records, err = inspect.Read(ctx, home, g.Namespace, g.Fleet); err != nil {
		return err
	}
	s.Now = time.Now()
	s.Seen = seen.See(s.Records.Leases, s.Now)
	return nil
}

// Replicas renew their Leases four times per lease duration. After a lease duration divided by waitDivisor, each that
// is alive has; after longestLook, each whose lease duration is at most 40 s.
const (
	waitDivisor = 3
	longestLook = 10 * time.Second
)
