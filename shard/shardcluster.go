package shard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/budget"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/internal/memory"
	"github.com/tenure-dev/tenure/shard/internal/turnstile"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// shardCluster is one shard's cluster over one real cluster, from the first attempt to open it on.
type shardCluster struct {
	mu         sync.Mutex // guards all below
	clusterNo  uint64     // of the real cluster over which it was opened, 0 before
	connection uint64     // of the connection that its caches use
	virtual    *engage.Cluster
	end        context.CancelFunc // stops the caches
	warmed     bool               // its caches were synced
	changing   bool               // caches over another server are being filled
	attached   map[*kindSource]bool
}

// opened returns what was opened last, nil before.
func (c *shardCluster) opened() *engage.Cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.virtual
}

// openedOver returns the clusterNo of the real cluster over which it was opened, 0 before.
func (c *shardCluster) openedOver() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clusterNo
}

// attach connects a source to the caches. It does nothing if the source is connected already, or if the cluster isn't
// open yet: the caller that warms it attaches all sources then.
func (c *shardCluster) attach(e *engagement, s *kindSource) error {
	c.mu.Lock()
	opened, attached := c.virtual, c.attached[s]
	if opened != nil && !attached {
		if c.attached == nil {
			c.attached = map[*kindSource]bool{}
		}
		c.attached[s] = true
	}
	c.mu.Unlock()
	if opened == nil || attached {
		return nil
	}
	informer, err := opened.Informer(s.obj)
	if err == nil {
		err = s.attach(e, informer)
	}
	if err != nil {
		c.mu.Lock()
		delete(c.attached, s)
		c.mu.Unlock()
	}
	return err
}

// opening is what a shard's cluster needs to be opened.
type opening struct {
	gate     *engage.Gate
	cluster  keyspace.ClusterName
	failures *budget.Budget // limits log lines about caches: see failed and noIndex
	// find returns the real cluster as it is reached now, and its traffic. Its Cluster is nil if it isn't there.
	find  func() (realCluster, *engage.Traffic)
	opts  engage.Options
	log   logr.Logger
	spawn func(func())
	told  func(clusterNo uint64) // called once it is open, with that of its real cluster
	room  *memory.Room           // where caches wait while memory is short
	// turns bounds how many shards fill caches over another server at a time.
	turns *turnstile.Turnstile
	// changed is called when there are new caches, which have no handlers yet. The old caches end after it returns.
	changed func()
}

// warmPause is the time between the first two tries to fill caches, and warmPauseMost the longest such time.
const (
	warmPause     = 100 * time.Millisecond
	warmPauseMost = 5 * time.Second
)

// warm opens the cluster and waits until its caches are synced, trying again until it succeeds or the context ends. It
// reports whether it succeeded.
func (c *shardCluster) warm(ctx context.Context, o opening) bool {
	return retry(ctx, warmPause, warmPauseMost, func() bool {
		err := c.tryWarm(ctx, o)
		if err != nil {
			o.failed(ctx, notWarm, err)
		}
		return err == nil
	})
}

// Log lines about caches that aren't filled or not kept up to date, or that lack an index.
const (
	notWarm = "shard can't be warmed yet; will try again"
	notOver = "shard can't change over to the other server yet; will try again"
	notKept = "shard can't see what changes; will try again"
	noIndex = "cluster is divided: undeclared kinds have no indexes there, and most lists by these fail. Declare the kinds"
)

// failed logs that an attempt failed, unless its context has ended: of a cluster's shards one a minute.
func (o opening) failed(ctx context.Context, what string, err error) {
	if ctx.Err() != nil {
		return
	}
	if left, ok := o.failures.Take(string(o.cluster), time.Now()); ok {
		o.log.Info(what, "shard", o.gate.Shard().String(), "cluster", string(o.cluster), "error", err.Error(),
			"leftOut", left)
	}
}

func (c *shardCluster) tryWarm(ctx context.Context, o opening) error {
	_, traffic := o.find()
	done, err := traffic.Fill(ctx)
	if err != nil {
		return err
	}
	defer done()
	real, _ := o.find() // it may have changed meanwhile
	c.mu.Lock()
	opened, current := c.virtual, c.connection == real.connection
	if opened != nil && !current && c.clusterNo == real.clusterNo { // the cluster is reached over another now
		c.end()
		c.virtual, c.attached, opened = nil, nil, nil
	}
	c.mu.Unlock()
	if opened == nil {
		if real.Cluster == nil {
			return multicluster.ErrClusterNotFound
		}
		var end, leave func()
		if opened, end, leave, err = startCaches(ctx, real, traffic, o); err != nil {
			return err
		}
		defer leave()
		c.mu.Lock()
		c.clusterNo, c.connection, c.virtual, c.end = real.clusterNo, real.connection, opened, end
		c.mu.Unlock()
		o.told(real.clusterNo)
	}
	if err := warmOver(ctx, opened, o, real.connection, notWarm); err != nil {
		return err
	}
	c.mu.Lock()
	c.warmed = true
	c.mu.Unlock()
	c.follow(ctx, o)
	return nil
}

// errMoved says that a cluster is reached by another server than when its caches began to be filled.
var errMoved = errors.New("the cluster is reached by another server now")

