// Package stats summarises measurements: percentiles of durations by HDR histograms, and ratios of two series of rounds
// with bootstrap confidence intervals. It is pure. The benchmarks and their tools call it.
package stats
