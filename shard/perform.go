package shard

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/cas"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// drainGrace is how long a reconcile whose context was cancelled may take to return before the replica gives up.
const drainGrace = 5 * time.Second

// perform does what the protocol asks. Gates change before it returns; all else runs beside the loop.
func (s *session) perform(effect ownership.Effect) {
	switch e := effect.(type) {
	case ownership.WriteLease:
		s.writeLease(e)
	case ownership.SealLease:
		s.log.Info("peer stood still for its whole lease: sealing it", "peer", string(e.ID))
		s.write(e.Seq, "Seal", func(ctx context.Context) (ownership.Version, error) {
			return s.members.Seal(ctx, e.Base, e.ID, s.id)
		}, s.rereadLease(string(e.ID)))
	case ownership.FindLease:
		s.spawn(func() { s.reread(s.rereadLease(string(e.ID))) })
	case ownership.WriteLead:
		s.write(e.Seq, "Coordinate", func(ctx context.Context) (ownership.Version, error) {
			return s.members.WriteLead(ctx, e.Base, e.Lead, time.Now())
		}, s.rereadLease(tenurev1alpha1.CoordinatorName))
	case ownership.ForgetLease:
		s.spawn(func() { _ = s.members.Drop(s.ctx, e.ID) }) // the next coordinator tries again
	case ownership.CreateShard:
		s.write(e.Seq, "Create", func(ctx context.Context) (ownership.Version, error) {
			return s.records.Create(ctx, e)
		}, s.rereadShard(e.ID))
	case ownership.WriteAssignee:
		s.log.Info("moving shard", "shard", e.ID.String(), "to", string(e.Assignee))
		step := s.newStep(StepPlan, e.ID, e.Assignee)
		s.write(e.Seq, "Assign", step.timed(s, func(ctx context.Context) (ownership.Version, error) {
			return s.records.WriteAssignee(ctx, e)
		}), s.rereadShard(e.ID))
	case ownership.WriteShard:
		s.writeShard(e)
	case ownership.Warm:
		s.warm(e.ID)
	case ownership.Activate:
		s.activate(e.ID, e.Epoch)
	case ownership.Drain:
		s.drain(e.ID)
	case ownership.Close:
		s.close(e.ID)
	case ownership.DropLease:
		s.dropLease()
	case ownership.Lapse:
		s.log.Info("incarnation lapsed: stopping everything it held", "reason", e.Reason)
		for _, engaged := range s.shards {
			engaged.gate.Shut()
		}
		s.node.cfg.Observer.Lapsed(s.id, e.Reason)
		s.end(fmt.Errorf("%w: %s", errLapsed, e.Reason))
	default:
		s.end(fmt.Errorf("unknown effect %T", effect))
	}
}

// write runs one compare-and-swap beside the loop and feeds its outcome. Where it wasn't committed the record is read
// afresh first, so that the machine decides on what is true now.
func (s *session) write(seq uint64, what string, do func(context.Context) (ownership.Version, error), reread func(context.Context) (ownership.Input, error)) {
	s.spawn(func() {
		select {
		case s.writes <- struct{}{}:
			defer func() { <-s.writes }()
		case <-s.ctx.Done():
			return
		}
		version, outcome := s.attempt(what, s.timeout(), do)
		if outcome != protocol.Committed {
			s.reread(reread)
		}
		s.mail.put(message{input: ownership.Written{Seq: seq, Outcome: outcome, Version: version}})
	})
}

// attempt makes one write, within a time, and says what became of it.
func (s *session) attempt(what string, patience time.Duration, do func(context.Context) (ownership.Version, error)) (ownership.Version, protocol.Outcome) {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	version, err := do(ctx)
	outcome := cas.Outcome(err)
	s.node.cfg.Observer.Wrote(what, outcome)
	if outcome != protocol.Committed {
		s.complain(what, outcome, err)
	}
	return version, outcome
}

// reread feeds a record as it is now, if it can be read.
func (s *session) reread(read func(context.Context) (ownership.Input, error)) {
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout())
	defer cancel()
	if in, err := read(ctx); err == nil {
		s.mail.put(message{input: in})
	}
}

// complain logs a write that wasn't committed. That somebody else was faster is normal; anything else is told, but not
// more often than every few seconds, since it is tried again all the time.
func (s *session) complain(what string, outcome protocol.Outcome, err error) {
	log := s.log.WithValues("what", what, "outcome", outcome.String(), "error", err.Error())
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || s.ctx.Err() != nil {
		log.V(1).Info("record not written")
		return
	}
	s.complaints.Lock()
	defer s.complaints.Unlock()
	if now := time.Now(); now.Sub(s.complained[what]) > 5*time.Second {
		s.complained[what] = now
		log.Info("record can't be written; trying on")
	}
}

// timeout bounds one request to the home cluster: short enough for several tries within a lease.
func (s *session) timeout() time.Duration {
	return max(s.node.cfg.LeaseDuration/8, 500*time.Millisecond)
}

// writeLease is a write that never waits in line behind others. A home cluster that is slow gets half of the time that
// is left to answer: giving up sooner would make it do the same work again, and a lost request leaves time for another.
// What was lost isn't read afresh: a repeat tells, too, and may be the one that is committed.
func (s *session) writeLease(e ownership.WriteLease) {
	patience := s.timeout()
	if until := s.validUntil.Load(); until != nil {
		patience = max(patience, (until.Mono-s.node.now().Mono)/2)
	}
	s.spawn(func() {
		version, outcome := s.attempt("Renew", patience, func(ctx context.Context) (ownership.Version, error) {
			version, err := s.members.Write(ctx, e.Base, e.Lease, time.Now())
			if until := s.validUntil.Load(); err == nil && until != nil {
				s.node.cfg.Observer.Renewed(until.Mono - s.node.now().Mono)
			}
			return version, err
		})
		if outcome == protocol.Rejected {
			s.reread(s.rereadLease(string(s.id)))
		}
		s.mail.put(message{input: ownership.Written{Seq: e.Seq, Outcome: outcome, Version: version}})
	})
}

