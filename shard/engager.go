package shard

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/budget"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/internal/memory"
	"github.com/tenure-dev/tenure/shard/internal/turnstile"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

const (
	// stopGrace is how long the writes of an ended incarnation may take to end. If some still run after it, the Lease
	// isn't sealed, and peers wait for it to run out.
	stopGrace = 2 * time.Second
	// awarePause is the time between the first two tries to engage an unmodified controller with a shard, and
	// awarePauseMost the longest such time. A try fails, for instance, until the CRD of a kind that it watches is there.
	// Each try enqueues what the shard holds, and leaves a goroutine behind for each source that did start.
	awarePause     = 100 * time.Millisecond
	awarePauseMost = 5 * time.Minute
)

// engager carries out the driver's requests at the workload clusters, for one incarnation. Its methods change gates
// before they return. Everything else runs concurrently, and its result is put as an event. Only the loop calls them,
// except for changed and engageAwares, which clusters of shards also call from goroutines of their own.
type engager struct {
	cfg      Config
	id       protocol.Incarnation
	log      logr.Logger
	ctx      context.Context // bounds all that is engaged
	clusters *clusterSet
	roster   *roster
	judge    *clusterJudge
	validity *validity
	put      func(driver.Event)
	spawn    func(func())
	room     *memory.Room
	turns    *turnstile.Turnstile // of shards that fill caches over another server
	failures *budget.Budget       // limits the log lines about caches: see opening

	aliases map[multicluster.ClusterName]multicluster.ClusterName // as renamed saw them last
}

// of returns the engagement of a shard, nil if there is none.
func (g *engager) of(id keyspace.ShardID) *engagement { return g.roster.get(clusterName(id)) }

// warm engages a shard with its gate shut.
func (g *engager) warm(w driver.Warm) {
	e := &engagement{id: w.ID}
	_, e.traffic = g.clusters.get(w.ID.Cluster)
	e.ctx, e.cancel = context.WithCancel(g.ctx)
	e.gate = engage.NewGate(e.ctx, w.ID, g.cfg.agent(), string(g.id), g.validity.holds)
	g.roster.put(e.name(), e)
	step := g.step(StepWarm, w.ID, w.Record)
	o := g.opening(e, w.ID.Cluster, false)
	o.told = func(clusterNo uint64) {
		g.put(driver.Opened{Number: w.Number, ID: w.ID, ClusterNo: clusterNo})
	}
	g.spawn(func() {
		if e.own.warm(e.ctx, o) {
			e.attach(g.roster.allSources(), g.log)
			step.done(g.cfg.Observer)
			g.put(driver.Warmed{Number: w.Number, ID: w.ID})
		}
	})
	g.reach(e)
}

func (g *engager) opening(e *engagement, cluster keyspace.ClusterName, remote bool) opening {
	return opening{
		gate: e.gate, cluster: cluster, failures: g.failures, opts: g.roster.options(e.id.Cluster, remote), log: g.log,
		spawn: g.spawn, told: func(uint64) {},
		changed: func() { g.changed(e, remote) }, room: g.room, turns: g.turns,
		find: func() (realCluster, *engage.Traffic) { return g.clusters.get(cluster) },
	}
}

func (g *engager) step(name StepName, id keyspace.ShardID, record string) Step {
	return Step{Name: name, Shard: id, Record: types.UID(record), Incarnation: g.id, Start: time.Now()}
}

// reach keeps one outpost per other cluster, for a shard that has remote kinds. An outpost that isn't synced yet, or
// never will be, delays nothing else. Once it is synced, all keys of the shard are enqueued again, since any of them
// may have objects there.
func (g *engager) reach(e *engagement) {
	if !g.roster.reaches(e.id.Cluster) { // as for most shards: don't look through a thousand clusters for each
		return
	}
	all := g.clusters.all()
	e.unreach(all)
	for name := range all {
		o := g.opening(e, name, true)
		if name == e.id.Cluster || len(o.opts.Kinds) == 0 {
			continue
		}
		post, begun := e.reach(name)
		if begun {
			post.cluster.follow(post.ctx, o)
			continue
		}
		g.spawn(func() {
			if post.cluster.warm(post.ctx, o) && e.reached(name, post) {
				g.changed(e, true)
			}
		})
	}
}

