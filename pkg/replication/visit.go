package replication

import (
	"context"
	"fmt"
	"time"
)

// maxSteps bounds the steps of one reconcile, so that a copy that changes all the time doesn't hold a worker. A write
// that conflicts costs two steps, and during a rollout the Deployment controller makes every third write conflict.
const maxSteps = 24

// visit is what one reconcile does in one target. The time for it is bounded. What the source's cluster takes to
// confirm the source isn't part of that, since it says nothing about the target, nor is what slow writes take.
type visit struct {
	*copyActor
	whole    context.Context // the reconcile's
	ctx      context.Context // ends when the time is over
	cancel   context.CancelFunc
	slowLeft int // how many slow writes may still be made
	view     copyView
}

// work decides and acts until nothing is left to do.
func (c *copyActor) work(whole context.Context) (outcome, error) {
	v := &visit{copyActor: c, whole: whole, slowLeft: mostSlow}
	v.ctx, v.cancel = context.WithTimeout(whole, c.r.config.TargetTimeout)
	defer func() { v.cancel() }() // by then it may be another
	if err := v.gather(); err != nil {
		return outcome{}, err
	}
	for range maxSteps {
		next, err := v.decide()
		switch {
		case err != nil:
			return outcome{}, err
		case next.Act == actNone:
			return c.settle(v.view, next.Outcome), nil
		}
		end, err := v.act(next)
		switch {
		case err != nil:
			return outcome{}, err
		case end != nil:
			return *end, nil
		}
	}
	return outcome{State: stateProgressing, After: firstDelay}, nil
}

// gather fills the view from the cache, or from the API server if the target is on trial.
func (v *visit) gather() (err error) {
	if v.cluster, err = v.r.config.Clusters.GetCluster(v.ctx, v.target); err != nil {
		return fmt.Errorf("finding cluster %s: %w", v.target, err)
	}
	v.view = copyView{Source: sourceKey(v.name, v.key), SourceCluster: v.uid, SourceUID: v.source.UID, Want: v.want,
		Scalers: v.r.config.Scalers}
	if v.view.Copy, err = read(v.ctx, v.cluster.GetClient(), v.key); err != nil {
		return err
	}
	if v.view.Copy != nil {
		v.view.Cached = v.view.Copy.ResourceVersion
	}
	if n := v.recall(); n.seen(v.view.Copy) {
		v.note(func(n *copyNote) { n.seen(v.view.Copy) })
	}
	if v.trial {
		return v.look(v.ctx, &v.view)
	}
	return nil
}

// decide returns the next step.
func (v *visit) decide() (step, error) {
	v.view.Note, v.view.Now = v.recall(), v.r.now()
	next, err := decideCopy(v.view)
	if next.Act != actNone && next.Act != actLook && v.view.Note.Slow && !v.view.Live {
		next.Act = actLook // a target that doesn't even answer reads isn't waited for
	}
	return next, err
}

// act carries a step out. It returns an outcome if no other step may follow.
func (v *visit) act(next step) (*outcome, error) {
	switch next.Act {
	case actLook:
		return nil, v.look(v.ctx, &v.view)
	case actDelete:
		resume := v.pause() // other targets may take their time
		spared := v.spared(v.whole, v.view.Copy)
		resume()
		if spared != nil {
			return spared, nil
		}
	default:
		v.making = next.Act == actCreate
		barred, missing, err := v.enter(v.ctx, next)
		switch {
		case err != nil || barred != nil:
			return barred, err
		case missing:
			return nil, v.change(v.makeSpace)
		}
	}
	return nil, v.change(func(ctx context.Context) error { return v.do(ctx, &v.view, next) })
}

// change makes one write in the target, if the source is still as the cache shows it.
func (v *visit) change(do func(context.Context) error) error {
	resume := v.pause()
	err := v.confirm()
	resume()
	if err != nil {
		return err
	}
	if !v.recall().Slow {
		return v.write(v.ctx, do)
	}
	if v.slowLeft--; v.slowLeft < 0 {
		return errBusy
	}
	defer v.pause()()
	return v.slowWrite(v.whole, do)
}

// pause begins what isn't part of the time for the target. resume ends that, and moves the end of the time.
func (v *visit) pause() (resume func()) {
	until, _ := v.ctx.Deadline()
	began := time.Now()
	return func() {
		v.cancel()
		v.ctx, v.cancel = context.WithDeadline(v.whole, until.Add(time.Since(began)))
	}
}
