package stats

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The histogram's range and precision: 1 µs to an hour, three digits.
const (
	lowest  = 1
	highest = int64(time.Hour / time.Microsecond)
	digits  = 3
)

// Latencies collects durations. The zero value is ready for use. It is not safe for concurrent use.
type Latencies struct{ h *hdrhistogram.Histogram }

// Add adds one duration. A negative one (from two clocks, or an event that overtook its cause) counts as zero, and one
// longer than an hour as an hour.
func (l *Latencies) Add(d time.Duration) {
	if l.h == nil {
		l.h = hdrhistogram.New(lowest, highest, digits)
	}
	us := min(max(d.Microseconds(), 0), highest)
	if err := l.h.RecordValue(us); err != nil {
		panic(err) // the value is in range
	}
}

// Merge adds all durations of another collection.
func (l *Latencies) Merge(other *Latencies) {
	if other.h == nil {
		return
	}
	if l.h == nil {
		l.h = hdrhistogram.New(lowest, highest, digits)
	}
	l.h.Merge(other.h)
}

// Quantiles are in milliseconds.
type Quantiles struct {
	N    int64   `json:"n"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
	// Curve is the whole distribution as pairs of a share (0 to 1) and a duration.
	Curve []Point `json:"curve,omitempty"`
}

// Point is one point of a curve.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// Quantiles summarises the collection. It returns nil if the collection is empty: no measurement isn't zero.
func (l *Latencies) Quantiles() *Quantiles {
	if l.h == nil || l.h.TotalCount() == 0 {
		return nil
	}
	at := func(p float64) float64 { return float64(l.h.ValueAtPercentile(p)) / 1000 }
	q := &Quantiles{
		N: l.h.TotalCount(), P50: at(50), P90: at(90), P99: at(99), P999: at(99.9),
		Max: float64(l.h.Max()) / 1000, Mean: l.h.Mean() / 1000,
	}
	for _, p := range curve {
		// Beyond 1 - 1/n every percentile is the maximum.
		if p < 100 && (100-p)/100 < 0.5/float64(q.N) {
			continue
		}
		q.Curve = append(q.Curve, Point{X: p / 100, Y: at(p)})
	}
	return q
}

// curve has the shares at which a distribution is drawn, denser towards the tail.
var curve = []float64{
	0, 10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 90, 92, 94, 95, 96, 97, 98, 98.5, 99, 99.2, 99.4, 99.5, 99.6, 99.7, 99.8,
	99.9, 99.95, 99.98, 99.99, 99.995, 99.999, 100,
}
