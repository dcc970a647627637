package stats

import (
	"math"
	"math/rand/v2"
	"slices"
)

// fewest rounds that have an interval.
const fewest = 4

// Confidence of the intervals.
const Confidence = 0.95

// degenerate is by how much smaller than the rounds' own a resample's error must be to be left out.
const degenerate = 100

// resamples of the bootstrap: enough for two digits of a 95 % interval.
const resamples = 4000

// Ratio is one figure of the fleet over the same of a reference.
type Ratio struct {
	Value float64 `json:"value"`
	// Low and High bound it with a confidence of 95 %. They are absent below four rounds: there is nothing to
	// estimate the spread from.
	Low  *float64 `json:"low,omitempty"`
	High *float64 `json:"high,omitempty"`
	// Rounds is the number of rounds that are behind it.
	Rounds int `json:"rounds"`
}

// Compare takes the figures of rounds that were run in turns, the i-th of ours beside the i-th of theirs, and returns
// the geometric mean of the ratios. Pairing takes out what changes slowly on a machine, such as its temperature and its
// neighbours; the geometric mean makes the ratio of the one to the other the inverse of that of the other to the one.
//
// The interval is a bootstrap over the rounds' log ratios, studentised (bootstrap-t): the plain percentile interval of
// few rounds is too narrow. ok is false where a figure is missing or not positive.
func Compare(ours, theirs []float64, rng *rand.Rand) (r Ratio, ok bool) {
	n := len(ours)
	if n == 0 || n != len(theirs) {
		return Ratio{}, false
	}
	logs := make([]float64, n)
	for i := range ours {
		if !(ours[i] > 0) || !(theirs[i] > 0) {
			return Ratio{}, false
		}
		logs[i] = math.Log(ours[i] / theirs[i])
	}
	mean, err := meanAndError(logs)
	r = Ratio{Value: math.Exp(mean), Rounds: n}
	if n < fewest {
		return r, true
	}
	low, high := studentised(logs, mean, err, rng)
	low, high = math.Exp(low), min(math.Exp(high), math.MaxFloat64) // JSON has no infinity
	r.Low, r.High = &low, &high
	return r, true
}

// studentised returns the bootstrap-t interval of a mean.
func studentised(values []float64, mean, err float64, rng *rand.Rand) (low, high float64) {
	if err == 0 {
		return mean, mean
	}
	sample := make([]float64, len(values))
	scores := make([]float64, 0, resamples)
	for range resamples {
		for i := range sample {
			sample[i] = values[rng.IntN(len(values))]
		}
		m, e := meanAndError(sample)
		if e > err/degenerate { // (nearly) all alike: it says nothing about the spread, and would divide by nothing
			scores = append(scores, (m-mean)/e)
		}
	}
	slices.Sort(scores)
	at := func(q float64) float64 { return scores[int(q*float64(len(scores)-1))] }
	tail := (1 - Confidence) / 2
	return mean - at(1-tail)*err, mean - at(tail)*err
}

// meanAndError returns the mean and its standard error.
func meanAndError(values []float64) (mean, err float64) {
	for _, v := range values {
		mean += v
	}
	n := float64(len(values))
	mean /= n
	if n < 2 {
		return mean, 0
	}
	var sum float64
	for _, v := range values {
		sum += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(sum / (n - 1) / n)
}
