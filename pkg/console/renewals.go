package console

import (
	"context"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/shard"
	"github.com/tenure-dev/tenure/shard/inspect"
)

// Renewals notes when each Lease was last seen to change, on the clock of whoever looks, since a replica's may differ.
// The zero value has seen nothing. It is not safe for concurrent use.
type Renewals struct {
	leases map[string]leaseSeen
	last   time.Time // of the looks
}

type leaseSeen struct {
	version string
	LeaseWatch
}

// LeaseWatch is what was seen of a Lease, on the clock of whoever looks.
type LeaseWatch struct {
	// Since is when the Lease was seen to change last. If Changed isn't set, when it changed isn't known, and Since is
	// when it was first found as it is.
	Since   time.Time
	Changed bool
}

// See notes the present Leases, and returns what [Snapshot].Seen wants. A nil Renewals notes nothing.
func (r *Renewals) See(leases []coordinationv1.Lease, now time.Time) map[string]LeaseWatch {
	if r == nil {
		return nil
	}
	if r.leases == nil {
		r.leases = map[string]leaseSeen{}
	}
	seen, present := map[string]LeaseWatch{}, map[string]bool{}
	for i := range leases {
		l := &leases[i]
		present[l.Name] = true
		was, known := r.leases[l.Name]
		if !known || was.version != l.ResourceVersion {
			// After a longer pause, the replica may have died long ago. Pages of a slow replica look every ten seconds.
			said, _ := inspect.ReadLease(l) // one that can't be read isn't judged
			changed := known && now.Sub(r.last) <= 2*durationOf(said)
			was = leaseSeen{l.ResourceVersion, LeaseWatch{Since: now, Changed: changed}}
			r.leases[l.Name] = was
		}
		seen[l.Name] = was.LeaseWatch
	}
	r.last = now
	maps.DeleteFunc(r.leases, func(name string, _ leaseSeen) bool { return !present[name] })
	return seen
}

// durationOf returns the lease duration that a Lease states, or the default.
func durationOf(l inspect.Lease) time.Duration {
	if l.Duration <= 0 {
		return shard.DefaultLeaseDuration
	}
	return l.Duration
}

// lookAgain reads the records once more if the time in any replica's Lease is past, or too far in the future to tell
// anything. Either may be due to a clock, its replica's or this one. A replica that renews meanwhile is alive.
// lookAgain also reads them once more, without a wait, if a record names a replica without a Lease: Leases are listed
// after the records, and a replica that stops hands its shards over and deletes its Lease.
func (g Gatherer) lookAgain(ctx context.Context, home client.Client, s *Snapshot) (err error) {
	var pause time.Duration
	missing := false
	for _, r := range surveyOf(*s).replicas {
		missing = missing || r.State == Missing
		if r.State == Quiet || r.Doubtful {
			pause = max(pause, r.renewsWithin())
		}
	}
	if !missing && pause == 0 {
		return nil
	}
	seen := &Renewals{}
	seen.See(s.Records.Leases, s.Now)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(min(pause, longestLook)):
	}
	if s.Records, err = inspect.Read(ctx, home, g.Namespace, g.Fleet); err != nil {
		return err
	}
	s.Now = time.Now()
	s.Seen = seen.See(s.Records.Leases, s.Now)
	return nil
}

// longestLook bounds how long an answer waits for renewals. It is enough for lease durations of up to 30 s.
const longestLook = 10 * time.Second

// renewsWithin is a time in which the replica renews its Lease if it is alive: it does four times per lease duration.
func (r Replica) renewsWithin() time.Duration { return r.LeaseDuration.Duration() / 3 }
