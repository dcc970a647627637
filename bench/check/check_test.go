package check

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/bench/stats"
	"github.com/tenure-dev/tenure/test/must"
)

func within(value, low, high float64) stats.Ratio {
	return stats.Ratio{Value: value, Low: &low, High: &high, Rounds: 6}
}

// measured is a run whose figures are given.
func measured() *report.Report {
	return &report.Report{
		Scenario: "x", Config: scenario.Scenario{Size: "small"},
		Results: &report.Results{Lost: 2, Converge: &stats.Quantiles{P50: 12, P99: 40}},
		Ratios: map[string]stats.Ratio{
			"throughput_per_s/floor": within(0.8, 0.7, 0.9), "lateness_ms.p99/floor": within(1.2, 1.1, 1.3),
			"x/stock": {Value: 1},
		},
		Intervals: map[string]stats.Ratio{"results.converge_ms.p50": within(11, 9, 14)},
	}
}

func TestAThresholdHoldsOnlyOfAFigureThatIsThereAndWithinItsBoundsWithAllOfItsInterval(t *testing.T) {
	cases := map[string]struct {
		threshold scenario.Threshold
		want      string // ok, fail, left out
	}{
		"within max": {scenario.Threshold{Figure: "results.converge_ms.p99", Max: new(40.0)}, "ok"},
		"above max":  {scenario.Threshold{Figure: "results.lost", Max: new(0.0)}, "fail"},
		"the interval is above a min": {scenario.Threshold{Figure: "ratios.throughput_per_s/floor.value", Min: new(0.7)},
			"ok"},
		"only its value is above it": {scenario.Threshold{Figure: "ratios.throughput_per_s/floor.value", Min: new(0.75)},
			"fail"},
		"the interval is below a max": {scenario.Threshold{Figure: "results.converge_ms.p50", Max: new(14.0)}, "ok"},
		"only its value is below it":  {scenario.Threshold{Figure: "results.converge_ms.p50", Max: new(12.0)}, "fail"},
		"a figure's name has a dot": {scenario.Threshold{Figure: "ratios.lateness_ms.p99/floor.value", Max: new(1.3)},
			"ok"},
		"an interval's own bound": {scenario.Threshold{Figure: "ratios.throughput_per_s/floor.low", Min: new(0.7)},
			"ok"},
		"within both":     {scenario.Threshold{Figure: "results.lost", Min: new(1.0), Max: new(3.0)}, "ok"},
		"zero is a value": {scenario.Threshold{Figure: "results.early", Max: new(0.0)}, "ok"},
		"not measured":    {scenario.Threshold{Figure: "results.handoff_gap_ms.p99", Max: new(1e9)}, "fail"},
		"no such figure":  {scenario.Threshold{Figure: "results.speed", Min: new(-1.0)}, "fail"},
		"not a number":    {scenario.Threshold{Figure: "results.converge_ms", Min: new(-1.0)}, "fail"},
		"no such ratio": {scenario.Threshold{Figure: "ratios.throughput_per_s/stock.value", Min: new(-1.0)},
			"fail"},
		"no interval": {scenario.Threshold{Figure: "ratios.x/stock.low", Max: new(2.0)}, "fail"},
		"for another size": {scenario.Threshold{Figure: "results.lost", Max: new(0.0), Sizes: []string{"full"}},
			"left out"},
		"for this size, too": {scenario.Threshold{Figure: "results.early", Max: new(0.0),
			Sizes: []string{"full", "small"}}, "ok"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			verdicts, err := Check(measured(), []scenario.Threshold{c.threshold}, nil)
			must.Succeed(t, err)
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
	pooled := measured()
	pooled.Runs = 4
	verdicts, err := Check(pooled, []scenario.Threshold{{Figure: "results.lost", Max: new(5.0)}}, nil)
	if err != nil || verdicts[0].OK {
		t.Errorf("a pool has a figure of its first run alone: %+v, %v", verdicts, err)
	}
}

// fileOf writes the file of a scenario called own with such thresholds, which publishes some figures.
func fileOf(t *testing.T, thresholds []scenario.Threshold, publish ...string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"schema": scenario.Schema, "name": "own", "summary": "x",
		"load": map[string]any{"arrivals": "burst", "count": 1}, "thresholds": thresholds, "publish": publish})
	must.Succeed(t, err)
	file := filepath.Join(t.TempDir(), "own.yaml")
	must.Succeed(t, os.WriteFile(file, text, 0o600))
	return file
}

