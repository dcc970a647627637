package compare

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/bench/report"
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
			if err != nil {
				t.Fatal(err)
			}
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
	other := reportOf(1, 2, 3)
	other.Scenario = "crash"
	for name, pair := range map[string][2]*report.Report{
		"other scenario": {reportOf(1, 2, 3), other},
		"no results":     {reportOf(1, 2, 3), {Scenario: "at-burst"}},
		"no rounds":      {reportOf(1, 2, 3), reportOf()},
	} {
		if _, err := Compare(pair[0], pair[1]); err == nil {
			t.Errorf("%s: compared", name)
		}
	}
}

func TestWhatStandsAgainstAComparisonIsSaid(t *testing.T) {
	b := reportOf(1, 2, 3)
	b.Valid, b.Config.Fleet.Replicas, b.Environment.CPUs = false, 7, 64
	c, err := Compare(reportOf(1, 2, 3), b)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(c.Notices, "\n")
	for _, want := range []string{"B is not valid", "fleets or loads differ", "different machines", "in turns"} {
		if !strings.Contains(all, want) {
			t.Errorf("no notice about %q in %q", want, all)
		}
	}
}

func TestTheTurnsOfSeveralRunsAreOnePool(t *testing.T) {
	var reports []*report.Report
	for i, rates := range [][2]float64{{100, 80}, {50, 40}, {200, 160}} { // machines of different speed
		turn := func(rate float64) []report.Round {
			var rounds []report.Round
			for j := range 4 {
				noise := 1 + float64((i*4+j)%3-1)/1000
				rounds = append(rounds, report.Round{Figures: map[string]float64{"reconciles_per_s": rate * noise}})
			}
			return rounds
		}
		reports = append(reports, &report.Report{Scenario: "tracing", Valid: true, Results: &report.Results{Turns: map[string][]report.Round{
			"untraced": turn(rates[0]), "traced": turn(rates[1]),
		}}})
	}
	pooled, err := Pool(reports)
	if err != nil {
		t.Fatal(err)
	}
	got := pooled.Ratios["reconciles_per_s/traced"]
	if len(pooled.Ratios) != 1 || got.Rounds != 12 || got.Value < 1.249 || got.Value > 1.251 {
		t.Errorf("%+v", pooled.Ratios)
	}
	var b strings.Builder
	if err := pooled.Text(&b); err != nil || !strings.Contains(b.String(), "3 runs") || !strings.Contains(b.String(), "1.250") {
		t.Errorf("text %q, %v", b.String(), err)
	}
	small := *reports[0]
	small.Config.Size = "small"
	for name, refused := range map[string][]*report.Report{
		"other size":     {reports[0], &small},
		"nothing":        nil,
		"no turns":       {reportOf(1, 2, 3)},
		"other scenario": {reports[0], reportOf(1, 2, 3)},
		"not valid":      {reports[0], {Scenario: "tracing", Results: reports[0].Results}},
	} {
		if _, err := Pool(refused); err == nil {
			t.Errorf("%s: pooled", name)
		}
	}
}