// clustersChanged makes every shard follow its cluster to another server, and reach the other clusters that exist
// now.
func (g *engager) clustersChanged() {
	for _, e := range g.roster.all() {
		e.own.follow(e.ctx, g.opening(e, e.id.Cluster, false))
		g.reach(e)
	}
}

// renamed handles a change of [Manager.Aliases]. Open shards that may have copies in other clusters enqueue all their
// keys again, since no event reports such a change. decided is what the protocol has decided.
func (g *engager) renamed(decided map[keyspace.ClusterName]keyspace.ClusterName) {
	far := slices.DeleteFunc(g.roster.all(), func(e *engagement) bool { return !g.roster.reaches(e.id.Cluster) })
	if len(far) == 0 {
		return
	}
	before := g.aliases
	if g.aliases = aliases(g.clusters.all(), decided); maps.Equal(before, g.aliases) {
		return
	}
	for _, e := range far {
		if e.gate.IsOpen() {
			g.spawn(func() { e.backfill(g.roster.allSources()) })
		}
	}
}

// changed is called when a shard has new caches: its first ones of another cluster (remote), or new ones of its own. It
// attaches the sources to them, and has every key enqueued once, since they may hold what no event has shown.
func (g *engager) changed(e *engagement, remote bool) {
	sources := g.roster.allSources()
	e.attach(sources, g.log) // while the gate is open, this enqueues what the new caches hold
	if e.gate.IsOpen() {
		// The new caches may lack what an object elsewhere depends on: the owner of a copy, or the copy of an object.
		e.backfill(slices.DeleteFunc(slices.Clone(sources), func(s *kindSource) bool { return s.remote == remote }))
	}
	if !remote && e.endAwares() {
		g.engageAwares(e)
	}
}

// open opens a warm shard's gate, enqueues what its caches hold, and reports the new tenure.
func (g *engager) open(o driver.Open) {
	e := g.of(o.ID)
	step := g.step(StepActivate, o.ID, o.Record)
	step.Epoch = o.Epoch
	e.forgetAlarms() // if the shard began to drain and was kept, it has old ones
	e.gate.Open(o.Epoch)
	e.sample = loadSample{at: time.Now(), busy: e.busy.Load(), objects: e.cluster().Objects(), load: e.sample.load}
	g.spawn(func() { e.backfill(g.roster.allSources()) })
	g.engageAwares(e)
	step.done(g.cfg.Observer)
	a := Activation{
		Shard: o.ID, Epoch: o.Epoch, Incarnation: g.id, Kind: o.Kind, From: o.From,
		Record: types.UID(o.Record), Objects: e.sample.objects,
	}
	if !o.Since.IsZero() {
		a.Gap = step.End.Sub(o.Since)
	}
	log := g.log
	if a.Gap > 0 {
		log = log.WithValues("gapMs", float64(a.Gap.Microseconds())/1000)
	}
	log.Info("shard active", "shard", o.ID.String(), "epoch", int64(o.Epoch), "kind", a.Kind, "from", string(a.From),
		"objects", a.Objects)
	g.cfg.Observer.Activated(a)
}

// engageAwares engages unmodified multicluster-runtime controllers, unless none can be guarded (see [Manager.Guard]).
// It doesn't block the loop, since they wait for caches by polling.
func (g *engager) engageAwares(e *engagement) {
	ctx := e.beginAwares()
	if g.roster.guards.Load() == 0 {
		return // node.Start has said so
	}
	for _, a := range g.roster.allAwares() {
		g.spawn(func() {
			told := ""
			retry(ctx, awarePause, awarePauseMost, func() bool {
				err := a.Engage(ctx, e.name(), e.cluster())
				if err == nil || ctx.Err() != nil {
					return true
				}
				if err.Error() != told { // once, not at each try
					told = err.Error()
					g.log.Error(err, "controller can't be engaged with shard; trying again", "shard", e.id.String())
				}
				return false
			})
		})
	}
}

