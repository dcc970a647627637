package report

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/bench/stats"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"ms": func(v float64) string { return short(v) },
	"num": func(format string, v *float64) string {
		if v == nil {
			return ""
		}
		return fmt.Sprintf(format, *v)
	},
	"ratio": RatioText,
	"count": Count,
	"add":   func(a, b float64) float64 { return a + b },
	"half":  func(a, b float64) float64 { return (a + b) / 2 },
}).Parse(pageText))

// tile is one figure of the summary.
type tile struct{ Name, Value, Note string }

// bars are one figure of all replicas.
type bars struct {
	Name string
	Rows []bar
}

type bar struct {
	Name, Value string
	Percent     float64
}

// ratioRow is a ratio on a line from low to high, in percent of the width.
type ratioRow struct {
	Name            string
	Ratio           stats.Ratio
	At, From, Width float64
	Interval        bool
}

// content is what the page shows.
type content struct {
	*Report
	Tiles     []tile
	Latencies []Latency
	Figures   [][2]string
	Plots     []*plot
	Ownership *plot
	Holders   []string
	Bars      []bars
	Ratios    []ratioRow
	One       float64
	ConfigRaw string
}

// Count is a number of things: 1 replica, 2 replicas.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Color is the palette's colour of the i-th series.
func (content) Color(i int) int { return i % colors }

