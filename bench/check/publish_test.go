package check

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/bench/stats"
	"github.com/tenure-dev/tenure/test/must"
)

// publishable is a run of a scenario of its own, with nothing against it.
func publishable() *report.Report {
	r := measured()
	r.Valid, r.Scenario, r.Command, r.Started = true, "own", "bench run own.yaml --set size=small",
		time.Unix(1.8e9, 0).UTC()
	r.Results.Lost, r.Results.Violations = 0, new(int)
	r.Environment = report.Environment{Tenure: "0123456789abcdef", CPUs: 2, CPU: "a processor", Others: new(0.04)}
	r.Config.Thresholds = []scenario.Threshold{
		{Figure: "results.lost", Max: new(0.0), Why: "I4"},
		{Figure: "ratios.throughput_per_s/floor.value", Min: new(0.5), Why: "x"},
	}
	r.Config.Publish = []string{"results.converge_ms.p50"}
	return r
}

const results = "# Results\n\nintro\n\n## Then\n\nfirst\n\n## Now\n\nsecond\n\n" +
	"## a, small\n\nold\n\n## own, small\n\nold row\n\n## z, full\n\nkept\n"

func TestFiguresArePublishedOfAWitnessedRunOnAQuietMachineWithTheirIntervals(t *testing.T) {
	four := func(change func(int, *report.Report)) []*report.Report {
		var out []*report.Report
		for i := range 4 {
			r := publishable()
			r.File, r.Config.Load.Seed = fmt.Sprintf("%d.json", i), uint64(i)
			change(i, r)
			out = append(out, r)
		}
		return out
	}
	one := func(change func(*report.Report)) []*report.Report {
		r := publishable()
		change(r)
		return []*report.Report{r}
	}
	for name, c := range map[string]struct {
		reports []*report.Report
		want    string // in the refusal; "" is published
	}{
		"one run":            {one(func(*report.Report) {}), ""},
		"as busy as allowed": {one(func(r *report.Report) { r.Environment.Others = new(0.1) }), ""},
		"a busy machine": {one(func(r *report.Report) { r.Environment.Others = new(0.11) }),
			"other programs took 11 %"},
		"nobody knows how busy": {one(func(r *report.Report) { r.Environment.Others = nil }), "not known"},
		"an invalid run": {one(func(r *report.Report) { r.Valid, r.Reasons = false, []string{"late"} }),
			"not valid: late"},
		"declared unwitnessed": {one(func(r *report.Report) { r.Config.Unwitnessed = "nothing arrives" }),
			"nothing arrives"},
		"without a witness": {one(func(r *report.Report) { r.Results.Violations = nil }), "no witness"},
		"profiled":          {one(func(r *report.Report) { r.Profiled = true }), "--profile"},
		"a Go variable": {one(func(r *report.Report) {
			r.Environment.GoSettings = map[string]string{"GOGC": "400"}
		}), "GOGC=400 was set in its environment: unset it"},
		"uncommitted changes": {one(func(r *report.Report) { r.Environment.Tenure += " with changes" }), "no commit"},
		"an unknown revision": {one(func(r *report.Report) { r.Environment.Tenure = "unknown" }), "no commit"},
		"a ratio without an interval": {one(func(r *report.Report) {
			r.Ratios = map[string]stats.Ratio{"throughput_per_s/floor": {Value: 0.8, Rounds: 3}}
		}), "floor.value has no interval"},
		"a figure without an interval": {one(func(r *report.Report) { r.Intervals = nil }),
			"converge_ms.p50 has no interval"},
		"a figure that is missing": {one(func(r *report.Report) {
			r.Config.Publish = append(r.Config.Publish, "results.lateness_ms.p99")
		}), "lateness_ms.p99 was not measured"},
		"nothing to publish": {one(func(r *report.Report) { r.Config.Thresholds, r.Config.Publish = nil, nil }),
			"has no threshold"},
		"a miss that isn't listed": {one(func(r *report.Report) { r.Results.Lost = 1 }), "list the miss"},
		"four runs":                {four(func(i int, r *report.Report) { r.Results.Converge.P50 += float64(i) }), ""},
		"four runs of two commits": {four(func(i int, r *report.Report) { // one of what [compare.Pool] refuses
			if i == 3 {
				r.Environment.Tenure = "fedcba9876543210"
			}
		}), "another commit"},
		"four runs, one on a busy machine": {four(func(i int, r *report.Report) {
			if i == 2 {
				r.Environment.Others = new(0.5)
			}
		}), "2.json: other programs"},
		"three runs are too few": {four(func(int, *report.Report) {})[:3], "no interval"},
	} {
		t.Run(name, func(t *testing.T) {
			file := fileOf(t, c.reports[0].Config.Thresholds, c.reports[0].Config.Publish...)
			own, err := scenario.Read(file, nil)
			must.Succeed(t, err)
			for _, r := range c.reports { // with rounds, from which a pool computes its ratios
				own.Load.Seed, own.Unwitnessed = r.Config.Load.Seed, r.Config.Unwitnessed
				r.Config = own
				for _, rate := range []float64{80, 81, 79, 80} {
					r.Results.Rounds = append(r.Results.Rounds, report.Round{Figures: map[string]float64{"throughput_per_s": rate}})
				}
				r.References = map[string]*report.Results{"floor": {Rounds: []report.Round{
					{Figures: map[string]float64{"throughput_per_s": 100}}, {Figures: map[string]float64{"throughput_per_s": 101}},
					{Figures: map[string]float64{"throughput_per_s": 100}}, {Figures: map[string]float64{"throughput_per_s": 99}},
				}}}
			}
			text, err := Publish(results, c.reports, file)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || text != "" {
					t.Errorf("got %q, %v; want a refusal with %q", text, err, c.want)
				}
				return
			}
			must.Succeed(t, err)
			for _, want := range []string{
				"intro", "old\n", "kept", "commit 0123456789,", "2 × a processor", "2027-01-15",
				"`bench run own.yaml --set size=small`",
				"| `results.lost` | 0 | at most 0 | ok |", "| `ratios.throughput_per_s/floor.value` | 0.8",
				"| `results.converge_ms.p50` | 1",
			} {
				if !strings.Contains(text, want) {
					t.Errorf("%q is missing from:\n%s", want, text)
				}
			}
			if strings.Contains(text, "old row") || strings.Count(text, "## own, small") != 1 {
				t.Errorf("the old section is still there:\n%s", text)
			}
			again, err := Publish(text, c.reports, file)
			if err != nil || again != text {
				t.Errorf("publishing twice changes the file: %v\n%s", err, again)
			}
		})
	}
}

