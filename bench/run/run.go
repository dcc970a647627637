package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tenure-dev/tenure/bench/load"
	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/samples"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// warmUp is how many Ats each fleet serves before anything is measured: connections, caches, and the API servers'
// own first times.
const warmUp = 60

// warmUpRound is the namespace of what is served before, firstRound that of a fleet's first round.
const warmUpRound = "warm-up"

var firstRound = roundName(0)

func roundName(i int) string { return fmt.Sprintf("round-%03d", i+1) }

// Run carries a scenario out. A run whose figures don't mean what they say has a report all the same, which is not
// valid and says why; an error is for one that couldn't be carried out.
func Run(ctx context.Context, s scenario.Scenario, o Options) (_ *report.Report, err error) {
	s, err = o.uses(s)
	if err != nil {
		return nil, err
	}
	if entries, _ := os.ReadDir(o.Dir); o.Dir != "" && len(entries) > 0 {
		return nil, fmt.Errorf("folder %s is not empty: what is in it would count as this run's; name another one", o.Dir)
	}
	if o.Profile != "" { // only now: it may be in Dir
		if err := os.MkdirAll(o.Profile, 0o755); err != nil {
			return nil, fmt.Errorf("making the folder of profiles: %w", err)
		}
	}
	if err := o.Locate(); err != nil {
		return nil, err
	}
	dir := o.Dir
	if dir == "" {
		made, remove, failed := localplane.TempDir()
		if failed != nil {
			return nil, failed
		}
		dir = made
		defer func() {
			if err == nil || ctx.Err() != nil { // otherwise the error names logs; the next start of control planes removes them
				_ = remove()
			}
		}()
	}
	r := &runner{scenario: s, options: o, progress: newProgress(o.Progress, s)}
	r.report = &report.Report{
		Schema: report.Schema, Scenario: s.Name, Summary: s.Summary, Started: time.Now().UTC(), Command: o.Command, Config: s,
		Reasons: []string{}, Warnings: []string{}, References: map[string]*report.Results{},
		Environment: environment(s, o), Profiled: o.Profile != "",
	}
	defer r.progress.close()
	before := usageNow()
	points := s.Sweep
	if len(points) == 0 {
		points = []int{s.Fleet.Replicas}
	}
	for _, replicas := range points {
		at := s
		at.Fleet.Replicas = replicas
		results, err := r.stage(ctx, at, filepath.Join(dir, strconv.Itoa(replicas)))
		if err != nil {
			return nil, err
		}
		for as, one := range results {
			if as != ours {
				r.report.References[string(as)] = one
				continue
			}
			r.report.Results = one
			if len(s.Sweep) > 0 {
				r.report.Sweep = append(r.report.Sweep, report.SweepPoint{Replicas: replicas, Results: one})
			}
		}
	}
	r.judgeMachine(before)
	r.finish()
	return r.report, nil
}

// runner is one run of a scenario.
type runner struct {
	scenario scenario.Scenario
	options  Options
	report   *report.Report
	progress *progress
	profiles []report.Profiled // of all stages
}

