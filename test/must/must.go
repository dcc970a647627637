// Package must ends a test whose own steps fail.
package must

import "testing"

// Succeed ends the test if err isn't nil.
func Succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
