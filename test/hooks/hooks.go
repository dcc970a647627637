// Package hooks gives a replica the functions that only benchmarks and chaos tests use: reconciles that are made to
// take a stated time, a file with one record for each reconcile, sampling of traces that changes in turns, and
// planted faults, which the tests have to detect. Command tenure imports it only if it is built with `-tags lab`. In
// any other build cmd/tenure/hooks.go has functions of the same names that do nothing.
package hooks

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/bench/samples"
	"github.com/tenure-dev/tenure/pkg/at"
	"github.com/tenure-dev/tenure/pkg/telemetry"
)

// Hooks are those of one replica. The zero value asks for nothing. Everything but Declare may be called concurrently.
type Hooks struct {
	work, turns time.Duration
	samples     string // path
	file        *samples.File
	plant       plant
}

// flagSet is what Declare needs of the standard library's flags, or of others that are like them.
type flagSet interface {
	StringVar(p *string, name, value, usage string)
	DurationVar(p *time.Duration, name string, value time.Duration, usage string)
}

// Declare adds the flags.
func (h *Hooks) Declare(fs flagSet) {
	fs.DurationVar(&h.work, "injected-work", 0, "time that each reconcile of an At is made to take, for benchmarks")
	fs.StringVar(&h.samples, "bench-samples", "", "new `file` that gets one record for each reconcile, for benchmarks")
	fs.DurationVar(&h.turns, "bench-tracing-turns", 0,
		"with tracing on: trace nothing, one in a hundred and all reconciles in turns of this length, for benchmarks; 0 for "+
			"no turns")
	fs.StringVar(&h.plant.name, "plant", "", "`fault` that this replica commits: "+strings.Join(names(), ", "))
}

// Validate names the flag that makes no sense.
func (h *Hooks) Validate() error {
	switch {
	case h.work < 0:
		return fmt.Errorf("--injected-work %v: must not be negative", h.work)
	case h.turns < 0:
		return fmt.Errorf("--bench-tracing-turns %v: must not be negative", h.turns)
	}
	return h.plant.validate()
}

// Open prepares what the flags ask for.
func (h *Hooks) Open() (err error) {
	if h.samples != "" {
		h.file, err = samples.Create(h.samples)
	}
	return err
}

// Close reports whether a sample couldn't be written.
func (h *Hooks) Close() error {
	if h.file == nil {
		return nil
	}
	return h.file.Err()
}

// Reconciled takes a sample. It names the object by its real cluster, whatever shard it is seen through.
func (h *Hooks) Reconciled(r telemetry.Reconciled) {
	if h.file == nil {
		return
	}
	cluster, _, _ := strings.Cut(string(r.Request.ClusterName), "/")
	h.file.Add(samples.Sample{
		Key:   samples.KeyOf(cluster, r.Request.Namespace, r.Request.Name),
		Ready: r.Ready, Start: r.Start, End: r.End, ReadyUnknown: r.ReadyUnknown, Backfill: r.Backfill,
	})
}

// Run does everything that goes on in the background, until the context ends. With turns it traces no reconciles,
// some, and all of them in turns, so that a benchmark can compare the turns. slow is the replica's own
// --trace-slow.
func (h *Hooks) Run(ctx context.Context, sample func(ratio float64, slow time.Duration), slow time.Duration) {
	go h.plant.run(ctx)
	for h.turns > 0 {
		turn := samples.TurnAt(time.Now(), h.turns, len(samples.TracingTurns))
		ratio := samples.TracingTurns[turn.Slot].Ratio
		keep := slow
		if ratio == 0 {
			keep = 0
		}
		sample(ratio, keep)
		if wait(ctx, time.Until(turn.To)) != nil {
			return
		}
	}
}

// Clusters makes every reconcile that asks for its cluster take the injected time.
func (h *Hooks) Clusters(inner at.Clusters) at.Clusters {
	if h.work == 0 {
		return inner
	}
	return working{inner, h.work}
}

type working struct {
	at.Clusters
	work time.Duration
}

func (w working) GetCluster(ctx context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	if err := wait(ctx, w.work); err != nil {
		return nil, err
	}
	return w.Clusters.GetCluster(ctx, name)
}

// Clock is the one by which Ats are due.
func (h *Hooks) Clock() clock.PassiveClock { return h.plant.clock() }

// Due returns when to reconcile an At with this due time. The zero time, of an At that waits for none, stays.
func (h *Hooks) Due(due time.Time) time.Time { return h.plant.due(due) }

// Handler returns the handler that the log goes through.
func (h *Hooks) Handler(inner slog.Handler) slog.Handler { return h.plant.handler(inner) }

// Wrap changes what is sent over a connection.
func (h *Hooks) Wrap(config *rest.Config) { h.plant.wrap(config) }

// wait stands for work that takes time but no CPU.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
