//go:build !race

package lab

// RaceDetector tells whether this program was built with it: a test's replicas are built as the test is.
const RaceDetector = false