// stage runs our fleet and the references beside it.
func (r *runner) stage(ctx context.Context, s scenario.Scenario,
	dir string) (_ map[scenario.Reference]*report.Results, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var fleets []*fleet
	defer func() {
		cancel(nil)
		for _, f := range fleets {
			f.wait.Wait()
			f.kill()
			err = errors.Join(err, f.site.stop())
		}
	}()
	for _, as := range append([]scenario.Reference{ours}, s.Compare...) {
		r.progress.doing("starting %s (%d replicas)", as, s.Fleet.Replicas)
		f, err := newFleet(ctx, as, s, filepath.Join(dir, string(as)), r.options, func(err error) { cancel(err) })
		if f != nil && f.site != nil {
			fleets = append(fleets, f)
		}
		if err != nil {
			return nil, fmt.Errorf("fleet %s: %w", as, err)
		}
		f.say = r.progress.say
		if err := r.prepare(ctx, f, s); err != nil {
			return nil, causeOr(ctx, err)
		}
	}
	rounds, err := r.rounds(ctx, s, fleets)
	if err != nil {
		return nil, causeOr(ctx, err)
	}
	out := map[scenario.Reference]*report.Results{}
	for _, f := range fleets {
		if out[f.as], err = r.conclude(f, rounds[f]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// conclude reads what a fleet left, judges it, and returns the fleet's figures.
func (r *runner) conclude(f *fleet, rounds []*round) (*report.Results, error) {
	r.progress.doing("reading what %s left", f.as)
	f.sampling.Wait()
	// Killed: if they left in order, they would hand everything over, and that would count as the load's.
	err := f.complaint()
	f.kill()
	if err != nil {
		return nil, err
	}
	t := newTally(f)
	for _, one := range rounds {
		if err := t.add(one); err != nil {
			return nil, fmt.Errorf("fleet %s: %w", f.as, err)
		}
	}
	if f.traces != nil && f.traces.received.Load() == 0 {
		r.invalid("%s: no trace was sent", f.as)
	}
	if f.config.TracingTurns > 0 && len(t.out.Turns) == 0 {
		r.invalid("the load was over before each had a turn: raise load.count")
	}
	results, err := t.results()
	if err != nil {
		return nil, err
	}
	if err := t.addAudit(results); err != nil {
		return nil, err
	}
	for _, reason := range t.missing {
		r.invalid("%s: %s", f.as, reason)
	}
	r.judgeWitness(string(f.as), results)
	r.profiles = append(r.profiles, f.taken(results.CPUPerObject))
	return results, nil
}

// causeOr prefers why a context ended to the error that this led to.
func causeOr(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return errors.Join(cause, err)
	}
	return err
}

// preload creates the Ats that are there before the replicas start, in a namespace of their own. It returns nil if
// there are none.
func (r *runner) preload(ctx context.Context, f *fleet, l scenario.Load, namespace string,
	over bool) (*load.Generator, error) {
	if l.Preload == 0 {
		return nil, nil
	}
	r.progress.doing("creating %d Ats before the replicas start (%s)", l.Preload, namespace)
	g := &load.Generator{Load: l, Clusters: f.site.clusters, Namespace: namespace}
	if err := f.addNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	return g, g.Preload(ctx, over)
}

// prepare brings a fleet to the point where a load can come.
func (r *runner) prepare(ctx context.Context, f *fleet, s scenario.Scenario) error {
	var err error
	if f.preloaded, err = r.preload(ctx, f, s.Load, "preload", f.as == scenario.Unserved); err != nil {
		return err
	}
	finished := s.Load
	finished.Preload, finished.Changes = s.Load.Finished, 0
	if _, err := r.preload(ctx, f, finished, "finished", true); err != nil {
		return err
	}
	// Only now: what was preloaded is no news, and a watch may fall too far behind hundreds of thousands of creations.
	if err := f.follow(ctx); err != nil {
		return err
	}
	if len(s.Steps) > 0 && s.Steps[0].Do == scenario.Start {
		return nil // the scenario is about the start
	}
	if err := f.start(); err != nil {
		return err
	}
	r.progress.doing("waiting until %s is ready", f.as)
	if err := f.ready(ctx); err != nil {
		return err
	}
	if s.Load.Arrivals == scenario.Nothing {
		return nil
	}
	warm := s
	warm.Load = scenario.Load{Kind: s.Load.Kind, Arrivals: scenario.Burst, Count: warmUp,
		Due: scenario.DueNow, Clients: 16}
	warm.Steps, warm.Noises, warm.Limit = nil, nil, scenario.Duration(time.Minute)
	if _, err := f.give(ctx, warm, warmUpRound, 0, func(int, int) {}); err != nil {
		return fmt.Errorf("warming fleet %s up: %w", f.as, err)
	}
	if open := f.ledger.Open(); open > 0 {
		return fmt.Errorf("fleet %s: %d of %d objects have not converged after a minute; its logs are in %s", f.as,
			open, warmUp, f.dir)
	}
	return f.ready(ctx)
}

// rounds gives the load to each fleet in turns: A B C, C B A, and so on.
func (r *runner) rounds(ctx context.Context, s scenario.Scenario, fleets []*fleet) (map[*fleet][]*round, error) {
	out := map[*fleet][]*round{}
	noises := s.Noises
	for i := range max(s.Rounds*max(1, len(noises)), len(s.Load.Rates)) {
		if len(s.Load.Rates) > 0 {
			s.Load.Rate = s.Load.Rates[i]
		}
		if len(noises) > 0 {
			s.Noises = noises[i%len(noises):][:1]
		}
		for j := range fleets {
			f := fleets[j]
			if i%2 == 1 {
				f = fleets[len(fleets)-1-j]
			}
			r.progress.round(f.as, s.Fleet.Replicas, i+1)
			one, err := f.give(ctx, s, roundName(i), uint64(i+1), r.progress.show)
			if err != nil {
				return nil, fmt.Errorf("round %d of %s: %w", i+1, f.as, err)
			}
			r.progress.rounded()
			out[f] = append(out[f], one)
			if open := f.ledger.Open(); open > 0 {
				// Later rounds would wait for these too.
				r.invalid("%d objects of %s had not converged %s after the last arrival of round %d", open, f.as, s.Limit, i+1)
				return out, nil
			}
			if one.over {
				return out, nil
			}
		}
	}
	return out, nil
}

func (r *runner) invalid(format string, args ...any) {
	r.report.Reasons = append(r.report.Reasons, fmt.Sprintf(format, args...))
}

// kill ends what is left of the processes, at the end or after an error.
func (f *fleet) kill() {
	for _, p := range f.all() {
		if !p.Ended() {
			p.Kill()
		}
	}
}

// finish draws the conclusions.
func (r *runner) finish() {
	p := r.report
	p.Seconds = time.Since(p.Started).Seconds()
	p.Profile = report.NewProfile(r.profiles)
	p.Knee = knee(r.scenario.Load, p.Results.Rounds)
	p.ScaleOut, p.WatchCost = scaleOut(r.scenario.Load, p.Sweep), watchCost(p.Sweep)
	if complaint := judgeRepeats(p.Sweep); p.ScaleOut != nil && complaint != "" {
		r.invalid("%s", complaint)
	}
	p.Ratios, p.Intervals = report.Derived(p, samples.Untraced)
	for _, f := range p.Fleets() {
		r.judgeGenerator(f.Name, f.Results)
	}
	p.Valid = len(p.Reasons) == 0
}
