package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/must"
)

func TestTheLastReplicasMustLeaveInOrder(t *testing.T) {
	start := func(script string) *lab.Replica {
		t.Helper()
		r, err := lab.StartProgram(lab.Program{Name: "r", Binary: "/bin/sh", LogPath: filepath.Join(t.TempDir(), "log"),
			Args: func([]string) []string { return []string{"-c", script} }})
		must.Succeed(t, err)
		return r
	}
	good, bad := start("exit 0"), start("exit 3")
	processes := []*lab.Replica{good, bad}
	for name, c := range map[string]struct {
		last []*lab.Replica
		want string
	}{
		"nothing is asked of earlier ones": {nil, ""},
		"one failed":                       {[]*lab.Replica{bad}, "ended by itself"},
		"one ended though nobody asked":    {[]*lab.Replica{good}, "ended by itself"},
	} {
		err := ends(processes, c.last, 10*time.Second)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestWhatFailsIsRepeatedForATime(t *testing.T) {
	down, calls := errors.New("down"), 0
	err := persist(t.Context(), 30*time.Millisecond, time.Millisecond, func(context.Context) error { return down })
	if !errors.Is(err, down) {
		t.Errorf("what never succeeds: %v", err)
	}
	err = persist(t.Context(), time.Minute, time.Millisecond, func(context.Context) error {
		if calls++; calls < 3 {
			return down
		}
		return nil
	})
	if err != nil || calls != 3 {
		t.Errorf("what succeeds at the third try: %v after %d", err, calls)
	}
}

func TestAnArgumentThatIsNoFlagIsRefused(t *testing.T) {
	if _, err := parse([]string{"storm"}); err == nil || !strings.Contains(err.Error(), "--scenario") {
		t.Errorf("chaos: %v", err)
	}
	var out strings.Builder
	if code := runGates(t.Context(), []string{"late-at"}, &out); code != 2 || !strings.Contains(out.String(), "--only") {
		t.Errorf("gates: exit code %d, %s", code, out.String())
	}
}

func TestMovesAtRestAreChurnUnlessAReplicaLapsed(t *testing.T) {
	planned := lab.Line{Msg: "shard active", Kind: protocol.Planned, Shard: "west/0"}
	crash, lapse := planned, lab.Line{Msg: "incarnation lapsed: stopping everything it held"}
	crash.Kind = protocol.Crash
	for _, c := range []struct {
		lines []lab.Line
		churn bool
	}{
		{nil, false}, {[]lab.Line{planned}, true}, {[]lab.Line{crash}, true}, {[]lab.Line{planned, crash}, true},
		{[]lab.Line{lapse}, false}, {[]lab.Line{lapse, crash, planned}, false}, {[]lab.Line{lapse, planned}, true},
	} {
		if err := churn(c.lines); (err != nil) != c.churn {
			t.Errorf("%v: %v", c.lines, err)
		}
	}
}
