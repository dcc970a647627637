// Package record measures a fleet while a load is given to it: from outside, by a watch on each cluster and by what
// the kernel knows of the processes, and from inside, by the replicas' samples, metrics and logs.
//
// What is missing is an error, never a zero: a figure that was never taken must not look like a good one.
package record
