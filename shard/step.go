package shard

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-dev/tenure/shard/internal/cas"
	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// stepOf says which step a write is, if it is one. By the record as it is known, it leads to the epoch after the
// present one.
func stepOf(w driver.Write, by protocol.Incarnation) (step Step, ok bool) {
	if e, plan := w.Effect.(ownership.WriteAssignee); plan {
		step = Step{Name: StepPlan, Shard: e.ID, Incarnation: by, Peer: e.Assignee}
		if w.Of != nil {
			step.Epoch, step.Record = w.Of.Epoch, types.UID(w.Of.Record)
		}
		return step, true
	}
	e, ok := w.Effect.(ownership.WriteShard)
	if !ok {
		return Step{}, false
	}
	step = Step{Shard: e.Shard.ID, Epoch: e.Shard.Epoch, Record: types.UID(e.Shard.UID), Incarnation: by, Peer: e.From}
	switch e.Kind {
	case ownership.AnnounceWarm:
		step.Name = StepAnnounce
		step.Epoch++
		return step, e.Shard.Warm != "" // else it is taken back
	case ownership.HandOff, ownership.HandOffOnExit, ownership.Release:
		step.Name, step.Peer = StepHandOff, e.Shard.Holder
		if step.Peer == "" {
			step.Epoch++ // whoever claims it counts it up
		}
	case ownership.ClaimFree, ownership.ClaimDead:
		step.Name = StepClaim
	default:
		return Step{}, false
	}
	return step, true
}

// timed makes a write that reports each try of it as the step.
func (step Step) timed(o Observer, do func(context.Context) (ownership.Version, error)) func(
	context.Context) (ownership.Version, error) {
	return func(ctx context.Context) (ownership.Version, error) {
		step.Start = time.Now()
		version, err := do(ctx)
		step.Outcome = cas.Outcome(err)
		step.done(o)
		return version, err
	}
}

// done reports the step as ending now.
func (step *Step) done(o Observer) {
	step.End = time.Now()
	o.Stepped(*step)
}
