package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/pprof/profile"

	"github.com/tenure-dev/tenure/bench/load"
	"github.com/tenure-dev/tenure/bench/load/feed"
	"github.com/tenure-dev/tenure/bench/record"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// ours is the name of the fleet that is measured.
const ours scenario.Reference = "tenure"

// leaveWithin is how long a replica may take to end after SIGTERM.
const leaveWithin = 30 * time.Second

// fleet is one contestant: replicas, or the floor, on control planes of their own, and what records them.
type fleet struct {
	as     scenario.Reference
	swept  bool // one of several that differ in their size
	config scenario.Fleet
	load   scenario.Load
	// unwitnessed is the reason why nothing is judged; empty if everything is.
	unwitnessed string

	options  Options
	dir      string
	site     *site
	ledger   *record.Ledger
	timeline *record.Timeline
	failed   func(error)    // ends the run
	wait     sync.WaitGroup // for the feeds
	sampling sync.WaitGroup // for profiles that are being taken
	traces   *collector     // nil where nothing is traced
	started  time.Time      // when the replicas were started
	held     time.Duration  // from then until all shards were held and served

	mu        sync.Mutex     // guards all up to the empty line
	onDone    func(load.Ref) // called for each At that becomes DONE; may be nil
	processes []*process
	kills     []kill
	profiles  []*profile.Profile

	preloaded *load.Generator // of Ats that are there and not due; nil if there are none
	say       func(format string, args ...any)
}

// sharded says whether shards have holders.
func (f *fleet) sharded() bool {
	return f.as != scenario.Floor && f.as != scenario.Floors && f.as != scenario.Stock
}

// controller is the name of the one that serves the load.
func (f *fleet) controller() string {
	if f.load.Kind == scenario.Deployments {
		return "replication"
	}
	return "at"
}

// newFleet brings control planes up and begins to follow them.
func newFleet(ctx context.Context, as scenario.Reference, s scenario.Scenario, dir string, o Options,
	failed func(error)) (*fleet, error) {
	f := &fleet{
		as: as, swept: len(s.Sweep) > 0, config: s.Fleet, load: s.Load, unwitnessed: s.Unwitnessed, options: o, dir: dir,
		failed: failed,
		ledger: record.NewLedger(), timeline: record.NewTimeline(),
	}
	if err := os.MkdirAll(filepath.Join(dir, "replicas"), 0o700); err != nil {
		return nil, fmt.Errorf("making a folder for logs and samples: %w", err)
	}
	var err error
	if s.Fleet.TracingTurns > 0 {
		if f.traces, err = startCollector(); err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, f.traces.stop)
	}
	f.site, err = newSite(ctx, filepath.Join(dir, "planes"), o, s, as == scenario.Apart)
	if err == nil && f.site.planes != nil {
		f.wait.Go(func() { // a component that dies by itself ends the run, and says why
			if err := f.site.planes.Wait(ctx); err != nil {
				failed(err)
			}
		})
	}
	return f, err
}

// follow records what happens in the clusters, and plays the kubelets, until the context ends.
func (f *fleet) follow(ctx context.Context) error {
	var errs []error
	begin := func(c *load.Cluster, kind feed.Kind, run func(ctx context.Context, since string) error) {
		since, err := c.Feed.Now(ctx, kind)
		if err != nil {
			errs = append(errs, fmt.Errorf("cluster %s: %w", c.Name, err))
			return
		}
		f.wait.Go(func() {
			if err := run(ctx, since); err != nil && ctx.Err() == nil {
				f.failed(fmt.Errorf("recording cluster %s: %w", c.Name, err))
			}
		})
	}
	follow := func(c *load.Cluster, kind feed.Kind, on func(feed.Event)) {
		begin(c, kind, func(ctx context.Context, since string) error { return c.Feed.Follow(ctx, kind, since, on) })
	}
	follow(f.site.home, feed.Shards, f.timeline.Record)
	for _, c := range f.site.clusters {
		if f.load.Kind == scenario.Deployments {
			follow(c, feed.Deployments, func(e feed.Event) { f.ledger.Copy(homeCluster, c.Name, len(f.site.clusters), e) })
			continue
		}
		if c.Nodes { // which have kubelets of their own
			follow(c, feed.Pods, func(e feed.Event) { f.ledger.Pod(c.Name, e) })
		} else {
			begin(c, feed.Pods, (&load.Kubelets{Cluster: c, Workers: 16, Pod: f.ledger.Pod}).Run)
		}
		follow(c, feed.Ats, func(e feed.Event) {
			if f.ledger.At(c.Name, e) {
				f.done(load.RefOf(c.Name, e.Object.Metadata.Namespace, e.Object.Metadata.Name))
			}
		})
	}
	return errors.Join(errs...)
}

