// Package stats sums up measurements: percentiles of durations by HDR histograms, and ratios of two series of rounds
// with bootstrap confidence intervals. It is pure.
package stats
