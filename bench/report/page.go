package report

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
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

// content is what the page shows.
type content struct {
	*Report
	Latencies []Latency
	Figures   []row
	Plots     []*plot
	Ownership *plot
	Holders   []string
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
		Report: r, Latencies: Latencies(r.Results), Figures: r.figures(), ConfigRaw: string(config),
	}
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
