// Package handoff makes the moves of shards visible: one trace per move, across both replicas and the coordinator, and
// the metrics of what a replica holds.
//
// # Setup
//
//	var tel *telemetry.Telemetry
//	h := handoff.NewWatcher(func(spans ...telemetry.Span) { tel.Send(spans...) }) // or nil without tracing
//	tel = telemetry.New(telemetry.Config{..., Reconciled: h.Reconciled})
//	mgr, err := shard.NewManager(..., shard.Config{..., Observer: h})
//	metrics.Registry.MustRegister(h, handoff.NewCollector(mgr.Status))
//
// # The trace of a move
//
// Its id follows from the shard, the epoch that the move leads to and the UID of the shard's record. So each
// participant can add spans without being told an id. The steps are children of the root span, whose id follows in
// the same way. The new holder sends the root span once it has done its first reconcile:
//
//	handoff west/01        new holder
//	├─ plan                coordinator
//	├─ warm                new holder
//	├─ announce warm       new holder
//	├─ drain               old holder
//	├─ hand off            old holder
//	├─ activate            new holder
//	└─ first reconcile     new holder, linked to that reconcile's own trace
//
// After a crash "claim" takes the place of the old holder's part. These traces are always kept, whatever the sampler
// says. A new holder that never gets to serve the shard sends a failed root when it gives it away. If it dies between
// taking over and its first reconcile, the root is missing. Steps are forgotten if nothing follows them for an hour.
//
// # Considerations
//
// Metrics name shards. A replica names at most 1024 of those it holds; tenure_shards_served counts all.
package handoff
