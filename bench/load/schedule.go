package load

import (
	"math/rand/v2"
	"time"

	"github.com/tenure-dev/tenure/bench/scenario"
)

// Offsets returns when the arrivals of a load come, from its start, in order.
func Offsets(l scenario.Load, rng *rand.Rand) []time.Duration {
	switch l.Arrivals {
	case scenario.Burst, scenario.Closed:
		return make([]time.Duration, l.Count)
	case scenario.Constant:
		n := int(l.Rate * l.Duration.D().Seconds())
		out := make([]time.Duration, n)
		for i := range out {
			out[i] = time.Duration(float64(i) / l.Rate * float64(time.Second))
		}
		return out
	case scenario.Poisson:
		var out []time.Duration
		for t := rng.ExpFloat64() / l.Rate; t < l.Duration.D().Seconds(); t += rng.ExpFloat64() / l.Rate {
			out = append(out, time.Duration(t*float64(time.Second)))
		}
		return out
	}
	return nil
}
