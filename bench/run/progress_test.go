package run

import (
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/test/expect"
)

func TestTheLineOfProgressNeverWraps(t *testing.T) {
	for columns, want := range map[int]string{200: "[0/1] starting tenure (3 replicas) (0s)", 20: "[0/1] starting tenu"} {
		var out strings.Builder
		p := newProgress(&out, scenario.Scenario{Rounds: 1})
		p.started, p.inPlace, p.columns = time.Now(), true, func() int { return columns }
		p.doing("starting tenure (%d replicas)", 3)
		expect.Equal(t, "the line", "\r\x1b[K"+want, out.String())
	}
}
