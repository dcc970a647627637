package shard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/internal/memory"
	"github.com/tenure-dev/tenure/shard/internal/turnstile"
)

// view is one shard's cluster over one real cluster, from the first attempt to open it on.
type view struct {
	mu       sync.Mutex // guards all below
	real     uint64     // number of the connection that it was opened over, 0 before
	way      uint64     // by which the cluster is reached
	virtual  *engage.Cluster
	end      context.CancelFunc // stops the caches
	warmed   bool               // its caches were synced
	changing bool               // caches over another way are being filled
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
	informer, err := opened.Informer(s.obj)
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
	room  *memory.Room            // in which caches are filled
	// turns are taken by those that fill caches beside those in use.
	turns *turnstile.Turnstile
	// changed is called when the view has other caches, which have no handlers yet, and the last ones are about to end.
	changed func()
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
			o.log.Info("shard can't be warmed yet; will try again", "shard", o.gate.Shard().String(), "error", err.Error(),
				"in", pause.String())
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}

func (v *view) tryWarm(ctx context.Context, o opening) error {
	_, traffic := o.find()
	done, err := traffic.Fill(ctx)
	if err != nil {
		return err
	}
	defer done()
	real, _ := o.find() // it may have changed meanwhile
	v.mu.Lock()
	opened, current := v.virtual, v.way == real.way
	if opened != nil && !current && v.real == real.number { // the cluster has moved meanwhile
		v.end()
		v.virtual, v.attached, opened = nil, nil, nil
	}
	v.mu.Unlock()
	if opened == nil {
		if real.Cluster == nil {
			return multicluster.ErrClusterNotFound
		}
		var end, leave func()
		if opened, end, leave, err = begin(ctx, real, traffic, o); err != nil {
			return err
		}
		defer leave()
		v.mu.Lock()
		v.real, v.way, v.virtual, v.end = real.number, real.way, opened, end
		v.mu.Unlock()
		o.told(real.number)
	}
	if err := warmOver(ctx, opened, o, real.way); err != nil {
		return err
	}
	v.mu.Lock()
	v.warmed = true
	v.mu.Unlock()
	v.follow(ctx, o)
	return nil
}

// errMoved says that a cluster is reached by another server than when its caches began to be filled.
var errMoved = errors.New("the cluster is reached by another server now")

// begin opens a shard's cluster over a connection and starts its caches, until the context ends or end is called. Once
// they are filled, leave is to be called.
func begin(ctx context.Context, real connection, traffic *engage.Traffic,
	o opening) (_ *engage.Cluster, end, leave func(), _ error) {
	opened, err := engage.Open(real.via, o.gate, traffic, o.opts)
	if err != nil {
		return nil, nil, nil, err
	}
	leave = func() {}
	// What a silent cluster sends needs no memory.
	if open, why := traffic.Breaker.Open(); !open || why != engage.Silence {
		if leave, err = o.room.Enter(ctx); err != nil {
			return nil, nil, nil, err
		}
	}
	if now, _ := o.find(); now.way != real.way { // it may have changed meanwhile
		leave()
		return nil, nil, nil, errMoved
	}
	ctx, end = context.WithCancel(ctx)
	o.spawn(func() { _ = opened.Start(ctx) }) // it returns when the context ends, without an error worth telling
	return opened, end, leave, nil
}

// follow takes a warm view over to the way by which its cluster is reached now, if that is another. The caches are used
// until others beside them are full. Whoever reconciles meanwhile has the one or the other, of the same cluster. One
// that isn't warm yet is opened anew by warm.
func (v *view) follow(ctx context.Context, o opening) {
	real, _ := o.find()
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.warmed || v.changing || v.real != real.number || v.way == real.way {
		return
	}
	v.changing = true
	o.spawn(func() {
		for pause := 100 * time.Millisecond; !v.change(ctx, o); pause = min(2*pause, 5*time.Second) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	})
}

// change fills caches over the present way and puts them to use. It reports whether there is nothing left to do.
func (v *view) change(ctx context.Context, o opening) (done bool) {
	real, traffic := o.find()
	v.mu.Lock()
	if v.real != real.number || v.way == real.way {
		v.changing = false
		v.mu.Unlock()
		return true
	}
	v.mu.Unlock()
	give, err := o.takeTurn(ctx)
	if err != nil {
		return true
	}
	defer give()
	opened, end, leave, err := begin(ctx, real, traffic, o)
	if err == nil {
		defer leave()
		if err = warmOver(ctx, opened, o, real.way); err != nil {
			end()
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			o.log.Info("shard can't be taken over to the other server yet; will try again", "shard", o.gate.Shard().String(),
				"error", err.Error())
		}
		return false
	}
	v.mu.Lock()
	last := v.end
	v.way, v.virtual, v.end, v.attached = real.way, opened, end, nil
	v.mu.Unlock()
	o.changed()
	last()
	o.log.Info("shard goes by the other server", "shard", o.gate.Shard().String())
	return false // it may have moved again
}

// changeTurn is for how long a shard that changes over to another server keeps others waiting.
const changeTurn = 5 * time.Second

// takeTurn waits until the shard may fill caches beside those in use: one at a time, since what is served meanwhile
// needs the machine, too. The turn ends when give is called, or by itself after a while: the lists of one cluster may
// never come. It fails only with the context.
func (o opening) takeTurn(ctx context.Context) (give func(), err error) {
	return o.turns.Turn(ctx, 1, changeTurn, func() {
		o.log.Info("shard's caches over the other server aren't filled yet; others go ahead", "shard",
			o.gate.Shard().String(), "after", changeTurn.String())
	})
}

// stillAsked is how often it is looked at whether caches that are being filled are still wanted.
const stillAsked = time.Second

// warmOver syncs the caches, for as long as the cluster is reached that way.
func warmOver(ctx context.Context, opened *engage.Cluster, o opening, way uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ticker := time.NewTicker(stillAsked)
	defer ticker.Stop()
	synced := make(chan error, 1)
	go func() { synced <- opened.Warm(ctx) }()
	for {
		select {
		case err := <-synced:
			return err
		case <-ticker.C:
			if now, _ := o.find(); now.way != way {
				return errMoved
			}
		}
	}
}
