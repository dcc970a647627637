package witness

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Facts are what the judge may need besides the logs.
type Facts struct {
	// Ats, because at level Metadata an At's schedule isn't in the logs.
	Ats []At
	// Restores are the restores of clusters. After a restore a cluster continues from its backup, not from its earlier
	// log.
	Restores []Restore
	// Names are further names under which shards served a cluster, each with the name of the folder of its log: shards of
	// both names share their slots.
	Names map[string]string
	// Whole says that the logs begin where their clusters did: they show the creation of each At, of each Shard record and
	// of each Lease of ours. Then a log that lost its beginning is found by what is left.
	Whole bool
	// Versions are the versions that objects have at the end, when nothing is written any more. They reveal lines
	// that are missing at the end of a log, which no later line reveals. Those of Ats and Shard records are used.
	Versions []Version
}

// Version is an object's present version.
type Version struct {
	Cluster, Group, Resource, Namespace, Name string

	ResourceVersion uint64
}

// At is one At as its API server, or its creator, knows it.
type At struct {
	Cluster   string
	Namespace string
	Name      string
	UID       string
	Schedule  string
	Phase     string
}

// Restore says that a cluster's history was replaced by a backup, and when its API server was started with it.
type Restore struct {
	Cluster string
	Time    time.Time
}

// Rules are the tolerances of a judgement. The zero value is strict.
type Rules struct {
	// Skew is by how much the clocks of two API servers may differ. It is allowed for wherever times from two of them,
	// or a time and a schedule, are compared. On one machine leave it at zero.
	Skew time.Duration
	// Settle is how long an At may be due at the end of the logs without being served before it counts as lost.
	Settle time.Duration
	// MaxListed is how many violations of each kind the report lists; all are counted. Zero means 20.
	MaxListed int
	// InFlight is how many writes of the old tenure may be in flight while a shard changes its holder. Zero means 16.
	InFlight int
	// Users are the user names by which API servers authenticate the fleet. Service accounts that send a write with
	// shard, epoch and incarnation are added to them.
	Users []string
	// Unwitnessed is the reason why there is nothing to judge in this run, for example "the scenario makes no Ats".
	// Missing evidence is then no violation. What there is is judged all the same, and the report can't be published.
	Unwitnessed string
	// Waived gives the reason why the evidence of some kinds may be missing, for example {NoAts: "it only replicates"}.
	// Only kinds whose invariant is [Evidence] can be waived.
	Waived map[Kind]string
}

// Validate reports every invalid rule.
func (r Rules) Validate() error {
	var errs []error
	if r.Skew < 0 || r.Settle < 0 || r.MaxListed < 0 || r.InFlight < 0 {
		errs = append(errs, fmt.Errorf("skew %v, settle %v, listed %d and in flight %d must not be negative", r.Skew,
			r.Settle, r.MaxListed, r.InFlight))
	}
	for kind, reason := range r.Waived {
		if invariantOf(kind) != Evidence {
			errs = append(errs, fmt.Errorf("waived %q: only missing evidence can be waived: %s", kind, evidenceKinds()))
		}
		if reason == "" {
			errs = append(errs, fmt.Errorf("waived %q: give the reason", kind))
		}
	}
	return errors.Join(errs...)
}

// waives returns the reason why a violation of a kind is accepted.
func (r Rules) waives(kind Kind) (reason string, ok bool) {
	if reason, ok = r.Waived[kind]; ok {
		return reason, ok
	}
	return r.Unwitnessed, r.Unwitnessed != "" && slices.Contains(absences, kind)
}

// schedule parses an At's spec.schedule; ok is false if no controller could act on it.
func schedule(s string) (us int64, ok bool) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return 0, false
	}
	return t.UnixMicro(), true
}
