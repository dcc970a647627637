//go:build !race

package sharding

const raceDetector = false
