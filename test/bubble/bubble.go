// Package bubble runs subtests whose time is that of testing/synctest.
package bubble

import (
	"testing"
	"testing/synctest"
)

// Run runs a subtest in a bubble of its own.
func Run(t *testing.T, name string, f func(t *testing.T)) bool {
	return t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}
