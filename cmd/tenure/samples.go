package main

import (
	"context"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/pkg/samples"
	"github.com/tenure-dev/tenure/pkg/telemetry"
)

// createSamples makes the file that gets one sample for each reconcile, nil if none was asked for.
func (o *options) createSamples() (*samples.File, error) {
	if o.benchSamples == "" {
		return nil, nil
	}
	return samples.Create(o.benchSamples)
}

// sampleOf names the object by its real cluster, whatever shard it is seen through.
func sampleOf(r telemetry.Reconciled) samples.Sample {
	cluster, _, _ := strings.Cut(string(r.Request.ClusterName), "/")
	return samples.Sample{
		Key:   samples.KeyOf(cluster, r.Request.Namespace, r.Request.Name),
		Ready: r.Ready, Start: r.Start, End: r.End, ReadyUnknown: r.ReadyUnknown, Backfill: r.Backfill,
	}
}

// takeTurns traces nothing, some and all reconciles in turns until the context ends, so that a benchmark can hold the
// turns against each other.
func (s *sight) takeTurns(ctx context.Context, length, slow time.Duration) {
	for {
		turn := samples.TurnAt(time.Now(), length, len(samples.TracingTurns))
		ratio := samples.TracingTurns[turn.Slot].Ratio
		keep := slow
		if ratio == 0 {
			keep = 0
		}
		s.SetSampling(ratio, keep)
		select {
		case <-time.After(time.Until(turn.To)):
		case <-ctx.Done():
			return
		}
	}
}
