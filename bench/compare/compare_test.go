package compare

import (
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/bench/stats"
	"github.com/tenure-dev/tenure/test/must"
)

func reportOf(rates ...float64) *report.Report {
	r := &report.Report{Scenario: "at-burst", Valid: true, Results: &report.Results{}}
	for _, v := range rates {
		r.Results.Rounds = append(r.Results.Rounds, report.Round{Figures: map[string]float64{"throughput_per_s": v}})
	}
	return r
}

func TestARatioIsOfBOverAAndSaysOnlyWhatItsIntervalAllows(t *testing.T) {
	cases := map[string]struct {
		a, b *report.Report
		want string
	}{
		"twice as fast": {reportOf(100, 101, 99, 100), reportOf(200, 202, 199, 201), "larger"},
		"slower":        {reportOf(100, 101, 99, 100), reportOf(90, 91, 89, 90), "smaller"},
		"noise":         {reportOf(100, 120, 80, 100), reportOf(110, 85, 105, 101), "no difference found"},
		"two rounds":    {reportOf(100, 101), reportOf(200, 201), "too few rounds to tell"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Compare(c.a, c.b)
			must.Succeed(t, err)
			if verdict := got.Rows[0].Verdict(); verdict != c.want {
				t.Errorf("got %s, want %s: %+v", verdict, c.want, got.Rows[0])
			}
			var b strings.Builder
			if err := got.Text(&b); err != nil || !strings.Contains(b.String(), "throughput_per_s") {
				t.Errorf("text %q, %v", b.String(), err)
			}
		})
	}
}

func TestWhatCanNotBeComparedIsRefused(t *testing.T) {
	other, rates := reportOf(1, 2, 3), reportOf(1, 2, 3)
	other.Scenario, rates.Config.Load.Rates = "crash", []float64{40, 60}
	for name, pair := range map[string][2]*report.Report{
		"other scenario": {reportOf(1, 2, 3), other},
		"no results":     {reportOf(1, 2, 3), {Scenario: "at-burst"}},
		"rising rates":   {rates, rates},
		"no rounds":      {reportOf(1, 2, 3), reportOf()},
	} {
		if _, err := Compare(pair[0], pair[1]); err == nil {
			t.Errorf("%s: compared", name)
		}
	}
}

func TestWhatStandsAgainstAComparisonIsSaid(t *testing.T) {
	const always = "they were not taken in turns: what the machine did meanwhile is in the ratios, " +
		"and brackets cover the spread within each run: API servers differ by percents between runs"
	for name, c := range map[string]struct {
		change func(*report.Report)
		want   []string // in order
	}{
		"nothing":       {func(*report.Report) {}, nil},
		"not valid":     {func(r *report.Report) { r.Valid = false }, []string{"B is not valid"}},
		"another fleet": {func(r *report.Report) { r.Config.Fleet.Replicas = 7 }, []string{"their settings differ"}},
		"other steps": {func(r *report.Report) { r.Config.Steps = []scenario.Step{{Do: scenario.Join}} },
			[]string{"their settings differ"}},
		"another reference": {func(r *report.Report) { r.Config.Compare = []scenario.Reference{scenario.Floor} },
			[]string{"their settings differ"}},
		"another load":     {func(r *report.Report) { r.Config.Load.Count = 7 }, []string{"their settings differ"}},
		"another seed":     {func(r *report.Report) { r.Config.Load.Seed = 7 }, nil},
		"other thresholds": {func(r *report.Report) { r.Config.Thresholds = []scenario.Threshold{{}} }, nil},
		"a round of nothing": {func(r *report.Report) { r.Results.Rounds[1].Figures["work_ms.p50"] = 0 },
			[]string{"work_ms.p50 is left out"}},
		"a round without throughput": {func(r *report.Report) { delete(r.Results.Rounds[2].Figures, "throughput_per_s") },
			[]string{"throughput_per_s is left out"}},
		"another machine": {func(r *report.Report) { r.Environment.CPUs = 64 },
			[]string{"they were taken on different machines"}},
		"a busy machine":        {func(r *report.Report) { r.Environment.Others = new(0.2) }, []string{"B was taken on a b"}},
		"nobody knows how busy": {func(r *report.Report) { r.Environment.Others = nil }, []string{"B was taken on a m"}},
		"profiled":              {func(r *report.Report) { r.Profiled = true }, []string{"B was taken while profiles were"}},
		"the same commit": {func(r *report.Report) { r.Environment.Tenure = "0123456789abcdef" },
			[]string{"their revisions are the same"}},
		"no commit": {func(r *report.Report) { r.Environment.Tenure = "unknown" }, []string{`B is of no commit: "unknown"`}},
	} {
		a, b := reportOf(1, 2, 3), reportOf(1, 2, 3)
		a.Environment = report.Environment{Tenure: "0123456789abcdef", Others: new(0.1)}
		b.Environment = report.Environment{Tenure: "fedcba9876543210", Others: new(0.1)}
		for _, r := range slices.Concat(a.Results.Rounds, b.Results.Rounds) {
			r.Figures["work_ms.p50"] = 1
		}
		c.change(b)
		got, err := Compare(a, b)
		must.Succeed(t, err)
		want := append(c.want, always)
		slices.Sort(want)
		if !slices.EqualFunc(got.Notices, want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", name, got.Notices, want)
		}
	}
}

