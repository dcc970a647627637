package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/tenure-dev/tenure/bench/stats"
)

// plot is a picture with two axes, laid out in the units of its viewBox.
type plot struct {
	Title, XLabel, YLabel string
	Width, Height         float64
	Left, Right           float64 // of the area between the axes
	Top, Bottom           float64
	XTicks, YTicks        []tick
	Lines                 []line
	Boxes                 []box
	Marks                 []tick
}

// tick is a place on an axis.
type tick struct {
	At   float64
	Text string
}

// line is a series. Color counts the palette's colours; Dashed is for what wasn't measured.
type line struct {
	Name   string
	Color  int
	Dashed bool
	Path   string
	Dots   []dot
}

type dot struct {
	X, Y float64
	Text string
}

// box is a rectangle.
type box struct {
	X, Y, W, H float64
	Color      int
	Text       string
}

// scale turns a value into a place.
type scale func(float64) float64

func newPlot(title, xLabel, yLabel string) *plot {
	return &plot{Title: title, XLabel: xLabel, YLabel: yLabel, Width: 500, Height: 290, Left: 58, Right: 476,
		Top: 16, Bottom: 244}
}

// linear lays an axis from low to high out between two places.
func linear(low, high, from, to float64) scale {
	if high == low {
		high = low + 1
	}
	return func(v float64) float64 { return from + (v-low)/(high-low)*(to-from) }
}

// logarithmic is the same by orders of magnitude.
func logarithmic(low, high, from, to float64) scale {
	inner := linear(math.Log10(low), math.Log10(high), from, to)
	return func(v float64) float64 { return inner(math.Log10(max(v, low))) }
}

// decades widens a range to whole orders of magnitude, and lists them.
func decades(least, most float64) (low, high float64, all []float64) {
	low, high = math.Pow(10, math.Floor(math.Log10(least))), math.Pow(10, math.Ceil(math.Log10(most)))
	if high <= low {
		high = low * 10
	}
	for v := low; v <= high*1.01; v *= 10 {
		all = append(all, v)
	}
	return low, high, all
}

// ticks labels values at their places.
func ticks(values []float64, at scale) (out []tick) {
	for _, v := range values {
		out = append(out, tick{at(v), short(v)})
	}
	return out
}

// niceTicks returns round numbers for the ticks of a linear axis.
func niceTicks(low, high float64) []float64 {
	if high <= low {
		high = low + 1
	}
	step := math.Pow(10, math.Floor(math.Log10((high-low)/4)))
	for _, m := range []float64{1, 2, 5, 10} {
		if (high-low)/(step*m) <= 6 {
			step *= m
			break
		}
	}
	var out []float64
	for v := math.Ceil(low/step) * step; v <= high+step/1e6; v += step {
		out = append(out, v+0) // -0 becomes 0
	}
	return out
}

// short writes a number in few characters.
func short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6:
		return trim(v/1e6, 1) + "M"
	case a >= 1e4:
		return trim(v/1e3, 1) + "k"
	case a >= 100:
		return trim(v, 0)
	case a >= 1 || a == 0:
		return trim(v, 2)
	}
	return trim(v, 3)
}

