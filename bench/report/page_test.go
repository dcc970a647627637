package report

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/bench/record"
	"github.com/tenure-dev/tenure/bench/stats"
	"github.com/tenure-dev/tenure/test/must"
)

// hardly is a report of a run that measured next to nothing.
func hardly() *Report {
	return &Report{
		Schema: Schema, Scenario: "nothing", Reasons: []string{}, Warnings: []string{}, Results: &Results{},
		References: map[string]*Results{},
		Ratios:     map[string]stats.Ratio{}, Intervals: map[string]stats.Ratio{}, Checks: []Verdict{},
	}
}

func quantiles(n int) *stats.Quantiles {
	var l stats.Latencies
	for i := range n {
		l.Add(time.Duration(i*i) * time.Microsecond)
	}
	return l.Quantiles()
}

// swept is a report of a sweep with hundreds of shards and moves.
func swept() *Report {
	r := hardly()
	r.ScaleOut = &ScaleOut{Unit: "per second", Capacity: map[string]float64{}, Efficiency: map[string]float64{},
		Makespan: map[string]float64{}}
	for _, n := range []int{1, 2, 8} {
		res := &Results{Converge: quantiles(2000), Objects: 2000, Steps: []Mark{{1, "join"}}}
		for i := range 300 {
			res.Ownership = append(res.Ownership, record.Span{Shard: fmt.Sprintf("c1/%08b", i%256),
				Holder: fmt.Sprintf("r%d", i%9), Epoch: int64(i), From: -3, To: 9})
		}
		r.Sweep = append(r.Sweep, SweepPoint{n, res})
		key := fmt.Sprint(n)
		r.ScaleOut.Capacity[key], r.ScaleOut.Efficiency[key] = float64(n)*9, 0.9
		r.Results = res
	}
	return r
}

var places = regexp.MustCompile(`(?:src|href|url)\s*[=(]`)

func TestAPageNeedsNothingElseAndShowsNoMishap(t *testing.T) {
	for name, r := range map[string]*Report{"every field": full(t), "hardly any": hardly(), "a sweep": swept()} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			must.Succeed(t, HTML(&b, r))
			page := b.String()
			for _, bad := range []string{"NaN", "Inf", "%!", "0x", "<nil>", "<script", "ZgotmplZ", "http://", "https://"} {
				if strings.Contains(page, bad) {
					at := strings.Index(page, bad)
					t.Errorf("the page holds %s: %s", bad, page[max(0, at-80):min(len(page), at+80)])
				}
			}
			if found := places.FindString(page); found != "" {
				t.Errorf("the page refers to something: %s", found)
			}
			if !strings.Contains(page, "prefers-color-scheme: dark") {
				t.Error("the page has no dark form")
			}
		})
	}
}

func TestAPageSaysWhatMattersFirst(t *testing.T) {
	r := hardly()
	r.Reasons = []string{"the generator fell <behind>"}
	r.Results.Converge = quantiles(100)
	var b strings.Builder
	must.Succeed(t, HTML(&b, r))
	page := b.String()
	invalid, reason, curves := strings.Index(page, "INVALID"), strings.Index(page, "fell &lt;behind&gt;"),
		strings.Index(page, "<h2>Curves")
	if invalid < 0 || reason < invalid || curves < reason {
		t.Errorf("INVALID at %d, the reason at %d, the curves at %d", invalid, reason, curves)
	}
}

func TestEveryPointLiesInsideItsPlot(t *testing.T) {
	list := []Latency{{Name: "a", Q: quantiles(5000)}, {Name: "b", Q: quantiles(3)}}
	plots := []*plot{
		percentilePlot("p", list), scalePlot(swept()),
		timePlot("t", "keys", []Series{{"r1", []stats.Point{{X: -0.1, Y: 0}, {X: 2, Y: 7}}}}, nil),
	}
	number := regexp.MustCompile(`[ML]([0-9.-]+) ([0-9.-]+)`)
	for _, p := range plots {
		for _, l := range p.Lines {
			for _, m := range number.FindAllStringSubmatch(l.Path, -1) {
				var x, y float64
				_, err := fmt.Sscan(m[1], &x)
				must.Succeed(t, err)
				_, err = fmt.Sscan(m[2], &y)
				must.Succeed(t, err)
				if x < p.Left-1 || x > p.Right+1 || y < p.Top-1 || y > p.Bottom+1 {
					t.Errorf("%s: %s has a point at %v, %v, outside of the axes", p.Title, l.Name, x, y)
				}
			}
		}
	}
}

func TestTicksAreRoundAndFew(t *testing.T) {
	for _, c := range [][2]float64{{0, 1}, {0, 7}, {-0.3, 44}, {0, 1234}, {5, 5}, {0, 0.02}} {
		ticks := niceTicks(c[0], c[1])
		if len(ticks) < 2 || len(ticks) > 8 {
			t.Errorf("from %v to %v: %v", c[0], c[1], ticks)
		}
	}
}

func TestTheTextAndThePageNameEveryFigure(t *testing.T) {
	var b strings.Builder
	Text(&b, full(t))
	var page strings.Builder
	must.Succeed(t, HTML(&page, full(t)))
	for _, want := range []string{"queue", "lateness", "API writes per object", "generator late", "floor", "knee",
		"of the whole burst", "watch bytes of all"} {
		if !strings.Contains(b.String(), want) || !strings.Contains(page.String(), want) {
			t.Errorf("the text or the page doesn't have %s:\n%s", want, b.String())
		}
	}
}

func TestATourLeadsToItsPagesAndSaysWhatFailed(t *testing.T) {
	r := hardly()
	r.Checks = []Verdict{{OK: true}, {}}
	r.Checks[1].Figure = "results.lost"
	r.Results.Objects = 3
	var b strings.Builder
	sound, invalid := hardly(), hardly()
	sound.Valid, invalid.Reasons = true, []string{"the generator was late"}
	published := Verdict{Measured: &stats.Ratio{Value: 81.25}}
	published.Figure = "results.throughput_per_s"
	err := Tour(&b, []Stop{{"How fast?", r, []Verdict{published}, "at-burst.html"},
		{"How far?", sound, nil, "scale-out.html"}, {"How long?", invalid, nil, "crash.html"}})
	must.Succeed(t, err)
	for _, want := range []string{"How fast?", `href="at-burst.html"`, `href="scale-out.html"`,
		"✗ results.lost is missing", "✓ all that had to hold holds", "<span>results.lost</span><b>missing</b>",
		"<span>results.throughput_per_s</span><b>81.25</b>"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page doesn't have %s", want)
		}
	}
	if n := strings.Count(b.String(), "✓ all"); n != 1 {
		t.Errorf("%d runs hold, want the one that is valid and has no miss", n)
	}
}
