//go:build race

package lab

// RaceDetector reports whether this program was built with it. A test builds its replicas as it was built itself.
const RaceDetector = true
