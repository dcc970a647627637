package run

import (
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/lab"
)

func TestACrashGapIsThatOfTheVictimsShardsAndOfNobodyElses(t *testing.T) {
	start := time.Unix(1000, 0)
	after := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	held := func(replica string, at time.Time) []string {
		return map[string][]string{"r1": {"west/0"}, "r2": {"west/1", "east/1"}}[replica]
	}
	active := func(seconds float64, shard string, kind protocol.MoveKind, from string) lab.Line {
		return lab.Line{Time: after(seconds), Shard: shard, Kind: kind, From: from}
	}
	r2 := []lab.Line{
		active(-3, "west/1", protocol.Join, ""), active(5, "west/1", protocol.Crash, "r2-x"),
		active(4, "east/1", protocol.Crash, "r2-x"),
		active(9, "west/1", protocol.Planned, "r3-x"), // a move later on is none of the crash's
	}
	for name, c := range map[string]struct {
		kills []kill
		began []lab.Line
		gaps  []time.Duration
		want  string // in the complaints; "" is none
	}{
		"the victim's two shards": {[]kill{{"r2", start}}, r2, []time.Duration{5 * time.Second, 4 * time.Second}, ""},
		"each kill with its own victim": {
			[]kill{{"r2", start}, {"r1", after(10)}}, append(r2, active(13, "west/0", protocol.Crash, "r1-x")),
			[]time.Duration{5 * time.Second, 4 * time.Second, 3 * time.Second}, "",
		},
		"somebody else lapsed": {
			[]kill{{"r2", start}}, append(r2, active(7, "west/0", protocol.Crash, "r1-x")),
			[]time.Duration{5 * time.Second, 4 * time.Second}, "west/0 was taken from r1-x, which wasn't killed",
		},
		"a lapse without any kill": {nil, r2[1:2], nil, "west/1 was taken from r2-x"},
		"a shard stays unserved": {[]kill{{"r2", start}}, r2[:2], []time.Duration{5 * time.Second},
			"nobody took east/1 over"},
		"the victim had nothing":     {[]kill{{"r9", start}}, nil, nil, "replica r9 held nothing"},
		"nothing was killed or lost": {nil, r2[3:], nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			gaps, complaints := crashGaps(c.kills, held, c.began)
			expect.Equal(t, "gaps", c.gaps, gaps)
			if got := strings.Join(complaints, "\n"); c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("complaints %q, want %q", got, c.want)
			}
		})
	}
}
