package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/stats"
)

// writeReport makes a valid report of at-burst with a number of lost Ats.
func writeReport(t *testing.T, lost int) string {
	t.Helper()
	writes := 3.0
	r := report.Report{Schema: report.Schema, Scenario: "at-burst", Valid: true,
		Results: &report.Results{Objects: 9, Lost: lost, APIWrites: &writes}}
	r.Config.Size = "small"
	for _, rate := range []float64{100, 102, 99, 101} {
		r.Results.Rounds = append(r.Results.Rounds, report.Round{Figures: map[string]float64{"throughput_per_s": rate}})
	}
	r.Ratios = map[string]stats.Ratio{
		"throughput_per_s/floor": {Value: 0.9}, "cpu_seconds_per_object/stock": {Value: 1.5},
	}
	return write(t, r)
}

func write(t *testing.T, r report.Report) string {
	t.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWhatIsAskedInTheWrongWayIsSaidInOneLine(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other.json")
	if err := os.WriteFile(other, []byte(`{"schema":"x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no scenario":       {[]string{"run"}, "want a scenario"},
		"unknown scenario":  {[]string{"run", "at-brust"}, "at-burst"},
		"two scenarios":     {[]string{"run", "crash", "churn"}, `"churn"`},
		"unknown flag":      {[]string{"run", "--jsno", "x"}, "jsno"},
		"impossible value":  {[]string{"run", "crash", "--set", "replicas=0"}, "fleet.replicas"},
		"list takes none":   {[]string{"list", "x"}, `"x"`},
		"one report":        {[]string{"compare", other}, "compare A B"},
		"no report":         {[]string{"check", other}, `"x"`},
		"no such file":      {[]string{"check", "/no/such.json"}, "/no/such.json"},
		"floor needs ones":  {[]string{"floor"}, "kubeconfig"},
		"not a number":      {[]string{"algorithms", "--replicas", "1,x"}, `"x"`},
		"tour takes no arg": {[]string{"tour", "x"}, `"x"`},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs strings.Builder
			if code := run(c.args, &out, &errs); code != exitUsage {
				t.Errorf("exit code %d, want %d", code, exitUsage)
			}
			if !strings.Contains(errs.String(), c.want) {
				t.Errorf("got %q, want %s", errs.String(), c.want)
			}
		})
	}
}

func TestCheckTellsByItsExitCodeWhetherAllThresholdsHold(t *testing.T) {
	for lost, want := range map[int]int{0: exitOK, 2: exitFindings} {
		var out, errs strings.Builder
		if code := run([]string{"check", writeReport(t, lost)}, &out, &errs); code != want {
			t.Errorf("%d lost: exit code %d, want %d: %s%s", lost, code, want, out.String(), errs.String())
		}
		if !strings.Contains(out.String(), "results.lost") {
			t.Errorf("no word about what was checked: %q", out.String())
		}
	}
}

func TestAReportThatIsNotValidIsAFinding(t *testing.T) {
	for valid, want := range map[bool]int{true: exitOK, false: exitFindings} {
		r := report.Report{Schema: report.Schema, Scenario: "own", Valid: valid, Results: &report.Results{}}
		if !valid {
			r.Reasons = []string{"tenure: the witness found 1 violation"}
		}
		var out, errs strings.Builder
		if code := run([]string{"check", write(t, r)}, &out, &errs); code != want ||
			strings.Contains(out.String(), "INVALID") == valid {
			t.Errorf("valid %v: exit code %d: %s%s", valid, code, out.String(), errs.String())
		}
	}
}

func TestWhatCanNotBePublishedIsAFindingAndLeavesTheResultsAlone(t *testing.T) {
	results := filepath.Join(t.TempDir(), "RESULTS.md")
	if err := os.WriteFile(results, []byte("# Results\n"), 0o600); err != nil {
		t.Fatal(err)
	}
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
		if code := run([]string{"pool", write(t, r), write(t, r)}, &out, &errs); code != want {
			t.Errorf("cost %v: exit code %d, want %d: %s%s", cost, code, want, out.String(), errs.String())
		}
		if !strings.Contains(out.String(), "2 runs") || !strings.Contains(out.String(), "results.lost") {
			t.Errorf("got %q", out.String())
		}
	}
}

func TestListNamesEveryScenario(t *testing.T) {
	var out, errs strings.Builder
	if code := run([]string{"list"}, &out, &errs); code != exitOK || !strings.Contains(out.String(), "dead-cluster") {
		t.Errorf("exit code %d: %q %q", code, out.String(), errs.String())
	}
}
