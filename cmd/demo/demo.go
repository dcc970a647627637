package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	benchreport "github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/localjaeger"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

const (
	// fleetWithin bounds the wait for the first replicas to hold all shards.
	fleetWithin = time.Minute
	// settleWithin bounds the wait for the shards to come to rest.
	settleWithin = 30 * time.Second
	stepEvery    = 50 * time.Millisecond
	// leaveWithin is how long replicas may take to leave in order at the end.
	leaveWithin = 3 * time.Second
)

// run is the demo from start to end. Whatever it started is gone when it returns.
func run(ctx context.Context, s *settings) (err error) {
	if err := s.locate(); err != nil {
		return err
	}
	fmt.Println("Starting four control planes (home, west, east, north), and Jaeger, on this machine.")
	f, err := lab.Start(ctx, lab.Options{
		Workloads: workloadClusters, Planes: localplane.Config{Dir: s.dir, Binary: s.controlplane, Progress: os.Stdout},
		Jaeger: &localjaeger.Config{Binary: s.jaeger, QueryPort: queryPort()}, Direct: true,
		Replication: true, UserAgent: "demo",
		Tenure: s.tenure, LeaseDuration: s.leaseDuration, ShardsPerCluster: shardsPerCluster,
		Flags: []string{"--deployment-source", homeCluster}, Environment: []string{"OTEL_TRACES_SAMPLER=always_on"},
	})
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	b := newBoard(s.ats, s.deployments)
	defer func() {
		lab.StopAll(f.Replicas(), leaveWithin)
		if err != nil && !errors.Is(err, errInterrupted) && s.dir == "" {
			dir, keepErr := f.Keep("demo-failed")
			err = errors.Join(err, keepErr, fmt.Errorf("the logs are kept in %s", dir))
		}
		err = errors.Join(err, f.Stop())
	}()
	// A component that dies (a full disk, say) ends everything, with its own words.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		if err := f.Planes.Wait(ctx); err != nil {
			cancel(err)
		}
	}()
	err = play(ctx, s, f, b)
	if err == nil || errors.Is(err, errDoesNotHold) {
		return err
	}
	return cmp.Or(context.Cause(ctx), err)
}

// play is the demo on running control planes.
func play(ctx context.Context, s *settings, f *lab.Fleet, b *board) error {
	if err := addNamespaces(ctx, f); err != nil {
		return err
	}
	fmt.Printf("Starting replicas r1, r2, r3 with the rights of config/ only; lease duration %s (default 10s).\n\n",
		s.leaseDuration)
	story := &story{settings: s, fleet: f, board: b}
	if err := observed(ctx, f, b, s.terminal, story.tell); err != nil {
		return err
	}
	fmt.Println("\nAsking the API servers and Jaeger.")
	o, err := story.gather(ctx)
	if err != nil {
		return err
	}
	checks := judge(o)
	report(os.Stdout, s, f, b, o, checks)
	if err := benchreport.WriteJSON(s.json, "the result", newResult(o, checks)); err != nil {
		return err
	}
	if s.stay {
		// On a small terminal the summary has scrolled away by now.
		fmt.Println(outcome(checks) + " It all stays up: look around. Ctrl-C ends it.")
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, errInterrupted) {
			return cause
		}
	}
	return verdict(checks)
}

// addNamespaces makes the namespaces of the Ats, and that of the Deployments: at home, and in the workload
// clusters, where it is open to copies.
func addNamespaces(ctx context.Context, f *lab.Fleet) error {
	if err := lab.AddNamespace(ctx, f.Client(homeCluster), sourceNamespace); err != nil {
		return err
	}
	for _, cluster := range workloadClusters {
		c := f.Client(cluster)
		for _, namespace := range append(slices.Clone(atNamespaces), sourceNamespace) {
			if err := lab.AddNamespace(ctx, c, namespace); err != nil {
				return fmt.Errorf("cluster %s: %w", cluster, err)
			}
		}
		if err := lab.OpenNamespace(ctx, c, sourceNamespace, replication.TargetConfined); err != nil {
			return fmt.Errorf("cluster %s: %w", cluster, err)
		}
	}
	return nil
}

