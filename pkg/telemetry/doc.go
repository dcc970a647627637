// Package telemetry makes reconciles visible: a trace for each in OpenTelemetry, and what Prometheus needs beyond
// controller-runtime's own metrics. Package handoff, below, does the same for the moves of shards.
//
// # Setup
//
//	settings, err := telemetry.ReadSettings(os.Getenv) // OTEL_*; one clear error for all that is wrong
//	exporter, err := telemetry.NewExporter(ctx, settings)
//	tel, err := telemetry.New(telemetry.Config{Settings: settings, Exporter: exporter, Replica: name, Log: log, Registerer: metrics.Registry})
//	go tel.Run(ctx)                                    // sends; returns after a last flush
//
//	tel.Wrap(config)                                   // a span per API call, traceparent sent
//	c := tel.Controller("at", "At")
//	mcbuilder.ControllerManagedBy(mgr).Named("at").
//		WithOptions(c.Options(options, perCluster)).   // a fair queue that knows how long each key waited; logs carry trace ids
//		Complete(mgr.Guard(c.Traced(reconciler)))
//	at.Config{Clusters: tel.Clusters(mgr)}             // links each reconcile to the one that caused it
//
// # A reconcile's trace
//
// The root span reaches from the moment when its key was ready to the end of the reconcile. Its children are the wait in
// the queue and each API call. What is written down meanwhile is a plain record; spans are made of it afterwards, by the
// goroutine that sends them. So the decision whether a trace is kept can be made at its end, and a trace that isn't kept
// costs some two microseconds of processor time, one that couldn't have been kept a fraction of one (see BenchmarkHotPath).
//
// Kept are
//   - the share that OTEL_TRACES_SAMPLER asks for (default: all). Only these send a traceparent, since only at the start
//     it can be decided what API servers and etcd are to record. They do so for clients in system:masters and
//     system:monitoring (KEP-647). For all others it goes without the flag "sampled", which would only make API servers
//     put exemplars on their metrics;
//   - reconciles that fail or take longer than [Config].Slow, whatever the sampler says, at most [maxTailKept] a second
//     so that a failing cluster doesn't become a flood. Their API calls are there, the API servers' own spans are not.
//
// A collector can't do better for the second kind without being sent everything. Who wants more of it sets the sampler
// to always_on and decides in the collector.
//
// Links lead to the cause: the status that a traced reconcile writes names its trace, where the kind has a field for it
// ([Stamped]), and the last few thousand writes are remembered in memory. Neither costs a write.
//
// # Considerations
//
// Nothing here waits for the collector: what it doesn't take is dropped and counted
// (tenure_trace_spans_dropped_total), and the log says so once, and once when it works again.
//
// Without an exporter all of it is off: no span, no allocation. The metrics remain.
//
// Nothing that could hold a secret is recorded: no header, no body, no query and no text of an error, only its kind.
package telemetry