// startCaches opens a shard's cluster over a connection and starts its caches, until the context ends or end is called.
// Call leave once they are filled.
func startCaches(ctx context.Context, real realCluster, traffic *engage.Traffic,
	o opening) (_ *engage.Cluster, end, leave func(), _ error) {
	opened, err := openCluster(ctx, real, traffic, o)
	if err != nil {
		return nil, nil, nil, err
	}
	if fields := opened.Unindexed; len(fields) > 0 {
		if _, ok := o.failures.Take(noIndex+string(o.cluster), time.Now()); ok {
			o.log.Info(noIndex, "cluster", string(o.cluster), "fields", fields)
		}
	}
	leave = func() {}
	// A silent cluster sends nothing, so its caches need no memory.
	if open, why := traffic.Breaker.Open(); !open || why != engage.Silence {
		if leave, err = o.room.Enter(ctx); err != nil {
			return nil, nil, nil, err
		}
	}
	if now, _ := o.find(); now.connection != real.connection { // it may have changed meanwhile
		leave()
		return nil, nil, nil, errMoved
	}
	ctx, end = context.WithCancel(ctx)
	o.spawn(func() { _ = opened.Start(ctx) }) // it returns when the context ends, without an error
	return opened, end, leave, nil
}

// openCluster makes a shard's cluster. This may ask the server which resources it serves, and that request takes no
// context. If the context ends first, the request is left to end by itself.
func openCluster(ctx context.Context, real realCluster, traffic *engage.Traffic, o opening) (*engage.Cluster, error) {
	type result struct {
		cluster *engage.Cluster
		err     error
	}
	made := make(chan result, 1)
	go func() {
		c, err := engage.Open(real.via, o.gate, traffic, o.opts)
		made <- result{c, err}
	}()
	select {
	case r := <-made:
		return r.cluster, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// follow moves a warm cluster to another server if it is reached by another one now. The old caches are used until the
// new ones are full. A reconcile meanwhile has either, of the same cluster. One that isn't warm yet is opened anew by
// warm.
func (c *shardCluster) follow(ctx context.Context, o opening) {
	real, _ := o.find()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.warmed || c.changing || c.clusterNo != real.clusterNo || c.connection == real.connection {
		return
	}
	c.changing = true
	o.spawn(func() { retry(ctx, warmPause, warmPauseMost, func() bool { return c.change(ctx, o) }) })
}

// change fills caches over the present connection and puts them to use. done is false if it must be called again.
func (c *shardCluster) change(ctx context.Context, o opening) (done bool) {
	c.mu.Lock()
	real, traffic := o.find() // under the lock: a change after it comes to follow when changing is false
	if c.clusterNo != real.clusterNo || c.connection == real.connection {
		c.changing = false
		c.mu.Unlock()
		return true
	}
	c.mu.Unlock()
	give, err := o.takeTurn(ctx)
	if err != nil {
		return true
	}
	defer give()
	opened, end, leave, err := startCaches(ctx, real, traffic, o)
	if err == nil {
		defer leave()
		if err = warmOver(ctx, opened, o, real.connection, notOver); err != nil {
			end()
		}
	}
	if err != nil {
		o.failed(ctx, notOver, err)
		return false
	}
	c.mu.Lock()
	last := c.end
	c.connection, c.virtual, c.end, c.attached = real.connection, opened, end, nil
	c.mu.Unlock()
	o.changed()
	last()
	o.log.Info("shard goes by the other server", "shard", o.gate.Shard().String())
	return false // it may have moved again
}

// changeTurn is how long a shard that changes over to another server keeps others waiting.
const changeTurn = 5 * time.Second

// takeTurn waits until the shard may fill caches over another server: one shard at a time, since serving goes on
// meanwhile and needs the machine, too. The turn ends when give is called, or after changeTurn, since the lists of
// one cluster may never come. It fails only with the context's error.
func (o opening) takeTurn(ctx context.Context) (give func(), err error) {
	return o.turns.Turn(ctx, 1, changeTurn, func() {
		o.log.Info("shard's caches over the other server aren't filled yet; others go ahead", "shard",
			o.gate.Shard().String(), "after", changeTurn.String())
	})
}

// stillAsked is how often a warm-up checks that its connection is still the present one.
const stillAsked = time.Second

// slowFill is after how long, and how often, it is logged which caches aren't filled since their lists fail. One that
// fails once is repeated within five seconds, and not logged. After three lease durations the shard may go to another
// replica: that would be too late for the first line. Caches whose first list is under way are named from slowList on:
// one of many objects may take long.
const slowFill, slowList = 10 * time.Second, time.Minute

// warmOver syncs the caches. It fails with errMoved if the cluster is reached over another connection meanwhile.
// Lists that fail are repeated until they succeed, so their errors are logged here. slow is what the line says.
func warmOver(ctx context.Context, opened *engage.Cluster, o opening, connection uint64, slow string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ticker := time.NewTicker(stillAsked)
	defer ticker.Stop()
	slowly, began := time.NewTicker(slowFill), time.Now()
	defer slowly.Stop()
	synced := make(chan error, 1)
	go func() { synced <- opened.Warm(ctx) }()
	for {
		select {
		case err := <-synced:
			return err
		case <-ticker.C:
			if now, _ := o.find(); now.connection != connection {
				return errMoved
			}
		case <-slowly.C:
			if err := opened.Unsynced(time.Since(began) >= slowList); err != nil {
				o.failed(ctx, slow, err)
			}
		}
	}
}
