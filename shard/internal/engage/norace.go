//go:build !race

package engage

const raceDetector = false
