//go:build race

package engage

// raceDetector says that the race detector watches. It takes what two ends of a connection in one process tell each
// other for synchronisation, but only of package net's own connections.
const raceDetector = true
