package shard

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/tenure-dev/tenure/pkg/budget"
	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/memory"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/internal/pods"
	"github.com/tenure-dev/tenure/shard/internal/turnstile"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// loop feeds events to the driver and carries out its requests, at the home cluster and at the shards. Everything
// that runs concurrently only puts events.
type loop struct {
	cfg        Config
	homeConfig *rest.Config
	scheme     *runtime.Scheme
	log        logr.Logger
	failures   *homeFailures
	clock      clock
	driver     *driver.Driver
	mail       *mailbox[driver.Event]
	say        func() string   // returns what the Lease reports about clusters
	ctx        context.Context // bounds all that runs beside the loop
	beside     sync.WaitGroup
	list       func() (cache.Cache, error) // begins a new watch of the records
	records    cache.Cache
	listed     bool        // the records' caches are filled: reading them doesn't wait
	pods       *pods.Watch // nil where they aren't watched
	clusters   *clusterSet
	roster     *roster
	judge      *clusterJudge
	report     *report
	surveyor   surveyor
	entrance   *entrance       // uses the warner until it puts Start; the loop does after that
	known      driver.Clusters // of which the driver was told last
	changes    changes         // of clusters that the driver hasn't been told yet
	turned     *atomic.Int64   // when the loop last turned, on the monotonic clock

	// The present incarnation, or the last.
	validity   *validity
	homeClient *homeClient
	shards     *engager
	unfollow   func()

	failure error // why the loop can't go on
	done    bool
}

// run takes part until the process has left in order (nil) or can't go on (an error). When the context ends, it stops
// everything at once and seals its Lease.
func (l *loop) run(ctx context.Context, leaving <-chan struct{}) error {
	quit := ctx.Done()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l.ctx = ctx
	defer l.beside.Wait()
	defer cancel()
	defer l.end()
	l.clusters.start(ctx, l.beside.Go, func() { l.mail.put(driver.Clusters{}) })
	defer l.clusters.stop()
	l.beside.Go(func() { l.judge.run(ctx) })
	l.tellClusters()
	l.beside.Go(func() {
		l.entrance.wait(ctx)
		l.mail.put(driver.Start{})
	})
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !l.done {
		now := l.clock.now()
		l.turned.Store(int64(now.Mono))
		timer.Reset(max(0, min(l.driver.Wake()-now.Mono, l.driver.TickEvery(), l.report.wait(time.Now()),
			l.changes.wait(time.Now()))))
		select {
		case <-l.mail.ready:
			for _, e := range l.mail.take() {
				for _, first := range l.mail.takeUrgent() { // thousands of others may be before them
					l.handle(first)
				}
				switch e := e.(type) {
				case driver.Clusters:
					l.changes.any = true
					continue
				case driver.Opened:
					if l.known.ClusterNos[e.ID.Cluster] != e.ClusterNo {
						l.followChanges(0) // else it would be over a cluster that the driver doesn't know yet
					}
				}
				l.handle(e)
			}
		case <-timer.C:
			l.handle(driver.Tick{})
		case <-leaving:
			leaving = nil
			l.log.Info("leaving: handing shards off")
			l.handle(driver.Leave{})
		case <-quit:
			quit = nil
			l.handle(driver.Quit{}) // bounded: by stopGrace, and by the sealing of the Lease
		}
		l.followChanges(l.changes.wait(time.Now()))
		l.report.publish(l.driver, l.validity, l.shards, &l.surveyor)
	}
	return l.failure
}

// changes spreads out what it takes to follow changes of clusters, which grows with the fleet: as a process begins,
// thousands of clusters may connect one by one.
type changes struct {
	any  bool
	at   time.Time // when they were handled last
	took time.Duration
}

// pauseAfter returns how long to wait after work that took so long and that grows with the fleet, so that it takes
// little of the loop's time. A stall of the machine may be in what it took, so the wait is bounded.
func pauseAfter(took time.Duration) time.Duration { return min(20*took, time.Second) }

