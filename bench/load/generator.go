package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/bench/stats"
	"github.com/tenure-dev/tenure/test/lab"
)

// Ref names an At.
type Ref struct{ Cluster, Namespace, Name string }

// Arrival is one At of the load.
type Arrival struct {
	Ref
	// Intended is when it should have been asked for: created, or edited so that it is due.
	Intended time.Time
	// Due is its schedule.
	Due time.Time
	// Sent and Answered are when that request was made and when the answer was there.
	Sent, Answered time.Time
}

// Far is how far in the future the schedule lies of Ats that must not become due.
const Far = 24 * time.Hour

// Generator gives a load to clusters.
type Generator struct {
	Load scenario.Load
	// Clusters get the objects in turns; Deployments go to the home cluster alone.
	Clusters []*Cluster
	// Namespace of the Ats; it must exist. Names are sequential within it.
	Namespace string
	// Window limits a closed load; it is nil for any other. It holds a token for each At that is under way, so a
	// request waits while it is full. The caller takes a token out when it sees that an At has ended.
	Window chan struct{}
	// Patience is how long a request of a closed load waits for its token at most; 0 is for ever.
	Patience time.Duration
	// Expect is called for each At before it is created or edited.
	Expect func(Arrival)
	// Sent is called for each At once the API server has accepted it.
	Sent func(Arrival)
}

// Outcome is how the generator did.
type Outcome struct {
	Start, End time.Time
	Arrivals   int
	Lateness   stats.Latencies
}

// Begin returns the time at which a load that is given now would start to count.
func (g *Generator) Begin(arrivals int) time.Time {
	start := time.Now().Add(20 * time.Millisecond) // so that the first is not late already
	if g.Load.Due == scenario.DueTogether {
		// Far below what an API server creates in a second, so that all are there in time.
		return start.Add(2*time.Second + time.Duration(arrivals)*3*time.Millisecond).Truncate(time.Second)
	}
	return start.Add(g.Load.Edit.D())
}

// Run sends the load. start is a time that Begin returned, and offsets are the times of the arrivals after it. It
// returns once everything was sent and answered. An error of the API server ends it.
func (g *Generator) Run(ctx context.Context, start time.Time, offsets []time.Duration) (*Outcome, error) {
	if g.Load.Due == scenario.DueTogether {
		return g.together(ctx, start, len(offsets))
	}
	o := &Outcome{Start: start, Arrivals: len(offsets)}
	request := func(ctx context.Context, s step) error {
		return s.cluster.createAt(ctx, g.Namespace, s.name, stamp(s.at))
	}
	var wg sync.WaitGroup
	var createErr error
	switch {
	case g.Load.Kind == scenario.Deployments:
		request = func(ctx context.Context, s step) error { return s.cluster.createDeployment(ctx, g.Namespace, s.name) }
	case g.Load.Edit > 0:
		creates := g.steps(start.Add(-g.Load.Edit.D()), offsets)
		wg.Go(func() {
			createErr = g.each(ctx, creates, nil, func(ctx context.Context, s step) error {
				return s.cluster.createAt(ctx, g.Namespace, s.name, stamp(s.at.Add(Far)))
			})
		})
		request = func(ctx context.Context, s step) error {
			return s.cluster.patchAt(ctx, g.Namespace, s.name, object{"spec": object{"schedule": stamp(s.at)}})
		}
	}
	err := g.each(ctx, g.steps(start, offsets), o, func(ctx context.Context, s step) error {
		return g.arrive(s, s.at, func() error { return request(ctx, s) })
	})
	wg.Wait()
	o.End = time.Now()
	return o, errors.Join(createErr, err)
}

// together creates everything first, due at one whole second later on. The load starts then.
func (g *Generator) together(ctx context.Context, due time.Time, n int) (*Outcome, error) {
	err := g.createAll(ctx, n, due)
	o := &Outcome{Start: due, End: due, Arrivals: n}
	o.Lateness.Add(max(0, time.Since(due)))
	if err == nil {
		err = lab.Sleep(ctx, time.Until(due))
	}
	return o, err
}

// Preload creates Ats that are not due. If the load changes them it suspends them, because a change of an At that
// only waits for its time causes no reconcile. With over they look as if they had been served, so that no fleet is
// sent their changes.
func (g *Generator) Preload(ctx context.Context, over bool) error {
	due := stamp(time.Now().Add(Far))
	return g.each(ctx, g.steps(time.Now(), make([]time.Duration, g.Load.Preload)), nil,
		func(ctx context.Context, s step) error {
			err := s.cluster.createAt(ctx, g.Namespace, s.name, due)
			if err == nil && g.Load.Changes > 0 {
				err = s.cluster.patchAt(ctx, g.Namespace, s.name, object{"spec": object{"suspend": true}})
			}
			if err == nil && over {
				err = s.cluster.patchAt(ctx, g.Namespace, s.name+"/status", object{"status": object{"phase": "DONE", "over": true}})
			}
			return err
		})
}

