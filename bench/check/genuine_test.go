package check

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/samples"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/bench/stats"
	"github.com/tenure-dev/tenure/test/must"
)

// genuine is the report of a run of four rounds beside a floor, as it is written and read.
func genuine(t *testing.T) *report.Report {
	t.Helper()
	rounds := func(mean float64) (all []report.Round) {
		for _, noise := range []float64{1, 1.1, 0.9, 1.05} {
			all = append(all, report.Round{Figures: map[string]float64{"throughput_per_s": mean * noise * noise / 3}})
		}
		return all
	}
	r := &report.Report{Valid: true, Results: &report.Results{Rounds: rounds(80)},
		References: map[string]*report.Results{"floor": {Rounds: rounds(100)}}}
	r.Config.Rounds, r.Config.Load.Seed = 4, 7
	r.Ratios, r.Intervals = report.Derived(r, samples.Untraced)
	text, err := json.Marshal(r)
	must.Succeed(t, err)
	read := &report.Report{File: "a.json"}
	must.Succeed(t, json.Unmarshal(text, read))
	return read
}

func TestAReportThatWasEditedIsRefused(t *testing.T) {
	const ratio, interval = "throughput_per_s/floor", "results.throughput_per_s"
	for name, c := range map[string]struct {
		edit func(*report.Report)
		want string // in the refusal; "" for none
	}{
		"as it was written": {func(*report.Report) {}, ""},
		"a ratio": {func(r *report.Report) { r.Ratios[ratio] = within(1.2, 1.1, 1.3) },
			"a.json: its ratio of " + ratio + " is 1.2"},
		"a ratio's bound": {func(r *report.Report) { *r.Ratios[ratio].Low = 0.01 }, "its ratio of " + ratio},
		"a ratio more":    {func(r *report.Report) { r.Ratios["x/floor"] = stats.Ratio{Value: 9} }, "x/floor is 9"},
		"an interval": {func(r *report.Report) { delete(r.Intervals, interval) },
			"its interval of " + interval + " is 0"},
		"a round": {func(r *report.Report) { r.Results.Rounds[0].Figures["throughput_per_s"] = 99 },
			"its rounds give"},
		"a round less": {func(r *report.Report) { r.References["floor"].Rounds = r.References["floor"].Rounds[1:] },
			"it has 3 rounds of floor, and its settings ask for 4"},
		"noises": {func(r *report.Report) { r.Config.Noises = []scenario.Noise{"a", "b"} }, "its settings ask for 8"},
		"as many rates as are tried": {func(r *report.Report) {
			r.Config.Rounds, r.Config.Load.Rates, r.References = 1, []float64{1, 2, 3, 4, 5}, nil
			r.Ratios, r.Intervals = nil, nil
		}, ""},
		"a run that ended early": {func(r *report.Report) { r.Valid, r.Config.Rounds = false, 9 }, ""},
		"a pool":                 {func(r *report.Report) { r.Runs = 4 }, "is a pool of 4 runs"},
	} {
		r := genuine(t)
		c.edit(r)
		if err := Genuine(r); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
