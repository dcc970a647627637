// Package samples keeps, in a file, when each key became ready, when a worker took it and when the worker was done with
// it: one record per reconcile, for benchmarks. Package telemetry measures them.
//
//	file, err := samples.Create(path)
//	telemetry.Config{..., Reconciled: func(r telemetry.Reconciled) { file.Add(...) }}
//
// Histograms answer the questions that they were made for; raw samples answer those that come up later. Each is
// written at once, so that a process that is killed loses none.
//
// # Considerations
//
// Times are of the wall clock, in nanoseconds; readers on the same machine can hold them against their own. A clock
// step during a run spoils them.
package samples