func TestFiguresArePublishedOfAScenarioAsItIsNow(t *testing.T) {
	const seed, count, both = "load.seed=7", "load.count=9", "size=full --set count=9 --tenure x"
	for name, c := range map[string]struct {
		command string
		ran     []string
		change  func(*scenario.Scenario)
		want    string
	}{
		"as it comes":       {"noise --json x.json", nil, nil, ""},
		"with settings":     {"noise --set " + both, []string{"size=full", "count=9"}, nil, ""},
		"with another seed": {"noise --set " + seed, []string{seed}, nil, ""},
		"with others":       {"noise --set " + count, []string{"load.count=8"}, nil, "run it again"},
		"it has changed":    {"noise", nil, func(s *scenario.Scenario) { s.Fleet.Workers++ }, "run it again"},
		"other figures":     {"noise", nil, func(s *scenario.Scenario) { s.Publish = []string{"x"} }, "run it again"},
		"other thresholds":  {"noise", nil, func(s *scenario.Scenario) { s.Thresholds = nil }, ""},
		"a field that was":  {"noise --set fleet.gone=9", nil, nil, "can't be read again"},
	} {
		r := publishable()
		var err error
		r.Scenario, r.Command = "noise", "bench run "+c.command
		r.Config, err = scenario.Read("noise", c.ran)
		must.Succeed(t, err)
		if c.change != nil {
			c.change(&r.Config)
		}
		if err := Publishable([]*report.Report{r}, ""); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestFiguresArePublishedOfAnOwnFileAsItIsNow(t *testing.T) {
	r := publishable()
	file := fileOf(t, r.Config.Thresholds, r.Config.Publish...)
	var err error
	r.Config, err = scenario.Read(file, settings(r.Command))
	must.Succeed(t, err)
	must.Succeed(t, Publishable([]*report.Report{r}, file))
	r.Config.Fleet.Workers++
	if err := Publishable([]*report.Report{r}, file); err == nil || !strings.Contains(err.Error(), "run it again") {
		t.Errorf("the file has changed: %v", err)
	}
}

func TestAResultIsFiledUnderItsScenarioAndItsSettings(t *testing.T) {
	r := publishable()
	r.Command = "bench run at-burst --set size=full --set rounds=2 --set load.seed=3 --tenure x"
	if got, want := heading(r), "## own, small, rounds=2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
