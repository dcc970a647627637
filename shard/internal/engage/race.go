//go:build race

package engage

// raceDetector reports whether the race detector is on. The race detector takes messages between the two ends of a
// connection in one process for synchronisation, but only on package net's own connections.
const raceDetector = true