// Change changes the preloaded Ats, one after the other, at equal distances from start on for as long as the load
// lasts.
func (g *Generator) Change(ctx context.Context, start time.Time) (*Outcome, error) {
	offsets := Offsets(scenario.Load{Arrivals: scenario.Constant, Rate: g.Load.Changes, Duration: g.Load.Duration}, nil)
	o := &Outcome{Start: start, Arrivals: len(offsets)}
	steps := g.steps(start, offsets)
	for i := range steps {
		steps[i].cluster, steps[i].name = steps[i%g.Load.Preload].cluster, steps[i%g.Load.Preload].name
	}
	err := g.each(ctx, steps, o, func(ctx context.Context, s step) error {
		return s.cluster.patchAt(ctx, g.Namespace, s.name,
			object{"metadata": object{"annotations": object{"bench.tenure.dev/changed": stamp(s.at)}}})
	})
	o.End = time.Now()
	return o, err
}

// Pile creates n Ats that are all due at one time, a moment after the last was created, and returns that time.
func (g *Generator) Pile(ctx context.Context, n int) (due time.Time, err error) {
	due = time.Now().Add(3*time.Second + time.Duration(n)*3*time.Millisecond).Truncate(time.Second)
	return due, g.createAll(ctx, n, due)
}

// createAll creates n Ats at once, all due at one time.
func (g *Generator) createAll(ctx context.Context, n int, due time.Time) error {
	return g.each(ctx, g.steps(time.Now(), make([]time.Duration, n)), nil, func(ctx context.Context, s step) error {
		return g.arrive(s, due, func() error { return s.cluster.createAt(ctx, g.Namespace, s.name, stamp(due)) })
	})
}

// step is one request at its time.
type step struct {
	at      time.Time
	cluster *Cluster
	name    string
}

func (g *Generator) steps(start time.Time, offsets []time.Duration) []step {
	out := make([]step, len(offsets))
	for i, offset := range offsets {
		out[i] = step{at: start.Add(offset), cluster: g.Clusters[i%len(g.Clusters)], name: fmt.Sprintf("at-%07d", i)}
	}
	return out
}

// arrive makes the request of an At's arrival, and calls Expect before it and Sent after it.
func (g *Generator) arrive(s step, due time.Time, request func() error) error {
	a := Arrival{Ref: Ref{s.cluster.Name, g.Namespace, s.name}, Intended: due, Due: due.Truncate(time.Microsecond)}
	a.Sent = time.Now()
	g.Expect(a)
	if err := request(); err != nil {
		return err
	}
	a.Answered = time.Now()
	g.Sent(a)
	return nil
}

// each makes the requests, each at its time, by as many clients as the load allows. o may be nil.
func (g *Generator) each(ctx context.Context, steps []step, o *Outcome, do func(context.Context, step) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan step, len(steps))
	var mu sync.Mutex // guards o
	var wg sync.WaitGroup
	for range min(g.Load.Clients, len(steps)) {
		wg.Go(func() {
			for s := range work {
				if g.Window != nil {
					if err := g.enter(ctx); err != nil {
						cancel(err)
						return
					}
					s.at = time.Now()
				}
				if o != nil {
					late := time.Since(s.at)
					mu.Lock()
					o.Lateness.Add(late)
					mu.Unlock()
				}
				if err := do(ctx, s); err != nil && ctx.Err() == nil {
					cancel(fmt.Errorf("asking for At %s in cluster %s: %w", s.name, s.cluster.Name, err))
				}
				if ctx.Err() != nil {
					return
				}
			}
		})
	}
	for _, s := range steps {
		if lab.Sleep(ctx, time.Until(s.at)) != nil {
			break
		}
		work <- s // never blocks: there is room for all
	}
	close(work)
	wg.Wait()
	return context.Cause(ctx)
}

// enter puts a token into the window of a closed load.
func (g *Generator) enter(ctx context.Context) error {
	var over <-chan time.Time
	if g.Patience > 0 {
		over = time.After(g.Patience)
	}
	select {
	case g.Window <- struct{}{}:
		return nil
	case <-over:
		return fmt.Errorf("none of the %d Ats under way became DONE for %v", cap(g.Window), g.Patience)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stamp writes a time as an At's schedule.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z07:00") }

// Delete deletes an At of the load.
func (g *Generator) Delete(ctx context.Context, ref Ref) error {
	for _, c := range g.Clusters {
		if c.Name != ref.Cluster {
			continue
		}
		if err := c.deleteAt(ctx, ref.Namespace, ref.Name); err != nil {
			return fmt.Errorf("deleting At %s in cluster %s: %w", ref.Name, ref.Cluster, err)
		}
	}
	return nil
}
