package expect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
)

// recorder notes what a test would be failed with.
type recorder []string

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) { *r = append(*r, fmt.Sprintf(format, args...)) }

func TestOnlyADifferenceFailsTheTest(t *testing.T) {
	var r recorder
	Equal(&r, "the same", []int{1}, []int{1})
	Equal(&r, "the same but for an option", []int{}, []int(nil), cmpopts.EquateEmpty())
	if len(r) > 0 {
		t.Errorf("it failed without a difference: %q", r)
	}
	Equal(&r, "replicas", 3, 5)
	Equal(&r, "of two types", 3, int64(3))
	if len(r) != 2 || !strings.HasPrefix(r[0], "replicas (-want +got):\n") || !strings.Contains(r[0], "5") {
		t.Errorf("it failed with %q", r)
	}
}
