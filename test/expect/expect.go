// Package expect compares what a test got with what it wants. A test goes on after a difference: see package must.
package expect

import "github.com/google/go-cmp/cmp"

// Equal fails the test if want and got differ. The message begins with what is compared, or what is wrong then.
func Equal(t tester, what string, want, got any, opts ...cmp.Option) {
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		t.Helper()
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// tester is the part of testing.TB that rapid's T has, too.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
}
