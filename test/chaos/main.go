package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/bits"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tenure-dev/tenure/shard"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop)   // a second signal ends the process at once, and its children with it
	klog.SetLogger(logr.Discard()) // our own clients log errors about servers that we stopped
	ctrllog.SetLogger(logr.Discard())
	if len(os.Args) > 1 && os.Args[1] == "gates" {
		os.Exit(runGates(ctx, os.Args[2:], os.Stdout))
	}
	s, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	if err := play(ctx, s, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func parse(args []string) (settings, error) {
	s := settings{patience: restWithin, slack: 1}
	var scenarios, kinds string
	fs := flag.NewFlagSet("chaos", flag.ContinueOnError)
	fs.Uint64Var(&s.seed, "seed", uint64(time.Now().UnixNano())%1_000_000, "seed of the schedule")
	fs.DurationVar(&s.bound, "for", 25*time.Minute, "how long faults are made at most; judging comes on top")
	fs.IntVar(&s.calm, "calm", 20, "faults in the calm scenario, which keeps all Ats: the longer it gets, the more each "+
		"list carries")
	fs.IntVar(&s.faults, "faults", 300, "faults in all, reached in the storm")
	fs.IntVar(&s.moves, "moves", 1000, "planned moves in the moves scenario")
	fs.IntVar(&s.untidy, "untidy", 50, "faults in the untidy scenario, kind after kind")
	fs.StringVar(&kinds, "kinds", "", "kinds of untidy faults that match this `expression`; default: all")
	fs.Float64Var(&s.rate, "rate", 20, "Ats per second. Two slow processors serve about 40 at rest; with so many, "+
		"lateness and gaps show the machine")
	fs.DurationVar(&s.lease, "lease-duration", 5*time.Second, "of the replicas")
	fs.IntVar(&s.replicas, "replicas", 4, "processes")
	fs.IntVar(&s.shards, "shards-per-cluster", 0,
		fmt.Sprintf("of each of the two workload clusters; 0: %d in calm, %d in storm and moves, %d in handoff", calmShards,
			stormShards, handoffShards))
	fs.IntVar(&s.ballast, "objects", 5000, "Ats in each shard in the handoff scenario")
	fs.IntVar(&s.handoffs, "handoffs", 60, "planned moves in the handoff scenario; a tenth as many clean exits, an "+
		"eighth as many crashes")
	fs.StringVar(&scenarios, "scenario", "calm,storm,moves,untidy,handoff", "what to play, in this order")
	fs.StringVar(&s.tenure, "tenure", "", "binary of the replicas; default: built from the source")
	fs.DurationVar(&s.quiet, "quiet", 15*time.Second,
		"how long nothing is done at the end, to see what a fleet at rest writes")
	fs.BoolVar(&s.lenient, "lenient", false, "don't fail when a target is missed, or a key waits for some seconds in "+
		"calm: on a machine that does other things too, that says little")
	fs.BoolVar(&s.keep, "keep", false, "keep logs also when all is well")
	if err := fs.Parse(args); err != nil {
		return s, err
	}
	if fs.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q: see --scenario", fs.Arg(0))
	}
	s.scenarios = strings.Split(scenarios, ",")
	for _, name := range s.scenarios {
		if !slices.Contains([]string{"calm", "storm", "moves", untidy, "handoff"}, name) {
			return s, fmt.Errorf("--scenario %q: want calm, storm, moves, untidy or handoff", name)
		}
	}
	var err error
	if s.kinds, err = regexp.Compile(kinds); err != nil {
		return s, fmt.Errorf("--kinds: %w", err)
	}
	if s.tenure != "" {
		if s.tenure, err = lab.FindTenure(s.tenure); err != nil {
			return s, err
		}
	}
	return s, s.validate()
}

// validate returns an error that names each flag whose value makes no sense.
func (s settings) validate() error {
	var errs []error
	for _, n := range []struct {
		flag         string
		value, least int
	}{
		{"calm", s.calm, 1}, {"faults", s.faults, 1}, {"moves", s.moves, 1}, {"untidy", s.untidy, 1},
		{"handoffs", s.handoffs, 1}, {"objects", s.ballast, 1}, {"replicas", s.replicas, 2},
	} {
		if n.value < n.least {
			errs = append(errs, fmt.Errorf("--%s %d: want at least %d (--scenario says what is played)", n.flag, n.value,
				n.least))
		}
	}
	for _, d := range []struct {
		flag         string
		value, least time.Duration
	}{{"for", s.bound, time.Second}, {"lease-duration", s.lease, time.Second}, {"quiet", s.quiet, 0}} {
		if d.value < d.least {
			errs = append(errs, fmt.Errorf("--%s %v: want at least %v", d.flag, d.value, d.least))
		}
	}
	if !(s.rate > 0) { // nor is NaN
		errs = append(errs, fmt.Errorf("--rate %v: want more than 0", s.rate))
	}
	if most := 1 << keyspace.MaxBits; s.shards < 0 || s.shards > most || bits.OnesCount(uint(s.shards)) > 1 {
		errs = append(errs, fmt.Errorf("--shards-per-cluster %d: want a power of two up to %d, or 0", s.shards, most))
	}
	var kinds []string
	for _, o := range (&run{settings: s}).ordeals() {
		kinds = append(kinds, o.kind)
	}
	if !slices.ContainsFunc(kinds, s.kinds.MatchString) {
		errs = append(errs, fmt.Errorf("--kinds %q matches none of:\n  %s", s.kinds, strings.Join(kinds, "\n  ")))
	}
	return errors.Join(errs...)
}

