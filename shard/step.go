package shard

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/cas"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// newStep begins a step now. By the record as it is known, it leads to the epoch after the present one.
func (s *session) newStep(name StepName, id keyspace.ShardID, peer protocol.Incarnation) *Step {
	step := &Step{Name: name, Shard: id, Incarnation: s.id, Peer: peer, Start: time.Now()}
	if rec := s.recordOf(id); rec != nil {
		step.Record, step.Epoch = rec.UID, protocol.Epoch(rec.Status.Epoch)+1
	}
	return step
}

// stepOf says which step a write of a record's status is, if it is one.
func (s *session) stepOf(e ownership.WriteShard) (*Step, bool) {
	var name StepName
	peer, epoch := e.From, e.Shard.Epoch
	switch e.Kind {
	case ownership.AnnounceWarm:
		if e.Shard.Warm == "" {
			return nil, false // taken back
		}
		name, epoch = StepAnnounce, epoch+1
	case ownership.HandOff, ownership.HandOffOnExit, ownership.Release:
		if name, peer = StepHandOff, e.Shard.Holder; peer == "" {
			epoch++ // whoever claims it counts it up
		}
	case ownership.ClaimFree, ownership.ClaimDead:
		name = StepClaim
	default:
		return nil, false
	}
	step := s.newStep(name, e.Shard.ID, peer)
	step.Epoch = epoch
	return step, true
}

// timed makes a write that reports each try of it as the step.
func (step *Step) timed(s *session, do func(context.Context) (ownership.Version, error)) func(context.Context) (ownership.Version, error) {
	return func(ctx context.Context) (ownership.Version, error) {
		try := *step
		try.Start = time.Now()
		version, err := do(ctx)
		try.Outcome = cas.Outcome(err)
		try.done(s)
		return version, err
	}
}

// done reports the step as ending now.
func (step *Step) done(s *session) {
	step.End = time.Now()
	s.node.cfg.Observer.Stepped(*step)
}

// recordOf returns a shard's record as the watch last brought it, nil if it hasn't.
func (s *session) recordOf(id keyspace.ShardID) *tenurev1alpha1.Shard {
	shard := &tenurev1alpha1.Shard{}
	key := client.ObjectKey{Namespace: s.node.cfg.Namespace, Name: id.RecordName()}
	if err := s.cache.Get(s.ctx, key, shard); err != nil {
		return nil
	}
	return shard
}
