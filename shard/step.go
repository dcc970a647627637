package shard

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// stepOf returns the step that a write is; ok is false if it is none. The step's epoch is that of the tenure that it
// leads to, by the record as it is known.
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
		return step, e.Shard.Warm != "" // otherwise the announcement is withdrawn
	case ownership.HandOff, ownership.HandOffOnExit, ownership.Release:
		step.Name, step.Peer = StepHandOff, e.Shard.Holder
		if step.Peer == "" {
			step.Epoch++ // the claim will raise it
		}
	case ownership.ClaimFree, ownership.ClaimDead:
		step.Name = StepClaim
	default:
		return Step{}, false
	}
	return step, true
}

// done reports the step as ending now.
func (step *Step) done(o Observer) {
	step.End = time.Now()
	o.Stepped(*step)
}