func TestAReportIsJudgedByItsScenariosFileAndNeverByTheThresholdsThatItCarries(t *testing.T) {
	mild, strict := []scenario.Threshold{{Figure: "results.lost", Max: new(9.0), Why: "x"}},
		[]scenario.Threshold{{Figure: "results.lost", Max: new(0.0), Why: "x"}}
	for name, c := range map[string]struct {
		scenario, file string
		want           string // in the error, or the verdict
	}{
		"one of ours":                 {"at-burst", "", "FAIL"},
		"a file of its own":           {"own", fileOf(t, strict), "FAIL"},
		"a file that isn't named":     {"own", "", `"own"`},
		"and the way out":             {"own", "", "--scenario"},
		"the file of another":         {"other", fileOf(t, mild), `"other"`},
		"a file that can't be read":   {"own", "/no/such.yaml", "/no/such.yaml"},
		"ours by the file of another": {"at-burst", fileOf(t, mild), `"at-burst"`},
	} {
		r := measured() // it has lost 2
		r.Scenario, r.Config.Thresholds = c.scenario, mild
		got := ""
		if err := Judge(r, c.file); err != nil {
			got = err.Error()
		}
		for _, v := range r.Checks {
			if v.Figure == "results.lost" {
				got = v.Word()
			}
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestTheListOfKnownMissesIsExact(t *testing.T) {
	// measured 0.8 [0.7, 0.9]
	threshold := scenario.Threshold{Figure: "ratios.throughput_per_s/floor.value", Min: new(0.9)}
	listed := func(figure, size string, value float64) []Miss {
		return []Miss{{Scenario: "x", Size: size, Figure: figure, Value: value, Since: "da0d644", Why: "the server's CPU"}}
	}
	for name, c := range map[string]struct {
		threshold scenario.Threshold
		known     []Miss
		word      string
		note      string
	}{
		"a listed miss":             {threshold, listed(threshold.Figure, "small", 0.65), "known miss", "the server's CPU"},
		"a miss that isn't listed":  {threshold, nil, "FAIL", ""},
		"listed for another size":   {threshold, listed(threshold.Figure, "full", 0.65), "FAIL", ""},
		"listed for another figure": {threshold, listed("results.lost", "small", 0.65), "FAIL", ""},
		"worse than listed":         {threshold, listed(threshold.Figure, "small", 0.75), "FAIL", "worse than 0.75"},
		"listed and holding": {scenario.Threshold{Figure: threshold.Figure, Min: new(0.7)},
			listed(threshold.Figure, "small", 0.65), "FAIL", "take it out"},
		"holding and not listed": {scenario.Threshold{Figure: threshold.Figure, Min: new(0.7)}, nil, "ok", ""},
		"listed and not measured": {scenario.Threshold{Figure: "results.speed", Min: new(9.0)},
			listed("results.speed", "small", 1), "FAIL", ""},
		"a listed miss of a maximum": {scenario.Threshold{Figure: "results.lost", Max: new(0.0)},
			listed("results.lost", "small", 2), "known miss", ""},
		"a maximum worse than that": {scenario.Threshold{Figure: "results.lost", Max: new(0.0)},
			listed("results.lost", "small", 1), "FAIL", "worse"},
	} {
		t.Run(name, func(t *testing.T) {
			verdicts, err := Check(measured(), []scenario.Threshold{c.threshold}, c.known)
			must.Succeed(t, err)
			v := verdicts[0]
			if v.Word() != c.word || v.OK != (c.word != "FAIL") || !strings.Contains(v.Text(), c.note) {
				t.Errorf("got %q, want %s and %q", v.Text(), c.word, c.note)
			}
		})
	}
}

func TestKnownMissesAreForRunsWithNothingSetBesideTheScenario(t *testing.T) {
	known, err := Misses()
	must.Succeed(t, err)
	for name, c := range map[string]struct {
		change func(*report.Report)
		want   string
	}{
		"as the scenario says": {func(*report.Report) {}, "known miss"},
		"another setting":      {func(r *report.Report) { r.Config.Fleet.Workers++ }, "FAIL"},
		"a Go variable": {func(r *report.Report) { r.Environment.GoSettings = map[string]string{"GOGC": "400"} },
			"FAIL"},
	} {
		r := measured()
		r.Scenario = known[0].Scenario
		if r.Config, err = scenario.Read(r.Scenario, []string{"size=" + known[0].Size}); err != nil {
			t.Fatal(err)
		}
		r.Ratios["throughput_per_s/floor"] = within(known[0].Value+0.02, known[0].Value+0.01, known[0].Value+0.03)
		c.change(r)
		must.Succeed(t, Judge(r, ""))
		i := slices.IndexFunc(r.Checks, func(v report.Verdict) bool { return v.Figure == known[0].Figure })
		if got := r.Checks[i].Word(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestTheListOfKnownMissesIsReadStrictly(t *testing.T) {
	if _, err := Misses(); err != nil {
		t.Errorf("ours: %v", err)
	}
	const good = "- {scenario: at-burst, size: full, figure: ratios.throughput_per_s/floor.value, value: 0.5, since: " +
		"da0d644, why: x}\n"
	if list, err := parseMisses([]byte(good)); err != nil || len(list) != 1 {
		t.Errorf("got %v, %v", list, err)
	}
	for name, c := range map[string]struct{ change, to, want string }{
		"no such scenario":  {"at-burst", "at-brust", "at-brust"},
		"no such size":      {"full", "huge", "huge"},
		"no such threshold": {"floor.value", "roof.value", "no such threshold"},
		"no commit":         {"da0d644", "yesterday", "no commit"},
		"no reason":         {"why: x", `why: ""`, "why is missing"},
		"no miss at all":    {"0.5", "0.95", "is no miss"},
		"an unknown field":  {"why:", "because:", "because"},
	} {
		if _, err := parseMisses([]byte(strings.Replace(good, c.change, c.to, 1))); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	if _, err := parseMisses([]byte(good + good)); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("the same twice: %v", err)
	}
}

func TestEverySizeOfAScenarioHasAThresholdOfItsOwnForWhatItMeasures(t *testing.T) {
	for _, name := range scenario.Names() {
		for _, size := range []string{"small", "full"} {
			s, err := scenario.Read(name, []string{"size=" + size})
			must.Succeed(t, err)
			if !slices.ContainsFunc(s.Thresholds, func(t scenario.Threshold) bool {
				return t.For(size) && (!isCounted(t.Figure) || strings.HasSuffix(t.Figure, ".max"))
			}) {
				t.Errorf("%s, size %s, judges nothing but counts", name, size)
			}
			for _, threshold := range s.Thresholds {
				if threshold.For(size) && slices.Contains(s.Publish, threshold.Figure) {
					t.Errorf("%s publishes %s twice: figures with thresholds are published anyway", name, threshold.Figure)
				}
			}
		}
	}
}
