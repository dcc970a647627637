package check

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/bench/stats"
)

func bound(v float64) *float64 { return &v }

func TestAThresholdHoldsOnlyOfAFigureThatIsThereAndWithinItsBounds(t *testing.T) {
	r := &report.Report{
		Config:  scenario.Scenario{Size: "small"},
		Results: &report.Results{Lost: 2, Converge: &stats.Quantiles{P99: 40}},
		Ratios:  map[string]stats.Ratio{"throughput_per_s/floor": {Value: 0.8}},
	}
	cases := map[string]struct {
		threshold scenario.Threshold
		want      string // ok, fail, left out
	}{
		"within max":         {scenario.Threshold{Figure: "results.converge_ms.p99", Max: bound(40)}, "ok"},
		"above max":          {scenario.Threshold{Figure: "results.lost", Max: bound(0)}, "fail"},
		"below min":          {scenario.Threshold{Figure: "ratios.throughput_per_s/floor.value", Min: bound(0.9)}, "fail"},
		"within both":        {scenario.Threshold{Figure: "results.lost", Min: bound(1), Max: bound(3)}, "ok"},
		"zero is a value":    {scenario.Threshold{Figure: "results.early", Max: bound(0)}, "ok"},
		"not measured":       {scenario.Threshold{Figure: "results.handoff_gap_ms.p99", Max: bound(1e9)}, "fail"},
		"no such figure":     {scenario.Threshold{Figure: "results.speed", Min: bound(-1)}, "fail"},
		"not a number":       {scenario.Threshold{Figure: "results.converge_ms", Min: bound(-1)}, "fail"},
		"no interval":        {scenario.Threshold{Figure: "ratios.throughput_per_s/floor.low", Max: bound(2)}, "fail"},
		"for another size":   {scenario.Threshold{Figure: "results.lost", Max: bound(0), Sizes: []string{"full"}}, "left out"},
		"for this size, too": {scenario.Threshold{Figure: "results.early", Max: bound(0), Sizes: []string{"full", "small"}}, "ok"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			verdicts, err := Check(r, []scenario.Threshold{c.threshold})
			if err != nil {
				t.Fatal(err)
			}
			got := "left out"
			if len(verdicts) == 1 {
				got = map[bool]string{true: "ok", false: "fail"}[verdicts[0].OK]
				if text := verdicts[0].Text(); !strings.Contains(text, c.threshold.Figure) {
					t.Errorf("text %q doesn't name the figure", text)
				}
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
