package run

import (
	"slices"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/bench/samples"
)

func TestOnlyLotsInWhichEachHadItsTurnAreCompared(t *testing.T) {
	const length = time.Second
	contestants := len(samples.TracingTurns)
	start := time.Unix(1_700_000_000, 0)
	for samples.TurnAt(start, length, contestants).Lot == samples.TurnAt(start.Add(-1), length, contestants).Lot {
		start = start.Add(length)
	}
	rate := map[string]float64{"untraced": 100, "sampled": 100, "traced": 80}
	m := &turns{length: length}
	var ends []time.Time
	const lots = 20
	for i := range lots * contestants {
		turn := samples.TurnAt(start.Add(time.Duration(i)*length), length, contestants)
		of := rate[samples.TracingTurns[turn.Slot].Name]
		for j := range int(of) {
			ends = append(ends, turn.From.Add(time.Duration((float64(j)+.5)/of*float64(length))))
		}
		if i == contestants*lots/2 {
			continue // one that was missed: its lot doesn't count
		}
		m.taken = append(m.taken, taken{Turn: turn, from: turn.From.Add(settle), to: turn.To, replicas: 70 * time.Millisecond,
			servers: 140 * time.Millisecond})
	}
	got := m.rounds(ends)
	for name, want := range rate {
		// A tenth at each end, where not everybody is busy, is left out; what is left is 16 lots, less two that were cut
		// by that, and the one that wasn't whole.
		if n := len(got[name]); n < lots*8/10-3 || n >= lots*8/10 {
			t.Errorf("%s: %d rounds of %d lots", name, n, lots)
		}
		for _, round := range got[name] {
			if has := round.Figures["reconciles_per_s"]; has < want-2 || has > want+2 {
				t.Errorf("%s: %v reconciles per second, want %v", name, has, want)
			}
			n := round.Figures["reconciles_per_s"] * round.Seconds
			replicas, servers := round.Figures["cpu_seconds_per_reconcile"]*n,
				round.Figures["server_cpu_seconds_per_reconcile"]*n
			if replicas < .069 || replicas > .071 || servers < .139 || servers > .141 {
				t.Errorf("%s: %v and %v seconds of CPU", name, replicas, servers)
			}
		}
	}
	if rounds := m.rounds(slices.Clone(ends[:5])); len(rounds) > 0 {
		t.Errorf("rounds of a load that was over at once: %v", rounds)
	}
}
