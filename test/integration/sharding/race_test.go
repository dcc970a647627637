//go:build race

package sharding

// raceDetector: the replicas are built as the test is.
const raceDetector = true
