package run

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/stats"
	"github.com/tenure-dev/tenure/test/lab"
)

// sampleEvery is how often the replicas' metrics are read during a load, and idleSampleEvery where none comes. It costs
// a replica some 3 ms each time, a seventh of all that one of three does for 300 idle clusters.
const (
	sampleEvery     = 2 * time.Second
	idleSampleEvery = 15 * time.Second
)

// watcher reads the replicas' metrics while a load runs. What a replica has counted is taken from its last answer,
// which for one that was killed is up to two seconds old.
type watcher struct {
	fleet *fleet
	start time.Time

	mu    sync.Mutex // guards all below
	first map[*process]lab.Metrics
	last  map[*process]lab.Metrics
	depth map[string][]stats.Point
	// silent are the errors of replicas that didn't answer when they were asked last; unread those of the baseline.
	silent map[*process]error
	unread error
}

func newWatcher(f *fleet, start time.Time) *watcher {
	return &watcher{
		fleet: f, start: start, first: map[*process]lab.Metrics{}, last: map[*process]lab.Metrics{},
		depth: map[string][]stats.Point{}, silent: map[*process]error{},
	}
}

// baseline reads every replica once, before the load.
func (w *watcher) baseline(ctx context.Context) {
	w.read(ctx)
	w.rebase()
}

// rebase takes what was read so far as what there was before the load.
func (w *watcher) rebase() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.first = maps.Clone(w.last)
	w.unread = errors.Join(slices.Collect(maps.Values(w.silent))...)
}

// run reads until the context ends.
func (w *watcher) run(ctx context.Context, every time.Duration) {
	for lab.Sleep(ctx, every) == nil {
		w.read(ctx)
	}
}

func (w *watcher) read(ctx context.Context) {
	for _, p := range w.fleet.live() {
		if !p.scraped {
			continue
		}
		page, err := w.ask(ctx, p)
		// A replica that is just starting or ending need not answer.
		if err == nil || time.Since(p.Started) > 5*time.Second && !p.Ended() && !p.Asked() && ctx.Err() == nil {
			w.note(p, page, err)
		}
	}
}

// note keeps a replica's answer, or why there is none. A later answer makes up for that.
func (w *watcher) note(p *process, page lab.Metrics, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.silent[p] = err
		return
	}
	delete(w.silent, p)
	w.last[p] = page
	if depth, missing := page.Sum("workqueue_depth", map[string]string{"name": w.fleet.controller()}); missing == nil {
		w.depth[p.Name] = append(w.depth[p.Name], stats.Point{X: time.Since(w.start).Seconds(), Y: depth})
	}
}

// ask reads a replica's metrics. One that takes longer than that doesn't answer.
func (w *watcher) ask(ctx context.Context, p *process) (lab.Metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return p.Metrics(ctx)
}

// delta is by how much a metric grew at each replica, in the order of the given processes.
func (w *watcher) delta(processes []*process, name string, labels map[string]string) ([]float64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	silent := slices.Collect(maps.Values(w.silent))
	if err := errors.Join(append(silent, w.unread)...); err != nil {
		return nil, err
	}
	out := make([]float64, 0, len(processes))
	for _, p := range processes {
		last, ok := w.last[p]
		if !ok {
			continue // lived for less than two seconds: nothing is known of it
		}
		value, err := last.Sum(name, labels)
		if err != nil {
			return nil, err
		}
		if first, ok := w.first[p]; ok {
			before, err := first.Sum(name, labels)
			if err != nil {
				return nil, err
			}
			value -= before
		}
		out = append(out, value)
	}
	return out, nil
}

// depths is the queues' depth over time.
func (w *watcher) depths() []report.Series {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []report.Series
	for _, name := range sortedKeys(w.depth) {
		out = append(out, report.Series{Name: name, Points: w.depth[name]})
	}
	return out
}
