package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-dev/tenure/bench/witness"
	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/lab"
)

// restWithin bounds the longest waits.
const restWithin = 2 * time.Minute

// longRest is for how long a fleet has to rest so that what it writes meanwhile must have been measured.
const longRest = 10 * time.Second

// rest waits until nothing is left to do and the fleet has been at rest for a while.
func (r *run) rest(ctx context.Context) {
	r.last = r.fleet.Alive()
	r.settle(ctx, restWithin)
	r.say("waiting until all Ats are DONE")
	r.blame(r.catchUp(ctx))
	r.settle(ctx, settleWithin)
	r.say("at rest for %v", r.quiet)
	r.rested = time.Now()
	sleep(ctx, r.quiet)
	r.blame(r.restless(ctx))
	for _, replica := range r.fleet.Alive() {
		replica.Terminate()
	}
}

// restless reports what moved while the fleet should have been at rest, or what isn't settled. If a replica lapsed
// meanwhile, which is judged elsewhere, moves follow from that, and the fleet has time to settle. Replicas that end by
// themselves are judged elsewhere, too, but excuse nothing.
func (r *run) restless(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil // the run was ended
	}
	var lines []lab.Line
	for _, replica := range r.last {
		all, err := replica.Log.Lines()
		if err != nil {
			return err
		}
		for _, l := range all {
			if l.Time.After(r.rested) && (l.Activation() || l.Lapse()) {
				lines = append(lines, l)
			}
		}
	}
	if err := churn(lines); err != nil {
		return err
	}
	if len(lines) > 0 {
		return r.fleet.AwaitSettled(ctx, min(settleWithin, r.patience))
	}
	return r.fleet.Unsettled(ctx)
}

// churn returns an error if shards moved at rest though no replica lapsed, or by plan alone. lines are activations and
// lapses.
func churn(lines []lab.Line) error {
	var moves []lab.Line
	lapsed, unplanned := false, false
	for _, l := range lines {
		switch {
		case l.Lapse():
			lapsed = true
		case l.Activation():
			moves, unplanned = append(moves, l), unplanned || l.Kind != protocol.Planned
		}
	}
	if len(moves) == 0 || lapsed && unplanned {
		return nil
	}
	return fmt.Errorf("at rest, nothing is to move, and shards became active %d times, the first %s (%s) at %s",
		len(moves), moves[0].Shard, moves[0].Kind, moves[0].Time.Format(time.TimeOnly))
}

