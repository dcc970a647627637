// Package must ends a test whose own steps fail, or that waits in vain.
package must

import (
	"testing"
	"time"
)

// Succeed ends the test if err isn't nil.
func Succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Until waits until it holds, and ends the test after a minute in vain. It is for what real connections, programs and
// goroutines do in their own time: what a test can control needs no wait.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within a minute: ", what)
		}
	}
}