func trim(v float64, digits int) string {
	s := fmt.Sprintf("%.*f", digits, v)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// add draws a series.
func (p *plot) add(name string, color int, dashed bool, points []stats.Point, x, y scale, dots bool) {
	l := line{Name: name, Color: color % colors, Dashed: dashed}
	var b strings.Builder
	for i, q := range points {
		command := "L"
		if i == 0 {
			command = "M"
		}
		px, py := x(q.X), y(q.Y)
		fmt.Fprintf(&b, "%s%.1f %.1f", command, px, py)
		if dots {
			l.Dots = append(l.Dots, dot{px, py, name + ": " + short(q.Y) + " at " + short(q.X)})
		}
	}
	l.Path = b.String()
	p.Lines = append(p.Lines, l)
}

// colors in the palette.
const colors = 8

// percentilePlot draws distributions by how rare a value is: each tick to the right is ten times rarer.
func percentilePlot(title string, list []Latency) *plot {
	p := newPlot(title, "percentile", "ms")
	low, high, most := math.Inf(1), 0.0, 0.0
	for _, l := range list {
		for _, q := range l.Q.Curve {
			if q.Y > 0 {
				low = min(low, q.Y)
			}
			high = max(high, q.Y)
		}
		most = max(most, float64(l.Q.N))
	}
	if high == 0 {
		return nil
	}
	low, high, marks := decades(max(low, high/1e5, 0.01), high)
	rare := max(2, math.Ceil(math.Log10(most)))
	x := linear(0, rare, p.Left, p.Right-12)
	y := logarithmic(low, high, p.Bottom, p.Top)
	for i := 0.0; i <= rare; i++ {
		text := "0"
		if i > 0 {
			text = trim(100-math.Pow(10, 2-i), int(max(0, i-2))) + " %"
		}
		p.XTicks = append(p.XTicks, tick{x(i), text})
	}
	p.YTicks = ticks(marks, y)
	for i, l := range list {
		var points []stats.Point
		last := 0.0
		for _, q := range l.Q.Curve {
			r := math.Log10(max(10, float64(l.Q.N))) // the maximum is as rare as one in all
			if q.X < 1 {
				r = -math.Log10(1 - q.X)
			}
			last = max(last, min(rare, r))
			points = append(points, stats.Point{X: last, Y: q.Y})
		}
		p.add(l.Name, i, false, points, x, y, false)
	}
	return p
}

// timePlot draws series over the seconds of a load.
func timePlot(title, unit string, series []Series, marks []Mark) *plot {
	p := newPlot(title, "seconds since the start of the load", unit)
	low, end, high := 0.0, 0.0, 1.0
	for _, s := range series {
		for _, q := range s.Points {
			low, end, high = min(low, q.X), max(end, q.X), max(high, q.Y)
		}
	}
	if end == 0 {
		return nil
	}
	x, y := linear(low, end, p.Left, p.Right), linear(0, high, p.Bottom, p.Top)
	p.XTicks, p.YTicks = ticks(niceTicks(low, end), x), ticks(niceTicks(0, high), y)
	for i, s := range series {
		p.add(s.Name, i, false, s.Points, x, y, false)
	}
	p.mark(marks, x)
	return p
}

func (p *plot) mark(marks []Mark, x scale) {
	for _, m := range marks {
		p.Marks = append(p.Marks, tick{x(m.At), m.What})
	}
}

// scalePlot draws capacities beside the ideal.
func scalePlot(r *Report) *plot {
	if r.ScaleOut == nil || len(r.ScaleOut.Capacity) < 2 {
		return nil
	}
	p := newPlot("Capacity by number of replicas", "replicas", r.ScaleOut.Unit)
	var measured, ideal []stats.Point
	high, most := 0.0, 0.0
	first := r.Sweep[0]
	per := r.ScaleOut.Capacity[fmt.Sprint(first.Replicas)] / float64(first.Replicas)
	for _, s := range r.Sweep {
		n := float64(s.Replicas)
		measured = append(measured, stats.Point{X: n, Y: r.ScaleOut.Capacity[fmt.Sprint(s.Replicas)]})
		ideal = append(ideal, stats.Point{X: n, Y: per * n})
		high, most = max(high, per*n, measured[len(measured)-1].Y), max(most, n)
	}
	x, y := linear(0, most, p.Left, p.Right-8), linear(0, high, p.Bottom, p.Top)
	for _, s := range r.Sweep {
		p.XTicks = append(p.XTicks, tick{x(float64(s.Replicas)), fmt.Sprint(s.Replicas)})
	}
	p.YTicks = ticks(niceTicks(0, high), y)
	p.add("ideal: n times one", 7, true, ideal, x, y, false)
	p.add("measured", 0, false, measured, x, y, true)
	return p
}

// kneePlot draws the lateness by rate.
func kneePlot(k *Knee) *plot {
	if k == nil || len(k.Points) < 2 {
		return nil
	}
	p := newPlot("Lateness at its 99th percentile by rate", "Ats due per second", "ms")
	low, high := k.SLO, k.SLO
	for _, q := range k.Points {
		low, high = min(low, q.Y), max(high, q.Y)
	}
	low, high, marks := decades(max(low, 0.1), high)
	last := k.Points[len(k.Points)-1].X
	x, y := linear(0, last, p.Left, p.Right-8), logarithmic(low, high, p.Bottom, p.Top)
	for _, q := range k.Points {
		p.XTicks = append(p.XTicks, tick{x(q.X), short(q.X)})
	}
	p.YTicks = ticks(marks, y)
	p.add("allowed", 7, true, []stats.Point{{X: 0, Y: k.SLO}, {X: last, Y: k.SLO}}, x, y, false)
	p.add("measured", 0, false, k.Points, x, y, true)
	return p
}

// ownershipPlot draws one row per shard, coloured by holder.
func ownershipPlot(r *Results) (*plot, []string) {
	if len(r.Ownership) == 0 {
		return nil, nil
	}
	p := newPlot("Who held which shard", "seconds since the start of the load", "")
	rows, holders := map[string]int{}, map[string]int{}
	var shards, names []string
	low, high := 0.0, 1.0
	for _, s := range r.Ownership {
		if _, ok := rows[s.Shard]; !ok {
			rows[s.Shard] = len(shards)
			shards = append(shards, s.Shard)
		}
		if _, ok := holders[s.Holder]; !ok {
			holders[s.Holder] = len(names)
			names = append(names, s.Holder)
		}
		high = max(high, s.To)
	}
	low = -0.03 * high
	row := min(16, max(2.5, 480/float64(len(shards))))
	p.Left, p.Width, p.Right = 84, 1020, 1004
	p.Bottom = p.Top + row*float64(len(shards))
	p.Height = p.Bottom + 46
	x := linear(low, high, p.Left, p.Right)
	p.XTicks = ticks(niceTicks(0, high), x)
	every := int(math.Ceil(13 / row))
	for i, name := range shards {
		if i%every == 0 {
			p.YTicks = append(p.YTicks, tick{p.Top + (float64(i)+0.5)*row, name})
		}
	}
	for _, s := range r.Ownership {
		if s.To < low {
			continue
		}
		from := max(s.From, low)
		p.Boxes = append(p.Boxes, box{
			X: x(from), Y: p.Top + float64(rows[s.Shard])*row, W: max(0.5, x(s.To)-x(from)), H: row - min(1, row/4),
			Color: holders[s.Holder] % colors,
			Text:  fmt.Sprintf("%s: %s, epoch %d, %.2f s to %.2f s", s.Shard, s.Holder, s.Epoch, s.From, s.To),
		})
	}
	p.mark(r.Steps, x)
	return p, names
}
