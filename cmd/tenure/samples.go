package main

import (
	"strings"

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