// wait returns how long the changes may wait.
func (c *changes) wait(now time.Time) time.Duration {
	if !c.any {
		return time.Hour
	}
	return pauseAfter(c.took) - now.Sub(c.at)
}

// followChanges makes driver and shards follow all changes of clusters until now, unless they may wait.
func (l *loop) followChanges(wait time.Duration) {
	if c := &l.changes; c.any && wait <= 0 {
		c.any = false
		began := time.Now()
		l.tellClusters()
		if l.shards != nil && !l.done {
			l.shards.clustersChanged()
		}
		c.at = time.Now()
		c.took = c.at.Sub(began)
	}
}

// tellClusters tells the driver which clusters there are now: two changes may be put in the wrong order.
func (l *loop) tellClusters() {
	l.surveyor.touch()
	l.known = l.knownClusters()
	l.handle(l.known)
}

// handle feeds the driver one event and carries out its requests. Once the process is done, requests are dropped.
func (l *loop) handle(e driver.Event) {
	if l.done {
		return
	}
	requests := l.driver.Handle(l.clock.now(), e)
	l.validity.set(l.driver.ValidUntil())
	if listed, ok := e.(driver.Listed); ok {
		l.listed = l.listed || listed.By == l.driver.ID()
	}
	for _, r := range requests {
		if !l.done { // a request before it may have failed
			l.do(r)
		}
	}
}

// do carries out one request.
func (l *loop) do(r driver.Request) {
	l.report.stale = true
	switch r := r.(type) {
	case driver.Begin:
		l.begin(r)
	case driver.Write:
		l.homeClient.write(r)
	case driver.Read:
		l.homeClient.read(r)
	case driver.Warm:
		l.shards.warm(r)
	case driver.Probe:
		l.judge.probe(l.ctx, r.Cluster)
	case driver.Count:
		l.count(r)
	case driver.Open:
		l.shards.open(r)
	case driver.Drain:
		l.shards.drain(r)
	case driver.Close:
		l.shards.close(r.ID)
	case driver.Stop:
		l.homeClient.restart(l.ctx)
		l.shards.stop(r)
	case driver.Measure:
		l.shards.measure()
		// Not by what the driver says now: reconciles of the keys that this enqueues read what is published.
		l.shards.renamed(l.report.status.Load().Aliases)
		if l.listed { // the loop must never wait for a list
			l.surveyor.survey(l.ctx, l.records, l.cfg, l.driver, l.sharded)
		}
	case driver.Renewed:
		l.cfg.Observer.Renewed(r.Left)
	case driver.End:
		if r.Took > 0 {
			l.homeClient.log.Info("left in order", "took", r.Took.Round(time.Millisecond).String())
		}
		l.fail(r.Err)
	default:
		l.fail(fmt.Errorf("unknown request %T", r))
	}
}

// count counts a cluster's objects, concurrently. A cluster that can't be counted gets all its shards.
func (l *loop) count(c driver.Count) {
	l.beside.Go(func() {
		objects, err := int64(-1), errMoved
		if real, _ := l.clusters.get(c.Cluster); real.Cluster != nil && string(real.uid) == c.UID {
			objects, err = real.via.Count(l.ctx, l.roster.primary(c.Cluster))
		}
		if err != nil {
			objects = -1
			l.log.Info("cluster's objects can't be counted; it is divided as a large one", "cluster", string(c.Cluster),
				"error", err.Error())
		}
		l.mail.put(driver.Counted{Cluster: c.Cluster, UID: c.UID, Objects: objects})
	})
}

func (l *loop) fail(err error) {
	if !l.done {
		l.done, l.failure = true, err
	}
}

