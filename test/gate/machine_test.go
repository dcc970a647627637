package main

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/must"
)

func TestWhatAMachineLacksIsSaidBeforeAnythingIsBuilt(t *testing.T) {
	must.Succeed(t, lacks(t.Context(), nil))
	t.Setenv("CC", "no-such-compiler")
	t.Setenv("GIT_DIR", t.TempDir())
	err := lacks(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), `"no-such-compiler"`) || !strings.Contains(err.Error(), "git") {
		t.Errorf("without a compiler and a clone it says: %v", err)
	}
}