// drain ends a tenure in order, concurrently.
func (g *engager) drain(d driver.Drain) {
	e := g.of(d.ID)
	step := g.step(StepDrain, d.ID, d.Record)
	step.Epoch = e.epoch() + 1
	e.endAwares()
	patience := g.cfg.DrainTimeout
	if g.judge.trouble(d.ID.Cluster) != nil {
		patience = 0 // running reconciles can't finish
	}
	g.spawn(func() {
		if e.gate.Drain(e.ctx, patience, engage.ReturnGrace) != nil {
			return // it was closed meanwhile
		}
		step.done(g.cfg.Observer)
		g.put(driver.Drained{Number: d.Number, ID: d.ID, Ended: e.gate.Ended()})
	})
}

// close drops a shard that isn't ours any more.
func (g *engager) close(id keyspace.ShardID) {
	e := g.of(id)
	e.shut()
	g.roster.remove(e.name())
	g.roster.dropKeys(e.name())
	if epoch := e.epoch(); epoch > 0 {
		g.log.Info("shard closed", "shard", id.String(), "epoch", int64(epoch))
		g.cfg.Observer.Closed(id, epoch)
	}
}

// shutAll shuts every gate and drops all caches. The returned function waits, for stopGrace at most, until none of
// their writes is in flight, and drops the keys that wait in queues. It reports whether no write is in flight.
func (g *engager) shutAll() (quiet func() bool) {
	all := g.roster.all()
	for _, e := range all {
		e.shut()
		g.roster.remove(e.name())
	}
	return func() bool {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(g.ctx), stopGrace)
		defer cancel()
		quiet := true
		for _, e := range all {
			quiet = e.gate.Quiet(ctx) && quiet
		}
		for _, e := range all {
			g.roster.dropKeys(e.name())
		}
		return quiet
	}
}

func (g *engager) stop(s driver.Stop) {
	quiet := g.shutAll()
	g.log.Info("incarnation lapsed: stopping everything it held", "reason", s.Reason)
	if !s.Blank { // else it only ends what began when the process's last incarnation lapsed
		g.cfg.Observer.Lapsed(s.ID, s.Reason)
	}
	g.spawn(func() { g.put(driver.Stopped{Number: s.Number, Quiet: quiet()}) })
}

// loadSample is the last measurement of a shard.
type loadSample struct {
	at      time.Time
	objects int64
	busy    int64
	load    float64
}

// measure samples size and load of the active shards. It also enqueues again what a gate dropped because the lease
// seemed to have run out; see [engage.Gate.Missed].
func (g *engager) measure() {
	now := time.Now()
	for _, e := range g.roster.all() {
		v := e.cluster()
		if v == nil || !e.gate.IsOpen() {
			continue
		}
		if e.gate.Missed() {
			g.spawn(func() { e.backfill(g.roster.allSources()) })
			if e.endAwares() { // an unmodified controller enqueues everything when it is engaged
				g.engageAwares(e)
			}
		}
		busy, sample := e.busy.Load(), &e.sample
		elapsed := now.Sub(sample.at)
		if elapsed <= 0 {
			continue // a coarse clock
		}
		since := float64(busy-sample.busy) / float64(elapsed)
		sample.load = (sample.load + since) / 2 // a half-life of one measurement smooths bursts
		sample.at, sample.busy, sample.objects = now, busy, v.Objects()
		g.put(driver.Measured{ID: e.id, Objects: sample.objects, Load: sample.load})
	}
}

// stuck returns since when a shard that is held here isn't served, or isn't kept up to date; zero if all is well. It is
// called again and again: the first time counts, except that caches are judged once their lists or watches have failed
// for [inspect.LongStuck]. It logs why they fail. What fails while the cluster can't be used at all, or while the shard
// isn't served, doesn't count: that is logged elsewhere.
func (g *engager) stuck(s ShardStatus, e *engagement, now time.Time) time.Time {
	if e == nil {
		return now
	}
	if !s.Served() || g.judge.trouble(s.ID.Cluster) != nil {
		e.unserved = now
		return now
	}
	if behind := e.cluster().Behind(e.unserved, inspect.LongStuck); behind != nil {
		g.opening(e, s.ID.Cluster, false).failed(e.ctx, notKept, behind)
		return now.Add(-inspect.LongStuck)
	}
	return time.Time{}
}