// begin starts another incarnation.
func (l *loop) begin(b driver.Begin) {
	log := l.log.WithValues("incarnation", string(b.ID))
	l.validity = &validity{clock: l.clock, over: l.roster.interrupt}
	l.shards = &engager{
		cfg: l.cfg, id: b.ID, log: log, ctx: l.ctx, clusters: l.clusters, roster: l.roster, judge: l.judge,
		validity: l.validity, put: l.mail.put, spawn: l.beside.Go, room: memory.NewRoom(memory.Now, log),
		turns: &turnstile.Turnstile{}, failures: budget.OnceAMinute(),
	}
	var err error
	if l.homeClient, err = l.connectHome(b.ID, log); err != nil {
		l.fail(err)
		return
	}
	if path := l.cfg.Pod.TerminationLog; path != "" {
		if err := pods.Log(path, b.ID); err != nil { // peers then wait for our lease to run out
			log.Error(err, "peers won't know from the Pod when this incarnation dies")
		}
	}
	if b.Afresh || l.records == nil {
		l.listed = false
		if l.records, err = l.list(); err != nil {
			l.fail(err)
			return
		}
	}
	f := &follower{by: b.ID, fleet: l.cfg.Fleet, cache: l.records, pods: l.pods, log: log, put: l.mail.put,
		changed: l.surveyor.touch}
	last := l.unfollow // ended last: what the watch shows between two incarnations counts, too
	if l.unfollow, err = f.follow(l.ctx, l.beside.Go); err != nil {
		l.fail(err)
		return
	}
	if last != nil {
		last()
	}
	log.Info("taking part", "namespace", l.cfg.Namespace, "leaseDuration", l.cfg.LeaseDuration.String())
}

const (
	// filesPatience is how long an incarnation waits for files of credentials that can't be used. Nothing is held yet
	// as it begins, so the loop may stand still meanwhile.
	filesPatience = 2 * time.Second
	filesPause    = 500 * time.Millisecond // between two tries
)

// connectHome returns an incarnation's client of the home cluster. If it can't be made, it is tried again for a while:
// a file with a certificate or a token may be written at this very moment.
func (l *loop) connectHome(id protocol.Incarnation, log logr.Logger) (*homeClient, error) {
	for until := time.Now().Add(filesPatience); ; {
		h, err := l.newHomeClient(id, log)
		if err == nil || !time.Now().Before(until) || !sleep(l.ctx, filesPause) {
			return h, err
		}
		log.Info("home can't be connected to: is a file of its credentials being written? Trying again", "error",
			err.Error())
	}
}

// end shuts all gates that are left, and waits, for stopGrace at most, until nothing behind them writes any more.
func (l *loop) end() {
	if l.shards != nil {
		l.shards.shutAll()()
	}
	l.validity.set(ownership.Instant{})
	l.done, l.report.published = true, time.Time{} // the end is always published
	l.report.publish(l.driver, l.validity, l.shards, &l.surveyor)
}

// knownClusters returns the clusters that the driver should know now. One that isn't identified yet counts as unmet,
// since it may not be the one that its records are about.
func (l *loop) knownClusters() driver.Clusters {
	all := l.clusters.all()
	known := driver.Clusters{
		Bits:       make(map[keyspace.ClusterName]int, len(all)),
		ClusterNos: make(map[keyspace.ClusterName]uint64, len(all)),
		UIDs:       make(map[keyspace.ClusterName]string, len(all)),
		Unmet:      map[keyspace.ClusterName]bool{},
	}
	for name, c := range all {
		if c.identified && l.roster.sharded(name) {
			known.Bits[name], known.ClusterNos[name], known.UIDs[name] = l.cfg.ShardBits, c.clusterNo, string(c.uid)
		} else {
			known.Unmet[name] = true
		}
	}
	return known
}

// sharded reports whether the provider knows a cluster that has kinds to divide into shards.
func (l *loop) sharded(name keyspace.ClusterName) bool {
	c, _ := l.clusters.known(name)
	return c.Cluster != nil && l.roster.sharded(name)
}