// observed runs a part of the demo while the board is fed and shown.
func observed(ctx context.Context, f *lab.Fleet, b *board, terminal bool, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		if err := observe(ctx, f, b); err != nil {
			cancel(err)
		}
	})
	shown := make(chan struct{})
	go func() { defer close(shown); show(ctx, b, terminal) }()
	err := do(ctx)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	cancel(errDone)
	group.Wait()
	<-shown
	return err
}

// story is the part that is shown live.
type story struct {
	settings *settings
	fleet    *lab.Fleet
	board    *board
	loaded   time.Time     // when all Ats had been created
	took     time.Duration // until the Ats were DONE
	second   secondFacts   // as far as we did it or saw it on the watches
}

func (st *story) tell(ctx context.Context) error {
	b, s := st.board, st.settings
	b.say("waiting until the replicas hold all shards")
	for _, name := range firstReplicas {
		if err := st.start(name); err != nil {
			return err
		}
	}
	if err := st.until(ctx, fleetWithin, "the replicas hold all shards", snapshot.settled); err != nil {
		return err
	}
	b.say(fmt.Sprintf("creating %d Ats: half due now, half over the next %s", s.ats, s.spread))
	if err := create(ctx, st.fleet, planAts(s.ats, time.Now(), s.spread)); err != nil {
		return err
	}
	b.say(fmt.Sprintf("%d Ats created; half way, %s will be killed", s.ats, victim))
	st.loaded = time.Now()
	if err := st.until(ctx, s.limit, "half of the Ats are DONE",
		func(now snapshot) bool { return 2*now.done() >= s.ats }); err != nil {
		return err
	}
	if err := st.crash(ctx); err != nil {
		return err
	}
	if err := st.until(ctx, s.limit-time.Since(st.loaded), "all Ats are DONE",
		func(now snapshot) bool { return now.done() == s.ats }); err != nil {
		return err
	}
	b.say("all Ats are DONE; waiting for the shards to come to rest")
	if err := st.until(ctx, settleWithin, "every shard is held and the shares are even", snapshot.settled); err != nil {
		return err
	}
	st.took = b.snapshot().elapsed
	return st.replicate(ctx)
}

func (st *story) start(name string) error {
	r, err := st.fleet.StartReplica(name)
	if err != nil {
		return err
	}
	st.board.addReplica(r)
	return nil
}

// crash kills one replica, and lets another one join once the orphans have new holders.
func (st *story) crash(ctx context.Context) error {
	for _, r := range st.board.allReplicas() {
		if r.Name == victim {
			r.Kill()
		}
	}
	st.board.say(fmt.Sprintf("%s was killed with SIGKILL; its shards wait for its Lease to run out (%s)", victim,
		st.settings.leaseDuration))
	held := func(now snapshot) bool { return now.held == now.shards }
	if err := st.until(ctx, settleWithin, "the shards of the killed replica are held again", held); err != nil {
		return err
	}
	st.board.say(fmt.Sprintf("the shards of %s are held again; %s joins and gets its share", victim, joiner))
	if err := st.start(joiner); err != nil {
		return err
	}
	if err := st.until(ctx, settleWithin, joiner+" has its share", snapshot.settled); err != nil {
		return err
	}
	st.board.say(fmt.Sprintf("%s has its share; waiting for the Ats that come due later", joiner))
	return nil
}

// until waits for something to be seen on the board, and fails with what was seen instead.
func (st *story) until(ctx context.Context, limit time.Duration, what string, seen func(snapshot) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTimeUp)
	defer cancel()
	for {
		now := st.board.snapshot()
		if seen(now) {
			return nil
		}
		for _, r := range st.fleet.Replicas() {
			if err := r.DiedByItself(); err != nil {
				return err
			}
		}
		err := lab.Sleep(ctx, stepEvery)
		if errors.Is(err, errTimeUp) {
			return fmt.Errorf("not within %s: %s (last seen: %s)", limit.Round(time.Second), what, plainLine(now))
		}
		if err != nil {
			return err
		}
	}
}

var errTimeUp = errors.New("time is up")
