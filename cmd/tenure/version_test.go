package main

import (
	"io"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/must"
)

func TestAVersionThatCannotBePrintedIsAFailure(t *testing.T) {
	reader, to := io.Pipe()
	must.Succeed(t, reader.Close())
	if code := run(t.Context(), []string{"version"}, noEnv, to, io.Discard); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
}

func TestTheVersionNamesCommitAndTime(t *testing.T) {
	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	for name, c := range map[string]struct {
		info *debug.BuildInfo
		want string
	}{
		"a release": {
			&debug.BuildInfo{Settings: []debug.BuildSetting{setting("vcs.revision", "abc"),
				setting("vcs.time", "2026-01-02T03:04:05Z")}},
			"tenure devel (abc, 2026-01-02T03:04:05Z, go",
		},
		"with changes": {&debug.BuildInfo{Settings: []debug.BuildSetting{setting("vcs.revision", "abc"),
			setting("vcs.modified", "true")}}, "(abc, changed, go"},
		"outside of git":   {&debug.BuildInfo{}, "(unknown commit, go"},
		"nothing is known": {nil, "(unknown commit, go"},
	} {
		if got := stamp(c.info, c.info != nil); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q in it", name, got, c.want)
		}
	}
}
