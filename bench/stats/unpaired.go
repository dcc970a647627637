package stats

import (
	"math"
	"slices"
)

// CompareUnpaired takes the figures of rounds that were run at different times, and returns how much larger ours are:
// the median of all ratios of one of ours to one of theirs (Hodges and Lehmann's estimate), with the interval that the
// rank-sum test (Mann and Whitney) gives. It assumes nothing about how figures are distributed, and a disturbed round
// or two don't hide a difference that all others show. ok is false where a figure is missing or not positive.
func CompareUnpaired(ours, theirs []float64) (r Ratio, ok bool) {
	n, m := len(ours), len(theirs)
	logs := make([]float64, 0, n*m)
	for _, a := range ours {
		for _, b := range theirs {
			if !(a > 0) || !(b > 0) {
				return Ratio{}, false
			}
			logs = append(logs, math.Log(a/b))
		}
	}
	if len(logs) == 0 {
		return Ratio{}, false
	}
	slices.Sort(logs)
	middle := (logs[(len(logs)-1)/2] + logs[len(logs)/2]) / 2
	r = Ratio{Value: math.Exp(middle), Rounds: min(n, m)}
	if cut := rankCut(n, m); cut > 0 {
		r.Low, r.High = new(math.Exp(logs[cut-1])), new(math.Exp(logs[len(logs)-cut]))
	}
	return r, true
}

// rankCut is how many of the n times m sorted ratios lie outside of the interval at each end, plus one; 0 if there are
// too few for any interval.
func rankCut(n, m int) int {
	tail := (1 - Confidence) / 2
	if n > 40 || m > 40 { // the normal approximation is exact enough then
		mean, spread := float64(n*m)/2, math.Sqrt(float64(n*m*(n+m+1))/12)
		return int(mean - math.Sqrt2*math.Erfinv(Confidence)*spread)
	}
	ways := rankSums(n, m)
	var all, below float64
	for _, w := range ways {
		all += w
	}
	for u, w := range ways {
		if below += w; below/all > tail {
			return u
		}
	}
	return 0
}

// rankSums counts, for each value of the rank-sum statistic, in how many ways n and m figures can be in order.
func rankSums(n, m int) []float64 {
	// The product of (1-x^(m+i))/(1-x^i) for i from 1 to n, as a polynomial.
	ways := make([]float64, n*m+1)
	ways[0] = 1
	for i := 1; i <= n; i++ {
		for u := len(ways) - 1; u >= m+i; u-- {
			ways[u] -= ways[u-m-i]
		}
		for u := i; u < len(ways); u++ {
			ways[u] += ways[u-i]
		}
	}
	return ways
}
