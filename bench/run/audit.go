package run

import (
	"fmt"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/bench/load"
	"github.com/tenure-dev/tenure/bench/record"
	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/bench/stats"
	"github.com/tenure-dev/tenure/bench/witness"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// addAudit adds what the API servers' audit logs say: the requests per object, and how the witness judges them.
func (t *tally) addAudit(out *report.Results) error {
	f := t.fleet
	if f.site.foreign != nil {
		return nil // we have no access to their audit logs
	}
	var calls record.Calls
	var copying, home, unlogged int
	for _, plane := range f.site.planes.Clusters() {
		these, err := record.CallsIn(plane.AuditLog(), plane.Name(), accountUser)
		if err != nil {
			return err
		}
		calls.Add(these)
		if plane.Name() == homeCluster {
			home += these.DeploymentWrites
		} else {
			copying += these.DeploymentWrites
		}
	}
	if all := f.ledger.Sum("", nil, keyOf); all.Copies > 0 { // with those of the warm-up, as in the logs
		out.WritesPerCopy = new(float64(copying) / float64(all.Copies+all.Drifts))
		out.WritesPerSource = new(float64(home) / float64(all.Objects))
	}
	for _, namespace := range t.namespaces {
		unlogged += f.ledger.Unlogged(namespace, calls.Served)
	}
	if complaint := judgeWrites(out.Objects-out.Lost, unlogged); complaint != "" {
		t.missing = append(t.missing, complaint)
	}
	out.APICalls, out.Conflicts = calls.ByVerb, &calls.Conflicts
	// Ats that waited throughout took no writes and would make the mean look better.
	objects := calls.Created - f.load.Finished
	if f.preloaded != nil {
		objects -= f.preloaded.Load.Preload
	}
	if objects > 0 {
		out.APIWrites = new(float64(calls.AtWrites) / float64(objects))
	}
	return t.addWitness(out)
}

// addWitness adds whether any invariant was broken, and for how long keys that were due waited at the rounds' moves.
func (t *tally) addWitness(out *report.Results) error {
	f := t.fleet
	if !f.sharded() {
		return nil
	}
	judged, err := witness.Read(f.site.planes.Dir(),
		witness.Options{Facts: witness.Facts{Whole: true}, Rules: f.rules(), Cluster: load.ClusterOf})
	if err != nil {
		return fmt.Errorf("judging the audit logs: %w", err)
	}
	handoffs, crashes := unserved(judged.Handoffs, t.from, t.to)
	out.HandoffUnserved, out.CrashUnserved = handoffs.Quantiles(), crashes.Quantiles()
	violations := judged.Count()
	if err := judged.Err(); err != nil {
		f.say("fleet %s: %d violations: %v", f.as, violations, err)
		out.FirstViolation, _, _ = strings.Cut(judged.Violations[0].String(), "\n") // without the lines of evidence
	}
	out.Violations = &violations
	out.Moves = map[protocol.MoveKind]int{
		protocol.Planned: judged.Moves.Planned, protocol.Exit: judged.Moves.Exit, protocol.Crash: judged.Moves.Crash,
		protocol.Join: judged.Moves.Join,
	}
	if judged.Moves.Planned+judged.Moves.Exit+judged.Moves.Crash > 0 {
		out.WritesPerMove = &judged.Moves.PerMove
	}
	return nil
}

// unserved collects for how long keys that were due waited at the handoffs of a time. A handoff at which no key was due
// measures nothing. As a zero it would make the others look better, and a run in which none was ever due would keep
// every bound.
func unserved(all []witness.Handoff, from, to time.Time) (handoffs, crashes stats.Latencies) {
	for _, h := range all {
		if h.UnservedMs == nil || h.Time.Before(from) || h.Time.After(to) {
			continue
		}
		switch waited := time.Duration(*h.UnservedMs * float64(time.Millisecond)); h.Kind {
		case protocol.Planned, protocol.Exit:
			handoffs.Add(waited)
		case protocol.Crash:
			crashes.Add(waited)
		}
	}
	return handoffs, crashes
}

// rules returns the rules by which the witness judges the logs of this scenario.
func (f *fleet) rules() witness.Rules {
	r := witness.Rules{Users: []string{accountUser}, Unwitnessed: f.unwitnessed}
	if f.load.Kind == scenario.Deployments {
		r.Waived = map[witness.Kind]string{witness.NoAts: "the scenario makes Deployments"}
	}
	return r
}
