package stats

import (
	"math"
	"math/rand/v2"
	"slices"
)

// fewest is the lowest number of clusters of values for which an interval is given.
const fewest = 4

// Confidence is that of the intervals.
const Confidence = 0.95

// steadiest: a resample's standard error counts as at least the sample's divided by this.
const steadiest = 10

// resamples of the bootstrap: enough for two digits of a 95 % interval.
const resamples = 4000

// Ratio is one figure of the fleet divided by the same figure of a reference, or a figure by itself, with its interval.
type Ratio struct {
	Value float64 `json:"value"`
	// Low and High bound it with a confidence of 95 %. They are absent below four rounds, or below four runs if runs
	// were pooled: the spread can't be estimated from fewer.
	Low  *float64 `json:"low,omitempty"`
	High *float64 `json:"high,omitempty"`
	// Rounds is the number of rounds behind it, Runs the number of pooled runs; 0 for a single run.
	Rounds int `json:"rounds"`
	Runs   int `json:"runs,omitempty"`
}

// Compare takes the figures of rounds that were run in turns, the i-th of ours beside the i-th of theirs, and returns
// the geometric mean of the ratios. Pairing removes what changes slowly on a machine, such as its temperature and other
// load. The geometric mean makes ours over theirs the inverse of theirs over ours.
//
// The interval is a studentised bootstrap (bootstrap-t) over the rounds' log ratios, since the plain percentile
// interval of few rounds is too narrow. ok is false if a figure is missing or not positive.
func Compare(ours, theirs []float64, rng *rand.Rand) (r Ratio, ok bool) {
	logs, ok := logRatios(ours, theirs)
	if !ok {
		return Ratio{}, false
	}
	return ratioOf(each(logs), math.Exp, rng), true
}

// ComparePooled is Compare for the turns of several runs, one list for each run. Runs are resampled whole: the turns of
// one run share a machine and API servers, so many turns of few runs say less than their number suggests. The interval
// needs four runs.
func ComparePooled(ours, theirs [][]float64, rng *rand.Rand) (r Ratio, ok bool) {
	if len(ours) == 0 || len(ours) != len(theirs) {
		return Ratio{}, false
	}
	runs := make([][]float64, len(ours))
	for i := range ours {
		if runs[i], ok = logRatios(ours[i], theirs[i]); !ok {
			return Ratio{}, false
		}
	}
	r = ratioOf(runs, math.Exp, rng)
	r.Runs = len(runs)
	return r, true
}

// Mean returns the mean of independently measured figures, with its interval. ok is false if there are none.
func Mean(values []float64, rng *rand.Rand) (r Ratio, ok bool) {
	if len(values) == 0 || slices.ContainsFunc(values, math.IsNaN) {
		return Ratio{}, false
	}
	return ratioOf(each(values), func(v float64) float64 { return v }, rng), true
}

// each makes every value a cluster of its own.
func each(values []float64) [][]float64 {
	out := make([][]float64, len(values))
	for i := range values {
		out[i] = values[i : i+1]
	}
	return out
}

func logRatios(ours, theirs []float64) ([]float64, bool) {
	if len(ours) == 0 || len(ours) != len(theirs) {
		return nil, false
	}
	logs := make([]float64, len(ours))
	for i := range ours {
		if !(ours[i] > 0) || !(theirs[i] > 0) {
			return nil, false
		}
		logs[i] = math.Log(ours[i] / theirs[i])
	}
	return logs, true
}

// ratioOf returns the mean of all clusters' values with its bootstrap-t interval. back converts from the scale of the
// values.
func ratioOf(clusters [][]float64, back func(float64) float64, rng *rand.Rand) Ratio {
	mean, err := meanAndError(clusters)
	r := Ratio{Value: back(mean)}
	for _, c := range clusters {
		r.Rounds += len(c)
	}
	if len(clusters) < fewest {
		return r
	}
	low, high := studentised(clusters, mean, err, rng)
	r.Low, r.High = new(back(low)), new(min(back(high), math.MaxFloat64)) // JSON has no infinity
	return r
}

// studentised returns the bootstrap-t interval of a mean. Clusters are resampled whole.
//
// If one round stalled and the others lie close together, the resamples without that round tell how far the mean may
// be off, so they count. Their standard errors are small, or zero if the others are equal. The usual interval would
// then be infinite (Owen 2025, arXiv 2508.10083), so a resample's error has a lower bound: see [steadiest].
func studentised(clusters [][]float64, mean, err float64, rng *rand.Rand) (low, high float64) {
	if err == 0 {
		return mean, mean
	}
	sample := make([][]float64, len(clusters))
	scores := make([]float64, 0, resamples)
	for range resamples {
		for i := range sample {
			sample[i] = clusters[rng.IntN(len(clusters))]
		}
		m, e := meanAndError(sample)
		scores = append(scores, (m-mean)/max(e, err/steadiest))
	}
	slices.Sort(scores)
	at := func(q float64) float64 { return scores[int(q*float64(len(scores)-1))] }
	tail := (1 - Confidence) / 2
	return mean - at(1-tail)*err, mean - at(tail)*err
}

// meanAndError returns the mean of all values and its standard error for clusters whose values depend on one another.
// If each cluster has one value, that is the usual standard error.
func meanAndError(clusters [][]float64) (mean, err float64) {
	n, k := 0.0, float64(len(clusters))
	for _, c := range clusters {
		for _, v := range c {
			mean += v
		}
		n += float64(len(c))
	}
	mean /= n
	if k < 2 {
		return mean, 0
	}
	var squares float64
	for _, c := range clusters {
		var off float64
		for _, v := range c {
			off += v - mean
		}
		squares += off * off
	}
	return mean, math.Sqrt(squares*k/(k-1)) / n
}