// whenDone has a function called for each At that becomes DONE from now on.
func (f *fleet) whenDone(call func(load.Ref)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onDone = call
}

func (f *fleet) done(ref load.Ref) {
	f.mu.Lock()
	call := f.onDone
	f.mu.Unlock()
	if call != nil {
		call(ref)
	}
}

// start starts all replicas, or the floor.
func (f *fleet) start() error {
	f.started = time.Now()
	switch f.as {
	case scenario.Floor:
		return f.startFloor("floor", f.concurrency(), 0, 1)
	case scenario.Floors:
		for i := range f.config.Replicas {
			if err := f.startFloor(fmt.Sprintf("floor-%d", i+1), f.config.Workers, i, f.config.Replicas); err != nil {
				return err
			}
		}
		return nil
	case scenario.Stock:
		return f.startReplica("stock-1")
	}
	for i := range f.config.Replicas {
		if err := f.startReplica(fmt.Sprintf("r%d", i+1)); err != nil {
			return err
		}
		if f.as != scenario.Apart {
			continue
		}
		if err := f.startReplica(fmt.Sprintf("%s%d", apartPrefix, i+1)); err != nil {
			return err
		}
	}
	return nil
}

// apartPrefix begins the names of replicas that serve the last cluster alone.
const apartPrefix = "apart"

// startFloor runs the bare client, or one of its parts, as a process of its own, so that its CPU time can be told
// apart.
func (f *fleet) startFloor(name string, workers, part, of int) error {
	args := []string{"floor", "--workers", strconv.Itoa(workers), "--part", strconv.Itoa(part), "--of", strconv.Itoa(of)}
	for _, c := range f.site.clusters {
		args = append(args, "--kubeconfig", c.Name+"="+f.site.kubeconfigs[c.Name])
	}
	p := process{profiled: f.options.Profile != ""}
	return f.launch(lab.Program{Name: name, Binary: f.options.Bench, Addresses: 2,
		Args: func(addresses []string) []string {
			if p.profiled {
				return append(args, "--pprof-bind-address", addresses[1])
			}
			return args
		}}, p)
}

// concurrency is how many reconciles may run at a time in all of the sharded fleet. References get as many.
func (f *fleet) concurrency() int { return f.config.Replicas * f.config.Workers }

// startReplica starts a replica; its name may be that of one that has ended.
func (f *fleet) startReplica(name string) error {
	namespace := f.site.namespace
	if strings.HasPrefix(name, apartPrefix) {
		namespace = apartNamespace
	}
	args := []string{
		"--home-kubeconfig", f.site.kubeconfigs[homeCluster], "--namespace", namespace, "--replica", name,
		"--lease-duration", f.config.LeaseDuration.String(), "--shards-per-cluster", strconv.Itoa(f.config.ShardsPerCluster),
		"--objects-per-shard", "0",
		"--workers", strconv.Itoa(f.config.Workers),
		"--health-probe-bind-address", "0",
	}
	var hooks []string
	work := f.config.InjectedWork.D()
	switch f.as {
	case scenario.Stock:
		args = append(args, "--sharding", "off", "--workers", strconv.Itoa(f.concurrency()))
	case scenario.Client:
		args = append(args, "--watch-filtering", "client")
	case scenario.Slow:
		work = time.Duration(float64(work) * (1 + f.config.Slowdown))
	}
	if work > 0 {
		hooks = append(hooks, "--injected-work", work.String())
	}
	if f.load.Kind == scenario.Deployments {
		args = append(args, "--deployment-source", homeCluster)
	}
	p := process{scraped: true, profiled: f.options.Profile != ""}
	if f.config.Samples {
		p.samples = f.path(name, strconv.FormatInt(time.Now().UnixNano(), 36)+".samples")
		hooks = append(hooks, "--bench-samples", p.samples)
	}
	if turns := f.config.TracingTurns; turns > 0 {
		hooks = append(hooks, "--bench-tracing-turns", turns.String())
	}
	binary := f.options.Tenure
	if len(hooks) > 0 {
		var err error
		if binary, err = localplane.FindProgram("tenure-lab", f.options.Hooked, "--tenure", "make lab"); err != nil {
			return err
		}
	}
	return f.launch(lab.Program{
		Name: name, Binary: binary, Environment: f.traces.environment(), Addresses: 2,
		Args: func(addresses []string) []string {
			all := slices.Concat(args, hooks, []string{"--metrics-bind-address", addresses[0], "--metrics-secure=false"})
			if p.profiled {
				all = append(all, "--pprof-bind-address", addresses[1])
			}
			return all
		},
	}, p)
}