func (s *session) writeShard(e ownership.WriteShard) {
	var ended time.Time
	if engaged := s.shards[e.Shard.ID]; engaged != nil && e.From == s.id {
		ended = engaged.gate.Ended()
	}
	if e.Kind == ownership.ClaimFree || e.Kind == ownership.ClaimDead {
		s.claims[e.Shard.ID] = e
	}
	do := func(ctx context.Context) (ownership.Version, error) { return s.records.WriteStatus(ctx, e, ended) }
	if step, ok := s.stepOf(e); ok {
		do = step.timed(s, do)
	}
	s.write(e.Seq, e.Kind.String(), do, s.rereadShard(e.Shard.ID))
}

func (s *session) rereadLease(name string) func(context.Context) (ownership.Input, error) {
	return func(ctx context.Context) (ownership.Input, error) { return s.members.Read(ctx, name) }
}

func (s *session) rereadShard(id keyspace.ShardID) func(context.Context) (ownership.Input, error) {
	return func(ctx context.Context) (ownership.Input, error) { return s.readShard(ctx, id) }
}

// readShard reads a record live. Where it isn't there, the machine is told since when that is known.
func (s *session) readShard(ctx context.Context, id keyspace.ShardID) (ownership.Input, error) {
	asked := s.node.now()
	in, err := s.records.Read(ctx, id)
	if gone, ok := in.(ownership.ShardGone); ok {
		gone.Asked = asked
		return gone, err
	}
	return in, err
}

// warm engages a shard with its gate shut.
func (s *session) warm(id keyspace.ShardID) {
	e := &engagement{id: id}
	_, e.traffic = s.node.fleet.get(id.Cluster)
	e.ctx, e.cancel = context.WithCancel(s.ctx)
	e.gate = engage.NewGate(e.ctx, id, s.node.agent(), string(s.id), s.valid)
	s.shards[id] = e
	s.node.setEngaged(e.name(), e)
	find := func() (cluster.Cluster, *engage.Traffic) { return s.node.fleet.get(id.Cluster) }
	step := s.newStep(StepWarm, id, "")
	step.Epoch = 0 // whether we get it, and at which epoch, is open
	s.spawn(func() {
		if e.home.warm(e.ctx, e.gate, find, s.node.engageOptions(id.Cluster, false), s.log, s.spawn) {
			e.attach(s.node.allSources(), s.log)
			step.done(s)
			s.mail.put(message{input: ownership.Warmed{ID: id}, from: e})
		}
	})
	s.reach(e)
}

// activate opens a warm shard's gate and enqueues what its caches hold.
func (s *session) activate(id keyspace.ShardID, epoch protocol.Epoch) {
	e := s.shards[id]
	step := s.newStep(StepActivate, id, "")
	step.Epoch = epoch
	e.gate.Open(epoch)
	s.spawn(func() { e.backfill(s.node.allSources()) })
	s.engageAwares(e)
	step.done(s)
	s.announce(e, epoch, step.End)
}

// engageAwares engages unmodified multicluster-runtime controllers, beside the loop since they wait for caches by
// polling.
func (s *session) engageAwares(e *engagement) {
	ctx, cancel := context.WithCancel(e.ctx)
	e.awareEnd = cancel
	for _, a := range s.node.allAwares() {
		s.spawn(func() {
			if err := a.Engage(ctx, e.name(), e.cluster()); err != nil && ctx.Err() == nil {
				s.log.Error(err, "controller can't be engaged with shard", "shard", e.id.String())
			}
		})
	}
}

// drain ends a tenure in order, beside the loop.
func (s *session) drain(id keyspace.ShardID) {
	e := s.shards[id]
	step := s.newStep(StepDrain, id, "")
	step.Epoch = e.epoch() + 1
	e.endAwares()
	s.spawn(func() {
		if err := e.gate.Drain(e.ctx, s.node.cfg.DrainTimeout, drainGrace); err != nil {
			if e.ctx.Err() == nil {
				s.mail.put(message{do: func() { s.end(fmt.Errorf("giving the incarnation up: %w", err)) }, from: e})
			}
			return
		}
		step.done(s)
		s.mail.put(message{input: ownership.Drained{ID: id}, from: e})
	})
}

// close drops a shard that isn't ours any more. The machine may ask it for one that was never engaged.
func (s *session) close(id keyspace.ShardID) {
	delete(s.load, id)
	delete(s.announced, id)
	e := s.shards[id]
	if e == nil {
		return
	}
	e.shut()
	delete(s.shards, id)
	s.node.setEngaged(e.name(), nil)
	if epoch := e.epoch(); epoch > 0 {
		s.log.Info("shard closed", "shard", id.String(), "epoch", int64(epoch))
		s.node.cfg.Observer.Closed(id, epoch)
	}
	if now, _ := s.node.fleet.get(id.Cluster); now != nil && e.over() != nil && now != e.over() {
		s.mail.put(message{do: s.feedClusters}) // its connection was replaced: the new one may be used now
	}
}

// dropLease is the last act of a clean exit.
func (s *session) dropLease() {
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout())
	defer cancel()
	if err := s.members.Drop(ctx, s.id); err != nil {
		s.log.Info("couldn't remove the lease; a peer will", "error", err.Error())
	}
	s.log.Info("left in order", "took", time.Since(s.leftAt).Round(time.Millisecond).String())
	s.end(nil)
}
