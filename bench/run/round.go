package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/bench/load"
	"github.com/tenure-dev/tenure/bench/record"
	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/test/lab"
)

// round is one load given to one fleet, and what was measured of it.
type round struct {
	namespace     string
	start, end    time.Time
	generator     *load.Outcome
	changes       *load.Outcome // of what was preloaded; nil if it isn't changed
	watch         *watcher
	turns         *turns // nil if nothing is done in turns
	before, after map[*process]record.Use
	servers       [2]map[string]record.Use // before and after
	marks         []report.Mark
	rate          float64 // that was tried, in a search for the knee; 0 otherwise
	over          bool    // the rate was too high
	noise         scenario.Noise
	pausedFrom    time.Time // when the last cluster was paused, or became noisy
	pausedTo      time.Time
	hits          map[scenario.Noise]int // requests that suffered the noise, or each of several at once
}

// give gives a load to the fleet and waits until it has converged, or the limit is over. show is called with the
// progress.
func (f *fleet) give(ctx context.Context, s scenario.Scenario, namespace string, seed uint64,
	show func(done, of int)) (*round, error) {
	if err := f.addNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	offsets := load.Offsets(s.Load, rand.New(rand.NewPCG(s.Load.Seed, seed)))
	g := &load.Generator{
		Load: s.Load, Clusters: f.receivers(), Namespace: namespace, Expect: f.ledger.Expect, Sent: f.ledger.Sent,
	}
	if s.Load.Delete {
		f.whenDone(f.deleter(ctx, g))
	}
	if s.Load.Arrivals == scenario.Closed {
		g.Window, g.Patience = make(chan struct{}, s.Load.Clients), s.Limit.D()
		f.whenDone(func(load.Ref) { <-g.Window }) // never waits: the token was put in before the request for the At
	}
	components, err := f.components()
	if err != nil {
		return nil, err
	}
	r, all := &round{namespace: namespace}, len(offsets)
	if len(s.Noises) > 0 {
		r.noise = s.Noises[0]
	}
	if r.noise == scenario.Added {
		if err := f.takeLast(ctx); err != nil {
			return nil, err
		}
	}
	if r.noise == scenario.Backlog || r.noise == scenario.Added {
		due, err := f.pile(ctx, s, namespace)
		if err != nil {
			return nil, err
		}
		if err := lab.Sleep(ctx, time.Until(due.Add(-quietFor))); err != nil {
			return nil, err
		}
		all += s.Backlog
	}
	r.start = g.Begin(len(offsets))
	r.watch = newWatcher(f, r.start)
	r.watch.baseline(ctx)
	r.start = g.Begin(len(offsets)) // the scrapes have taken their time
	r.watch.start = r.start
	if length := f.config.TracingTurns.D(); length > 0 {
		r.turns = &turns{fleet: f, length: length, servers: components}
	}
	if r.before, err = f.uses(); err != nil {
		return nil, err
	}
	if r.servers[0], err = usesOf(components); err != nil {
		return nil, err
	}
	base := f.ledger.Done()
	if err := f.play(ctx, s, g, r, offsets, func() { show(f.ledger.Done()-base, all) }); err != nil {
		return nil, err
	}
	r.end = time.Now()
	if slo := s.Load.SLO.D(); slo > 0 {
		lives := f.ledger.Sum(namespace, nil, keyOf)
		late := lives.Lateness.Quantiles()
		r.rate, r.over = s.Load.Rate, late == nil || late.P99 > float64(slo)/float64(time.Millisecond)
	}
	if r.after, err = f.uses(); err != nil { // before the metrics are read, which is no part of the load
		return nil, err
	}
	if r.servers[1], err = usesOf(components); err != nil {
		return nil, err
	}
	final, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r.watch.read(final)
	return r, nil
}

// play runs generator, steps and observation side by side.
func (f *fleet) play(ctx context.Context, s scenario.Scenario, g *load.Generator, r *round, offsets []time.Duration,
	show func()) error {
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var watching, working sync.WaitGroup
	defer watching.Wait()
	observe, stop := context.WithCancel(ctx)
	defer stop()
	every := sampleEvery
	if s.Load.Arrivals == scenario.Nothing {
		every = idleSampleEvery
	}
	watching.Go(func() { r.watch.run(observe, every) })
	if r.turns != nil {
		watching.Go(func() { r.turns.run(observe) })
	}
	watching.Go(func() {
		for lab.Sleep(observe, 200*time.Millisecond) == nil {
			show()
			if err := f.complaint(); err != nil {
				cancel(err)
			}
		}
	})
	fail := func(err error) {
		if err != nil {
			cancel(err)
		}
	}
	if r.namespace != warmUpRound {
		watching.Go(func() { f.profile(outer, r.namespace, r.start) }) // it may take longer than the round
	}
	working.Go(func() {
		var err error
		r.generator, err = g.Run(ctx, r.start, offsets)
		fail(err)
	})
	working.Go(func() {
		fail(f.perform(ctx, s.Steps, r.start, func(what string) { r.mark(what) }))
	})
	if s.Load.Changes > 0 {
		working.Go(func() {
			var err error
			r.changes, err = f.preloaded.Change(ctx, r.start)
			fail(err)
		})
	}
	if r.noise != "" {
		working.Go(func() { fail(f.disturb(ctx, r, s.Load.Duration.D())) })
	}
	if s.Load.Arrivals == scenario.Nothing {
		working.Go(func() { fail(lab.Sleep(ctx, time.Until(r.start.Add(s.Load.Duration.D())))) })
	}
	working.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	limit, done := context.WithTimeout(ctx, s.Limit.D())
	defer done()
	for f.ledger.Open() > 0 {
		select {
		case <-f.ledger.Changed():
			continue
		case <-limit.Done():
		}
		break
	}
	return context.Cause(ctx)
}

func (r *round) mark(what string) {
	now := time.Now()
	r.marks = append(r.marks, report.Mark{At: now.Sub(r.start).Seconds(), What: what})
	switch scenario.Action(what) {
	case scenario.PauseCluster:
		r.pausedFrom = now
	case scenario.Resume:
		r.pausedTo = now
	}
}

// deleter deletes Ats, in the background, once they are DONE.
func (f *fleet) deleter(ctx context.Context, g *load.Generator) func(load.Ref) {
	slots := make(chan struct{}, 32)
	return func(ref load.Ref) {
		f.wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := g.Delete(ctx, ref); err != nil && ctx.Err() == nil {
				f.failed(err)
			}
		})
	}
}

// components finds the servers' processes.
func (f *fleet) components() (map[string]int, error) {
	if f.site.foreign != nil {
		return nil, nil // they run elsewhere
	}
	folders := map[string]string{}
	for _, plane := range f.site.planes.Clusters() {
		folders[plane.Name()] = plane.Dir()
	}
	return record.Components(folders)
}

func (f *fleet) uses() (map[*process]record.Use, error) {
	out := map[*process]record.Use{}
	for _, p := range f.all() {
		used, err := p.use()
		if err != nil {
			return nil, err
		}
		out[p] = used
	}
	return out, nil
}

func usesOf(pids map[string]int) (map[string]record.Use, error) {
	out := map[string]record.Use{}
	var errs []error
	for name, pid := range pids {
		used, err := record.UseOf(pid)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		out[name] = used
	}
	return out, errors.Join(errs...)
}