// launch starts a process and adds it to the processes of the fleet.
func (f *fleet) launch(program lab.Program, p process) (err error) {
	program.LogPath = f.path(program.Name, "log")
	if p.Replica, err = lab.StartProgram(program); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.processes = append(f.processes, &p)
	return nil
}

func (f *fleet) path(name, suffix string) string {
	return filepath.Join(f.dir, "replicas", name+"."+suffix)
}

// all returns every process that was ever started.
func (f *fleet) all() []*process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.processes)
}

// live returns the replicas that run.
func (f *fleet) live() []*process {
	var live []*process
	for _, p := range f.all() {
		if !p.Ended() && !p.Asked() {
			live = append(live, p)
		}
	}
	return live
}

// readyWithin bounds the wait for all shards: thousands take minutes on a busy machine.
const readyWithin = 5 * time.Minute

// ready waits until every shard is held by its assignee.
func (f *fleet) ready(ctx context.Context) error {
	switch f.as {
	case scenario.Floor, scenario.Floors:
		return f.floorReady(ctx)
	case scenario.Stock:
		return nil // it lists what is there when it begins
	}
	shards := f.site.told * f.config.ShardsPerCluster
	if f.load.Kind == scenario.Deployments {
		shards += f.config.ShardsPerCluster // home has shards too, since it has the sources
	}
	deadline := time.Now().Add(readyWithin)
	for calm := 0; calm < 5; {
		if err := f.complaint(); err != nil {
			return err
		}
		settled := f.timeline.Settled(shards) && len(f.timeline.Held()) >= f.holders(shards)
		if settled && f.held == 0 {
			if err := f.noteHeld(shards); err != nil {
				return err
			}
		}
		if settled && f.held > 0 {
			calm++
		} else {
			calm = 0
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not all of %d shards are held and settled after %v: %v", shards, readyWithin, f.timeline.Held())
		}
		if err := lab.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// holders is how many replicas hold shards once all are balanced. Of those that serve the last clusters apart, and of
// the others, each does, unless there are more replicas than shards for them.
func (f *fleet) holders(shards int) int {
	if f.as != scenario.Apart {
		return min(f.config.Replicas, shards)
	}
	apart := f.site.bad * f.config.ShardsPerCluster
	return min(f.config.Replicas, apart) + min(f.config.Replicas, shards-apart)
}

// noteHeld notes when the last of all shards was first served, once all are. The replicas' logs show that; a holder
// that a record names may still be filling its caches.
func (f *fleet) noteHeld(shards int) error {
	lines, err := f.activations()
	if err != nil {
		return err
	}
	first, last := map[string]bool{}, time.Time{}
	slices.SortFunc(lines, func(a, b lab.Line) int { return a.Time.Compare(b.Time) })
	for _, l := range lines {
		if !first[l.Shard] {
			first[l.Shard], last = true, l.Time
		}
	}
	if len(first) >= shards {
		f.held = last.Sub(f.started)
	}
	return nil
}

// activations returns the tenures that began at replicas. A process that follows another of its name shares its log.
func (f *fleet) activations() ([]lab.Line, error) {
	var replicas []*lab.Replica
	for _, p := range f.all() {
		if !slices.ContainsFunc(replicas, func(r *lab.Replica) bool { return r.LogPath == p.LogPath }) {
			replicas = append(replicas, p.Replica)
		}
	}
	return lab.Activations(replicas)
}

// floorReady waits until the floor follows everything: it sees nothing that was created before.
func (f *fleet) floorReady(ctx context.Context) error {
	return eventually(ctx, func() error {
		for _, p := range f.all() {
			content, err := os.ReadFile(p.LogPath)
			if err != nil {
				return err
			}
			if !strings.Contains(string(content), "ready") {
				return errors.Join(f.complaint(), fmt.Errorf("%s isn't ready", p.Name))
			}
		}
		return nil
	})
}

// complaint returns an error if a process ended by itself, for the first one.
func (f *fleet) complaint() error {
	for _, p := range f.all() {
		if err := p.DiedByItself(); err != nil {
			return fmt.Errorf("fleet %s: %w", f.as, err)
		}
	}
	return nil
}
