package shard

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/shard/internal/engage"
)

// view is one shard's cluster over one real cluster, from the first attempt to open it on.
type view struct {
	mu       sync.Mutex // guards all below
	real     uint64     // number of the connection that it was opened over, 0 before
	virtual  *engage.Cluster
	attached map[*kindSource]bool
}

// cluster returns the shard's cluster, nil before it is open.
func (v *view) cluster() *engage.Cluster {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.virtual
}

// over returns the number of the connection that the view was opened over, 0 before.
func (v *view) over() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.real
}

// attach connects a source to the view's caches. It does nothing for one that is connected already, and nothing
// before the view is open: whoever warms it connects what there is then.
func (v *view) attach(e *engagement, s *kindSource) error {
	v.mu.Lock()
	opened, attached := v.virtual, v.attached[s]
	if opened != nil && !attached {
		if v.attached == nil {
			v.attached = map[*kindSource]bool{}
		}
		v.attached[s] = true
	}
	v.mu.Unlock()
	if opened == nil || attached {
		return nil
	}
	informer, err := opened.GetCache().GetInformer(e.ctx, s.obj, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	return s.attach(e, informer)
}

// finder returns a real cluster as it is now, which is nil if it isn't there.
type finder func() (connection, *engage.Traffic)

// opening is what a view needs to be opened.
type opening struct {
	gate  *engage.Gate
	find  finder
	opts  engage.Options
	log   logr.Logger
	spawn func(func())
	told  func(connection uint64) // is told over which connection the view was opened
}

// warm opens the view and waits until its caches are synced, trying again until it succeeds or the context ends. It
// reports whether it succeeded.
func (v *view) warm(ctx context.Context, o opening) bool {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := v.tryWarm(ctx, o)
		if err == nil {
			return true
		}
		if ctx.Err() == nil {
			o.log.Info("shard can't be warmed yet; will try again", "shard", o.gate.Shard().String(), "error", err.Error(), "in", pause.String())
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}

func (v *view) tryWarm(ctx context.Context, o opening) error {
	opened := v.cluster()
	if opened == nil {
		real, traffic := o.find()
		if real.Cluster == nil {
			return multicluster.ErrClusterNotFound
		}
		var err error
		if opened, err = engage.Open(real.Cluster, o.gate, traffic, o.opts); err != nil {
			return err
		}
		v.mu.Lock()
		v.real, v.virtual = real.number, opened
		v.mu.Unlock()
		o.told(real.number)
		o.spawn(func() { _ = opened.Start(ctx) }) // it returns when the context ends, without an error worth telling
	}
	return opened.Warm(ctx)
}