// Shards of each cluster: as many as by default where gaps are measured, many where they move often.
const (
	calmShards  = 1 << shard.DefaultShardBits
	stormShards = 32
)

// play runs the scenarios, each on planes of its own, except storm and moves, which share theirs.
func play(ctx context.Context, s settings, out io.Writer) error {
	fmt.Fprintf(out, "chaos: seed %d, scenarios %s\n", s.seed, strings.Join(s.scenarios, ", "))
	parts := []struct {
		names  []string
		shards int
	}{{[]string{"calm"}, calmShards}, {[]string{"storm", "moves"}, stormShards}, {[]string{untidy}, calmShards},
		{[]string{"handoff"}, handoffShards}}
	var errs []error
	for _, part := range parts {
		wanted := s
		wanted.scenarios = slices.DeleteFunc(part.names,
			func(name string) bool { return !slices.Contains(s.scenarios, name) })
		if len(wanted.scenarios) == 0 || ctx.Err() != nil {
			continue
		}
		wanted.shards = cmp.Or(s.shards, part.shards)
		errs = append(errs, onPlanes(ctx, wanted, out, func(ctx context.Context, r *run) error {
			if slices.Contains(wanted.scenarios, "handoff") {
				return r.runHandoff(ctx)
			}
			return r.scenariosTogether(ctx)
		}))
	}
	return errors.Join(append(errs, context.Cause(ctx))...)
}

// onPlanes starts planes for a run and removes them afterwards. After a failure it keeps what is needed to investigate.
func onPlanes(ctx context.Context, s settings, out io.Writer, do func(context.Context, *run) error) (err error) {
	f, err := lab.Start(ctx, lab.Options{
		Workloads: []string{"west", "east"}, LeaseDuration: s.lease, ShardsPerCluster: s.shards,
		Tenure: s.tenure, Seed: s.seed, NoNodes: true, UserAgent: "chaos",
		Planes: localplane.Config{Progress: out, TmpfsData: true},
		// Only these scenarios disturb the network.
		Direct:     !slices.Contains(s.scenarios, "storm") && !slices.Contains(s.scenarios, untidy),
		SecondHome: slices.Contains(s.scenarios, untidy),
	})
	if err != nil {
		return err
	}
	r := newRun(s, f, out)
	defer func() {
		if err != nil || s.keep {
			for _, replica := range f.Replicas() {
				replica.Kill()
			}
			dir, keepErr := f.Keep("chaos")
			fmt.Fprintf(out, "logs are kept in %s\n", dir)
			err = errors.Join(err, keepErr)
		}
		err = errors.Join(err, f.Stop())
	}()
	var kubelets sync.WaitGroup
	defer kubelets.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := r.playKubelets(ctx, &kubelets); err != nil {
		return err
	}
	go func() { // a component that dies by itself (a full disk) ends the run with its own error
		if err := f.Planes.Wait(ctx); err != nil {
			cancel(err)
		}
	}()
	go r.watchMachine(ctx)
	if err := do(ctx, r); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(r.broken...)
}

// scenariosTogether plays the scenarios one after the other under one load, and judges them together.
func (r *run) scenariosTogether(ctx context.Context) error {
	if err := r.startAll(ctx); err != nil {
		return err
	}
	r.say("%d replicas share %d shards", r.replicas, 2*r.shards)
	r.around(ctx, func() { beside(ctx, r.load.run, func() { r.scenariosInTurn(ctx) }) })
	return nil
}

// scenariosInTurn plays the scenarios one after the other.
func (r *run) scenariosInTurn(ctx context.Context) {
	for _, name := range r.scenarios {
		r.say("scenario %s", name)
		switch name {
		case "calm":
			r.calmly(func() { r.runCalm(ctx) })
		case "storm":
			r.runStorm(ctx)
			r.settle(ctx, restWithin)
			sleep(ctx, feltFor) // the next scenario may be calm
		case untidy:
			r.runUntidy(ctx)
		case "moves":
			r.calmly(func() { r.runMoves(ctx) })
		}
	}
}

// around does something while replicas that end by themselves are started again, and judges it when all is at rest.
func (r *run) around(ctx context.Context, do func()) {
	beside(ctx, r.supervise, do)
	if r.rest(ctx); ctx.Err() == nil {
		r.conclude(ctx)
	}
}

// beside runs something in the background for as long as something else takes.
func beside(ctx context.Context, background func(context.Context), do func()) {
	ctx, stop := context.WithCancel(ctx)
	var side sync.WaitGroup
	side.Go(func() { background(ctx) })
	do()
	stop()
	side.Wait()
}