// catchUp waits until all Ats are DONE. A storm may leave more of them than the machine does in a minute; but they must
// become fewer.
func (r *run) catchUp(ctx context.Context) error {
	least, since := math.MaxInt, time.Now()
	for {
		left, err := r.load.unfinished(ctx)
		switch {
		case err == nil:
			return nil
		case left > 0 && left < least:
			least, since = left, time.Now()
		case time.Since(since) > r.patience:
			return fmt.Errorf("nothing became DONE for %v: %w", r.patience, err)
		}
		// Listing thousands of Ats takes as much of the API servers as a few dozen of them need to be done.
		sleep(ctx, 500*time.Millisecond+min(time.Duration(left)*5*time.Millisecond, 10*time.Second))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// conclude judges the run when all replicas were told to leave, and prints what came of it.
func (r *run) conclude(ctx context.Context) {
	leaving := time.Now()
	r.blame(ends(r.processes(), r.last, min(40*time.Second, r.patience)))
	r.blame(r.load.failed)
	r.crowd(leaving.Add(-time.Second))
	shards, err := r.fleet.Shards(ctx)
	r.blame(err)
	for i := range shards {
		if holder := shards[i].Status.Holder; holder != "" {
			r.blame(fmt.Errorf("all replicas have left, and shard %s is still held by %s", lab.ShardName(&shards[i]), holder))
		}
	}
	r.blame(r.evidence.take())
	facts, err := r.facts(ctx)
	r.blame(err)
	report, unjudged := lab.Judge(r.evidence.dir, facts)
	r.blame(unjudged)
	a, err := r.account(report)
	r.blame(err)
	r.blame(a.complaints())
	if unjudged != nil {
		return
	}
	r.blame(report.Err())
	if !r.lenient && r.quiet >= longRest && report.Coordination.PerSecond == nil {
		r.blame(fmt.Errorf("%d seconds of %d replicas at rest were seen in %v: too few for a rate of their writes",
			report.Coordination.SteadySeconds, report.Coordination.Replicas, r.quiet))
	}
	targets := a.targets(report)
	if !r.lenient {
		r.blame(missed(targets))
	}
	r.print(a, report, targets)
}

// ends waits until all processes have ended. The last ones must have been asked to, and have left in order; the others
// may have ended in any way.
func ends(processes, last []*lab.Replica, within time.Duration) error {
	var errs []error
	for _, replica := range processes {
		err := replica.Wait(within)
		switch {
		case errors.Is(err, lab.ErrStillRuns):
			errs = append(errs, err)
		case slices.Contains(last, replica):
			errs = append(errs, cmp.Or(replica.DiedByItself(), err))
		}
	}
	return errors.Join(errs...)
}

// account collects what was done and seen. report is the witness's, nil if the logs couldn't be judged.
func (r *run) account(report *witness.Report) (*account, error) {
	r.mu.Lock()
	a := &account{lease: r.lease, taken: time.Now(), slack: r.slack, lenient: r.lenient, scenarios: r.scenarios,
		quotas: r.quotas, calms: r.calms, rested: r.rested}
	a.faults = append(slices.Clone(r.faults), r.crowds...)
	r.mu.Unlock()
	var errs []error
	for _, replica := range r.processes() {
		lines, err := replica.Log.Lines()
		errs = append(errs, err)
		for n, l := range lines {
			a.logs = append(a.logs, logged{l, replica.Name, fmt.Sprintf("%s:%d", replica.LogPath, n+1)})
		}
	}
	if report != nil {
		a.ats, a.never = lateness(r.load.all(), report.Served)
		a.remade = report.Ats.PodsRemade
		a.quotas = append(slices.Clip(a.quotas), quota{"Ats served", r.load.least(), len(a.ats)})
	}
	if slices.Contains(r.scenarios, untidy) {
		a.ordeals = r.ordeals()
		refused, err := r.refusals()
		a.refused, errs = refused, append(errs, err)
	}
	return a, errors.Join(errs...)
}

// facts are what the witness has to know: the load, which clusters were restored when, and what there is at the end.
func (r *run) facts(ctx context.Context) (witness.Facts, error) {
	facts := r.load.facts()
	facts.Whole = r.evidence.logs == "" // the planes are new
	for _, plane := range r.fleet.Planes.Clusters() {
		for _, at := range plane.Restored() {
			facts.Restores = append(facts.Restores, witness.Restore{Cluster: plane.Name(), Time: at})
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(cnatv1alpha1.GroupVersion.WithKind("AtList"))
		resource := "ats"
		if plane.Name() == lab.Home {
			list.SetGroupVersionKind(tenurev1alpha1.GroupVersion.WithKind("ShardList"))
			resource = "shards"
		}
		if err := r.fleet.Client(plane.Name()).List(ctx, list); err != nil {
			return facts, fmt.Errorf("listing the %s of %s: %w", resource, plane.Name(), err)
		}
		for _, item := range list.Items {
			version, err := strconv.ParseUint(item.ResourceVersion, 10, 64)
			if err != nil {
				return facts, fmt.Errorf("version of %s %s: %w", resource, item.Name, err)
			}
			facts.Versions = append(facts.Versions, witness.Version{
				Cluster: plane.Name(), Group: list.GroupVersionKind().Group, Resource: resource,
				Namespace: item.Namespace, Name: item.Name, ResourceVersion: version,
			})
		}
	}
	return facts, nil
}
