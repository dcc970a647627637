// Package telemetry makes reconciles visible: an OpenTelemetry trace for each, and the Prometheus metrics that
// controller-runtime lacks. Programs (cmd/tenure) call it; it doesn't import package shard. Package handoff, below,
// does the same for moves of shards.
//
// # Setup
//
//	settings, err := telemetry.ReadSettings(os.Getenv) // OTEL_*; one clear error for all that is wrong
//	exporter, err := telemetry.NewExporter(ctx, settings)
//	tel := telemetry.New(telemetry.Config{
//		Settings: settings, Exporter: exporter, Replica: name, Log: log, Registerer: metrics.Registry,
//	})
//	go tel.Run(ctx)                                    // sends; returns after a last flush
//
//	tel.Wrap(config)                                   // a span per API call, traceparent sent
//	c := tel.Controller("at", "At")
//	mcbuilder.ControllerManagedBy(mgr).Named("at").
//		WithOptions(c.Options(options, perCluster)).   // a fair queue that times each key; logs carry trace ids
//		Complete(mgr.Guard(c.Traced(reconciler)))
//	at.Config{Clusters: tel.Clusters(mgr)}             // links each reconcile to the one that caused it
//
// # A reconcile's trace
//
// The root span lasts from the moment when its key was ready to the end of the reconcile. Its children are the wait in
// the queue and each API call. During the reconcile only a plain record is kept. The goroutine that sends spans makes
// them from it afterwards. So whether a trace is kept can be decided at its end. A trace that isn't kept costs some two
// microseconds of CPU, and one that couldn't have been kept a fraction of one (see BenchmarkHotPath).
//
// These traces are kept:
//   - The share that OTEL_TRACES_SAMPLER asks for (default: all). Only these send a traceparent, since what API servers
//     and etcd should record must be decided at the start. They record for clients in system:masters and
//     system:monitoring (KEP-647). For all other clients the flag "sampled" isn't set, since it would only make API
//     servers put exemplars on their metrics.
//   - Reconciles that fail or take longer than [Config].Slow, whatever the sampler says, at most [maxTailKept] a second
//     so that a failing cluster doesn't cause a flood. Their traces have the API calls, but not the API servers' spans.
//
// A collector can't do better for the second kind unless it is sent everything. To keep more of it, set the sampler to
// always_on and decide in the collector.
//
// Links lead to the cause. The status that a traced reconcile writes names its trace, if the kind has a field for it
// ([Stamped]), and the last few thousand writes are remembered in memory. Neither costs a write.
//
// # Considerations
//
// Nothing here waits for the collector. Spans that it doesn't accept are dropped and counted
// (tenure_trace_spans_dropped_total). The log says so once, and once more when it works again.
//
// Without an exporter all tracing is off: no spans, no allocations. The metrics remain.
//
// Nothing that could hold a secret is recorded: no header, body, query or error text, only the kind of an error.
package telemetry
