package main

import (
	"strings"
	"testing"
)

func TestOnlyCodeCountsAndALongLineCountsAsTheLinesItFills(t *testing.T) {
	long := "var x = \"" + strings.Repeat("é", 2*width) + "\"\n"
	for name, c := range map[string]struct {
		source    string
		lines     int
		wide      int
		unchanged bool
	}{
		"comments and blanks": {"// C.\npackage p\n\n/* D */\n\nvar x = 1 // F\n", 2, 0, true},
		"a raw string":        {"package p\n\nvar x = `a\n\n// b\n`\n", 4, 0, true},
		"a wide line":         {"package p\n\n" + long, 4, 1, true},
		"a wide comment":      {"package p\n\n// " + long, 1, 1, true},
		"a wide raw string":   {"package p\n\nvar x = `\n" + long + "`\n", 6, 0, true},
		"a wide marker":       {"package p\n\n// +kubebuilder:validation:" + long, 1, 0, true},
		"not gofmt-ed":        {"package p\nvar  x=1\n", 2, 0, false},
	} {
		if f := count([]byte(c.source)); f.lines != c.lines || len(f.wide) != c.wide || f.formatted != c.unchanged {
			t.Errorf("%s: %d lines, wide %v, gofmt-ed %v; want %d, %d, %v", name, f.lines, f.wide, f.formatted, c.lines,
				c.wide, c.unchanged)
		}
	}
}

func TestWithoutACloneItSaysWhatIsMissing(t *testing.T) {
	t.Setenv("GIT_DIR", t.TempDir())
	err := run("", false, t.Output())
	if err == nil || !strings.Contains(err.Error(), "takes git and a clone") ||
		!strings.Contains(err.Error(), "not a git repository") {
		t.Errorf("outside of a clone it says: %v", err)
	}
}

func TestCodeIsProductTestOrMachineryByItsPlace(t *testing.T) {
	for name, want := range map[string]string{
		"shard/node.go": product, "cmd/tenure/main.go": product, "shard/plan/plan_test.go": unitTests,
		"cmd/demo/judge_test.go": machinery, "shard/shardtest/sim.go": machinery, "test/lab/fleet.go": machinery,
	} {
		if got := kind(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