// HTML writes the report as one page that needs nothing else.
func HTML(w io.Writer, r *Report) error {
	config, err := json.MarshalIndent(r.Config, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	c := content{
		Report: r, Tiles: tiles(r), Latencies: Latencies(r.Results), Figures: Figures(r.Results),
		Bars:      replicaBars(r.Results),
		ConfigRaw: string(config),
	}
	c.Ratios, c.One = ratioRows(r.Ratios)
	c.Ownership, c.Holders = ownershipPlot(r.Results)
	c.Plots = plots(r, c)
	if err := pageTemplate.Execute(w, c); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

// plots returns the pictures for which there is data.
func plots(r *Report, c content) []*plot {
	var out []*plot
	add := func(p *plot) {
		if p != nil {
			out = append(out, p)
		}
	}
	add(scalePlot(r))
	add(kneePlot(r.Knee))
	if fleets := r.Fleets(); len(fleets) > 1 {
		var list []Latency
		for _, f := range fleets {
			if f.Results.Converge != nil {
				list = append(list, Latency{Name: f.Name, Q: f.Results.Converge})
			}
		}
		add(percentilePlot("Intended to converged, by fleet", list))
	}
	// Three or four curves can be told apart; the others are in the table.
	wanted := []string{"intended to converged", "lateness", "queue", "event to reconcile", "handoff gap",
		"drift to repaired"}
	add(percentilePlot("Latencies", slices.DeleteFunc(slices.Clone(c.Latencies),
		func(l Latency) bool { return !slices.Contains(wanted, l.Name) })))
	add(timePlot("Keys in the queues", "keys", r.Results.QueueDepth, r.Results.Steps))
	return out
}

func tiles(r *Report) []tile {
	var out []tile
	add := func(name, note, format string, args ...any) {
		out = append(out, tile{name, fmt.Sprintf(format, args...), note})
	}
	p99 := func(name string, q *stats.Quantiles) {
		if q != nil {
			add(name, "p50 "+short(q.P50)+" ms, n "+fmt.Sprint(q.N), "%s ms", short(q.P99))
		}
	}
	res := r.Results
	for _, reference := range []string{"floor", "stock"} {
		if ratio, ok := r.Ratios["throughput_per_s/"+reference]; ok {
			note := "of the bare client's throughput"
			if reference == "stock" {
				note = "of one leader's throughput"
			}
			add("against "+reference, note, "%.2f", ratio.Value)
		}
	}
	if ratio, ok := r.Ratios["lateness_ms.p50/floor"]; ok && r.Config.Load.Arrivals != scenario.Burst {
		add("lateness over floor's", "at the median, "+IntervalText(ratio), "%.2f", ratio.Value)
	}
	if ratio, ok := r.Ratios["lateness_ms.p99/"+string(scenario.Unserved)]; ok {
		add("lateness beside changes", "p99 over that without them, "+IntervalText(ratio), "%.2f", ratio.Value)
	}
	if k := r.Knee; k != nil {
		value := short(k.Rate) + "/s"
		if !k.Found {
			value = "> " + value
		}
		add("knee", fmt.Sprintf("highest rate with lateness p99 within %s ms", short(k.SLO)), "%s", value)
	}
	if s := r.ScaleOut; s != nil && len(r.Sweep) > 0 {
		n := fmt.Sprint(r.Sweep[len(r.Sweep)-1].Replicas)
		if e, ok := s.Efficiency[n]; ok {
			add("efficiency at "+n, "capacity over "+n+" times one replica's", "%.3f", e)
		}
	}
	if c := r.WatchCost; c != nil && len(r.Sweep) > 0 {
		n := fmt.Sprint(r.Sweep[len(r.Sweep)-1].Replicas)
		add("watch bytes of "+n, "all of them over one replica's", "%.2f", c.SumOverOne[n])
	}
	if res.Throughput != nil && r.Config.Load.Arrivals == scenario.Burst {
		add("throughput", "Ats converged per second", "%s/s", short(*res.Throughput))
	}
	p99("handoff gap p99", res.HandoffGap)
	p99("crash gap p99", res.CrashGap)
	p99("live clusters p99", res.LiveConverge)
	for _, name := range slices.Sorted(maps.Keys(res.Noises)) {
		if of, ok := r.Ratios[Allowed+"/"+name]; ok {
			add("others, "+name, "p99 over what it may be beside that where the same noise is served apart", "%.2f", of.Value)
		}
	}
	p99("drift to repaired p99", res.DriftRepair)
	if res.WritesPerCopy != nil {
		add("writes per copy", "made or repaired, by the audit logs", "%.2f", *res.WritesPerCopy)
	}
	p99("lateness p99", res.Lateness)
	p99("queue p99", res.QueueLatency)
	p99("converged p99", res.Converge)
	if res.APIWrites != nil && res.Objects > 0 {
		add("writes per At", "by the audit logs", "%.2f", *res.APIWrites)
	}
	if res.TimeToHeld != nil && res.Objects == 0 {
		add("until all held", "from starting the replicas", "%.1f s", *res.TimeToHeld)
	}
	switch {
	case res.Copies > 0:
		add("lost", fmt.Sprintf("of %d copies of %s, and of all repairs", res.Copies, Count(res.Objects, "Deployment")), "%d",
			res.Lost)
	case res.Objects > 0:
		add("lost, doubled, early", fmt.Sprintf("of %d Ats", res.Objects), "%d, %d, %d", res.Lost, res.Duplicates, res.Early)
	}
	return out
}

func replicaBars(r *Results) []bars {
	var out []bars
	add := func(name string, values []float64, format func(float64) string) {
		if len(values) == 0 {
			return
		}
		b := bars{Name: name}
		top := slices.Max(values)
		for i, v := range values {
			percent := 0.0
			if top > 0 {
				percent = 100 * v / top
			}
			b.Rows = append(b.Rows, bar{r.Replicas[i], format(v), percent})
		}
		out = append(out, b)
	}
	add("CPU seconds", r.CPUSeconds, short)
	add("memory at most, MB", r.RSS, short)
	reconciles := make([]float64, len(r.ReconcilesPerReplica))
	for i, n := range r.ReconcilesPerReplica {
		reconciles[i] = float64(n)
	}
	add("reconciles", reconciles, short)
	add("received from watches, kB", r.WatchBytes, func(v float64) string { return short(v / 1000) })
	return out
}

// ratioRows lays the ratios out on a common line.
func ratioRows(ratios map[string]stats.Ratio) ([]ratioRow, float64) {
	low, high := 0.8, 1.25
	for _, r := range ratios {
		low, high = min(low, r.Value), max(high, r.Value)
		if r.Low != nil {
			low, high = min(low, *r.Low), max(high, *r.High)
		}
	}
	// The scale is logarithmic: a ratio is as far from 1 as its inverse. Values beyond the scale are drawn at its
	// edge.
	x := logarithmic(max(low, 0.1), min(high, 10), 2, 98)
	inside := func(v float64) float64 { return min(98, max(2, x(v))) }
	var rows []ratioRow
	for _, name := range slices.Sorted(maps.Keys(ratios)) {
		r := ratios[name]
		row := ratioRow{Name: strings.ReplaceAll(name, "/", " over "), Ratio: r, At: inside(r.Value)}
		if r.Low != nil {
			row.Interval, row.From = true, inside(*r.Low)
			row.Width = inside(*r.High) - row.From
		}
		rows = append(rows, row)
	}
	return rows, inside(1)
}
