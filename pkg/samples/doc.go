// Package samples records, for one controller, when each key became ready, when a worker took it and when the worker
// was done with it: one record per reconcile, in a file, for benchmarks.
//
//	file, err := samples.Create(path)
//	options.NewQueue = func(name string, limiter workqueue.TypedRateLimiter[R]) workqueue.TypedRateLimitingInterface[R] {
//		return samples.NewQueue(file, key, limiter, func(l workqueue.TypedRateLimiter[R]) priorityqueue.PriorityQueue[R] { ... })
//	}
//
// Histograms answer the questions that they were made for; raw samples answer those that come up later. Each is
// written at once, so that a process that is killed loses none.
//
// # Considerations
//
// A key becomes ready when it is added or, if it was added for later, when its delay is over; of several additions the
// earliest counts, as in the queue itself. The queue remembers that time for each key that waits, also for those that
// wait for hours: at a million timers turn samples off, or they are what is measured.
//
// Times are of the wall clock, in nanoseconds; readers on the same machine can hold them against their own. A clock
// step during a run spoils them.
package samples
