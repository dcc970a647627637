package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/samples"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/test/must"
)

// writeReport makes a valid report of at-burst with a number of lost Ats.
func writeReport(t *testing.T, lost int) string {
	t.Helper()
	writes := 3.0
	r := report.Report{Schema: report.Schema, Scenario: "at-burst", Valid: true,
		Results: &report.Results{Objects: 9, Lost: lost, APIWrites: &writes}}
	r.Config.Size = "small"
	rounds := func(throughput, cpu float64) (all []report.Round) {
		for _, noise := range []float64{1, 1.02, 0.99, 1.01} {
			all = append(all, report.Round{Figures: map[string]float64{"throughput_per_s": noise * throughput,
				"cpu_seconds_per_object": noise * cpu}})
		}
		return all
	}
	r.Config.Rounds, r.Results.Rounds = 4, rounds(90, 1.4)
	r.References = map[string]*report.Results{"floor": {Rounds: rounds(100, 0.1)}, "stock": {Rounds: rounds(100, 1)}}
	return write(t, r)
}

func write(t *testing.T, r report.Report) string {
	t.Helper()
	r.Ratios, r.Intervals = report.Derived(&r, samples.Untraced)
	data, err := json.Marshal(r)
	must.Succeed(t, err)
	path := filepath.Join(t.TempDir(), "report.json")
	must.Succeed(t, os.WriteFile(path, data, 0o600))
	return path
}

func TestCheckTellsByItsExitCodeWhetherAllThresholdsHold(t *testing.T) {
	own := report.Report{Schema: report.Schema, Scenario: "own", Valid: true, Results: &report.Results{}}
	without := func(name string) (file string) { // thresholds
		file = filepath.Join(t.TempDir(), name+".yaml")
		must.Succeed(t, os.WriteFile(file, []byte("{schema: "+scenario.Schema+", name: "+name+", summary: x, load: "+
			"{arrivals: burst, count: 1}}"), 0o600))
		return file
	}
	file := without("own")
	invalid := own
	invalid.Valid, invalid.Reasons = false, []string{"tenure: the witness found 1 violation"}
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"all hold":          {[]string{writeReport(t, 0)}, exitOK, "results.lost"},
		"all hold, but":     {[]string{writeReport(t, 0)}, exitOK, "report.json: no witness judged it\nwarning: "},
		"one doesn't":       {[]string{writeReport(t, 2)}, exitFindings, "results.lost"},
		"none is given":     {[]string{write(t, own), "--scenario", file}, exitOK, ""},
		"none is known":     {[]string{write(t, own)}, exitUsage, ""},
		"of ours by a file": {[]string{writeReport(t, 0), "--scenario", without("at-burst")}, exitUsage, ""},
		"not valid":         {[]string{write(t, invalid), "--scenario", file}, exitFindings, "INVALID: tenure: the witness"},
	} {
		var out, errs strings.Builder
		if code := run(append([]string{"check"}, c.args...), &out, &errs); code != c.code ||
			!strings.Contains(out.String(), c.says) ||
			strings.Contains(out.String(), "INVALID") != (name == "not valid") {
			t.Errorf("%s: exit code %d, want %d and %q: %s%s", name, code, c.code, c.says, out.String(), errs.String())
		}
	}
}

func TestAnEditedReportIsNotJudged(t *testing.T) {
	path := writeReport(t, 0)
	text, err := os.ReadFile(path)
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(path, []byte(strings.Replace(string(text), `"value":`, `"value":1`, 1)), 0o600))
	for _, command := range []string{"check", "pool", "publish"} {
		var out, errs strings.Builder
		if code := run([]string{command, path}, &out, &errs); code != exitUsage || !strings.Contains(errs.String(), "give") {
			t.Errorf("%s: exit code %d: %s%s", command, code, out.String(), errs.String())
		}
	}
}

func TestADamagedReportIsRefusedWithItsFileAndField(t *testing.T) {
	text, err := os.ReadFile(writeReport(t, 0))
	must.Succeed(t, err)
	low := map[string]any{"x": map[string]any{"value": 1, "low": 1}}
	for field, damage := range map[string]map[string]any{
		"results is missing":          {"results": nil},
		"references.floor is missing": {"references": map[string]any{"floor": nil}},
		"sweep[0].results is missing": {"sweep": []any{map[string]any{}}},
		"ratios.x has one bound":      {"ratios": low},
		"intervals.x has one bound":   {"intervals": low},
	} {
		var report map[string]any
		must.Succeed(t, json.Unmarshal(text, &report))
		maps.Copy(report, damage)
		damaged, err := json.Marshal(report)
		must.Succeed(t, err)
		path := filepath.Join(t.TempDir(), "damaged.json")
		must.Succeed(t, os.WriteFile(path, damaged, 0o600))
		for _, args := range [][]string{{"check", path}, {"pool", path}, {"publish", path}, {"compare", path, path}} {
			var out, errs strings.Builder
			if code := run(args, &out, &errs); code != exitUsage ||
				!strings.Contains(errs.String(), path+" is damaged: "+field) {
				t.Errorf("%s, %s: exit code %d: %s%s", args[0], field, code, out.String(), errs.String())
			}
		}
	}
}

func TestWhatCanNotBePublishedIsAFindingAndLeavesTheResultsAlone(t *testing.T) {
	results := filepath.Join(t.TempDir(), "RESULTS.md")
	must.Succeed(t, os.WriteFile(results, []byte("# Results\n"), 0o600))
	var out, errs strings.Builder
	if code := run([]string{"publish", writeReport(t, 0), "--into", results}, &out, &errs); code != exitFindings {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	if text, err := os.ReadFile(results); err != nil || string(text) != "# Results\n" ||
		!strings.Contains(out.String(), "no witness") {
		t.Errorf("%q, %v; said %q", text, err, out.String())
	}
}

func TestCompareShowsBothReports(t *testing.T) {
	var out, errs strings.Builder
	if code := run([]string{"compare", writeReport(t, 0), writeReport(t, 0)}, &out, &errs); code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	if !strings.Contains(out.String(), "throughput_per_s") || !strings.Contains(out.String(), "no difference found") {
		t.Errorf("got %q", out.String())
	}
}

func TestPoolHoldsTheTurnsOfAllRunsAgainstTheThresholds(t *testing.T) {
	for cost, want := range map[float64]int{1.02: exitOK, 1.04: exitFindings} {
		r := report.Report{Schema: report.Schema, Scenario: "tracing", Valid: true,
			Results: &report.Results{Turns: map[string][]report.Round{}}}
		r.Config.Size = "full"
		for name, factor := range map[string]float64{"untraced": 1, "sampled": 1, "traced": 1 / cost} {
			for _, rate := range []float64{100, 140, 120} {
				r.Results.Turns[name] = append(r.Results.Turns[name], report.Round{Figures: map[string]float64{
					"reconciles_per_s": rate * factor, "servers_cpu_share": .84,
				}})
			}
		}
		var out, errs strings.Builder
		args := []string{"pool", write(t, r)}
		r.Config.Load.Seed = 2
		if code := run(append(args, write(t, r)), &out, &errs); code != want {
			t.Errorf("cost %v: exit code %d, want %d: %s%s", cost, code, want, out.String(), errs.String())
		}
		if !strings.Contains(out.String(), "2 runs") || !strings.Contains(out.String(), "results.lost") {
			t.Errorf("got %q", out.String())
		}
	}
}
