package witness

import (
	"slices"
	"time"
)

// SpreadOf sums up durations, which it sorts. Percentiles are by nearest rank, not interpolated.
func SpreadOf(ds []time.Duration) Spread {
	if len(ds) == 0 {
		return Spread{}
	}
	slices.Sort(ds)
	rank := func(p int) float64 { return float64(ds[(len(ds)*p+99)/100-1].Microseconds()) / 1000 }
	return Spread{N: len(ds), P50: rank(50), P99: rank(99), Max: rank(100)}
}

// unrest is how many seconds around a stirring write don't count as steady.
const unrest = 2

// fewest is the lowest number of steady seconds for which a rate is given. Over fewer, the rate depends on when
// renewals happen to fall.
const fewest = 10

// coordination returns the rate of coordination writes in steady seconds.
func (l *ledger) coordination() Coordination {
	var c Coordination
	type life struct{ from, to int64 }
	lives := make(map[string]life)
	restless := make(map[int64]bool)
	for _, w := range l.coords {
		second := w.at / 1e6
		if w.stir {
			for s := second - unrest; s <= second+unrest; s++ {
				restless[s] = true
			}
		}
		if w.replica == "" {
			continue
		}
		c.Writes++
		if v, ok := lives[w.replica]; ok {
			lives[w.replica] = life{min(v.from, second), max(v.to, second)}
		} else {
			lives[w.replica] = life{second, second}
		}
	}
	c.Replicas = len(lives)
	// The first and the last second of a replica may be partial, so they don't count.
	steady := func(v life, second int64) bool { return second > v.from && second < v.to && !restless[second] }
	writes := make(map[string]int)
	total := 0
	for _, w := range l.coords {
		if w.replica != "" && steady(lives[w.replica], w.at/1e6) {
			writes[w.replica]++
			total++
		}
	}
	var worst float64
	for replica, v := range lives {
		seconds := 0
		for s := v.from; s <= v.to; s++ {
			if steady(v, s) {
				seconds++
			}
		}
		c.SteadySeconds += seconds
		if seconds >= fewest {
			worst = max(worst, float64(writes[replica])/float64(seconds))
			c.MaxPerSecond = &worst
		}
	}
	if c.SteadySeconds >= fewest {
		c.PerSecond = new(float64(total) / float64(c.SteadySeconds))
	}
	return c
}