// turned is a run of a scenario in turns, at a machine of some speed.
func turned(speed float64, lost int) *report.Report {
	turn := func(rate float64) []report.Round {
		var rounds []report.Round
		for j := range 4 {
			noise := 1 + float64((int(speed)+j)%3-1)/1000
			rounds = append(rounds, report.Round{Figures: map[string]float64{"reconciles_per_s": rate * noise}})
		}
		return rounds
	}
	return &report.Report{Scenario: "tracing", Valid: true, Results: &report.Results{
		Turns: map[string][]report.Round{"untraced": turn(speed), "traced": turn(0.8 * speed)},
		Lost:  lost, Throughput: &speed, CrashGap: &stats.Quantiles{P50: speed, Max: speed},
	}}
}

func TestSeveralRunsAreOnePool(t *testing.T) {
	runs := []*report.Report{turned(100, 0), turned(51, 1), turned(200, 0), turned(130, 2)}
	for i := range runs {
		runs[i].Config.Load.Seed = uint64(i)
	}
	runs[1].Results.QueueLatency = &stats.Quantiles{P50: 3}
	for i, settled := range []float64{5, 24, 6, 7} {
		runs[i].Results.Noises = map[string]report.Noisy{"silent": {OwnSettled: &settled}}
	}
	pooled, err := Pool(runs)
	must.Succeed(t, err)
	got := pooled.Ratios["reconciles_per_s/traced"]
	if len(pooled.Ratios) != 1 || got.Rounds != 16 || got.Runs != 4 || got.Value < 1.249 ||
		got.Value > 1.251 || got.Low == nil {
		t.Errorf("ratios %+v", pooled.Ratios)
	}
	for figure, want := range map[string]float64{
		"results.lost": 3, "results.throughput_per_s": 120.25, "results.crash_gap_ms.p50": 120.25,
		"results.crash_gap_ms.max": 200, "results.noises.silent.own_settled_s": 24,
	} {
		if figure := pooled.Intervals[figure]; figure.Value != want || figure.Runs != 4 {
			t.Errorf("%+v, want %v", figure, want)
		}
	}
	if mean := pooled.Intervals["results.throughput_per_s"]; *mean.Low > 80 || *mean.High < 160 {
		t.Errorf("throughput has the interval [%v, %v]", *mean.Low, *mean.High)
	}
	for _, figure := range []string{"results.lost", "results.crash_gap_ms.max", "results.noises.silent.own_settled_s"} {
		if pooled.Intervals[figure].Low != nil {
			t.Errorf("%s is no sample, and has an interval", figure)
		}
	}
	if figure, ok := pooled.Intervals["results.queue_latency_ms.p50"]; ok {
		t.Errorf("one run alone has a queue, and the pool says %+v", figure)
	}
	var b strings.Builder
	if err := PoolText(&b, pooled); err != nil || !strings.Contains(b.String(), "4 runs") ||
		!strings.Contains(b.String(), "1.250") {
		t.Errorf("text %q, %v", b.String(), err)
	}
	if three, err := Pool(runs[:3]); err != nil || three.Ratios["reconciles_per_s/traced"].Low != nil {
		t.Errorf("twelve turns of three runs have an interval: %+v, %v", three, err)
	}
}

func TestRunsThatDifferAreNoPool(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*report.Report)
		want   string // in the error
	}{
		"other size": {func(r *report.Report) { r.Config.Size = "small" }, `b: is of size "small", a of ""`},
		"other settings": {func(r *report.Report) { r.Config.Fleet.Replicas = 7 },
			"b: was taken with different settings than a"},
		"other scenario":  {func(r *report.Report) { r.Scenario = "crash" }, "b: is of scenario crash, a of tracing"},
		"another commit":  {func(r *report.Report) { r.Environment.Tenure = "x" }, "b: is of another commit than a"},
		"another machine": {func(r *report.Report) { r.Environment.CPU = "x" }, "b: was taken on another machine than a"},
		"a Go variable": {func(r *report.Report) { r.Environment.GoSettings = map[string]string{"GOGC": "400"} },
			"b: was taken with other Go variables than a"},
		"the same run": {func(r *report.Report) { r.Config.Load.Seed = 0 },
			"b: has the seed 0, as a: is it the same run?"},
		"not valid":    {func(r *report.Report) { r.Valid = false }, "b: is not valid"},
		"no results":   {func(r *report.Report) { r.Results = nil }, "b: has no results"},
		"another seed": {func(*report.Report) {}, ""},
	} {
		first, second := turned(100, 0), turned(100, 0)
		first.File, second.File, second.Config.Load.Seed = "a", "b", 9
		c.change(second)
		if _, err := Pool([]*report.Report{first, second}); (err == nil) != (c.want == "") ||
			err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := Pool(nil); err == nil {
		t.Error("nothing was pooled")
	}
}
