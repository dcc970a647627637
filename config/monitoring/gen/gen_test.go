package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheCommittedFilesAreWhatTheGeneratorWrites(t *testing.T) {
	folder := t.TempDir()
	rules, err := os.ReadFile("../rules.yaml")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(folder, "rules.yaml"), rules, 0o600))
	must(t, write(folder))
	for _, name := range []string{"dashboard.json", "metrics.txt"} {
		want, err := os.ReadFile(filepath.Join(folder, name))
		must(t, err)
		got, err := os.ReadFile(filepath.Join("..", name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is out of date (%v): make monitoring writes it", name, err)
		}
	}
}

func TestTheDashboardKeepsToGrafanasSchema(t *testing.T) {
	content, err := encode()
	must(t, err)
	if err := strict(content); err != nil {
		t.Error(err)
	}
	spoilt := bytes.Replace(content, []byte(`"refresh"`), []byte(`"refrehs"`), 1)
	if err := strict(spoilt); err == nil {
		t.Error("a misspelt field went unnoticed: this check checks nothing")
	}
}

func TestEveryPanelAsksForSomethingAndSaysWhatItShows(t *testing.T) {
	content, err := encode()
	must(t, err)
	panels, err := dashboardExpressions(content)
	must(t, err)
	if len(panels) < 20 {
		t.Errorf("only %d panels have expressions", len(panels))
	}
	for title, expressions := range panels {
		for _, text := range expressions {
			if !strings.Contains(text, fleet) {
				t.Errorf("%s: %s isn't limited to the fleet that was chosen", title, text)
			}
		}
	}
}

func TestAnExpressionThatIsNoPromQLIsFound(t *testing.T) {
	if err := collect("sum by (x (y)", map[string]bool{}); err == nil {
		t.Error("not found")
	}
}

// promtool is Prometheus' own, built from this module by `make promtool`.
func promtool(t *testing.T, args ...string) string {
	t.Helper()
	path, err := filepath.Abs("../../../bin/promtool")
	must(t, err)
	command := exec.CommandContext(t.Context(), path, args...)
	command.Dir = ".."
	out, err := command.CombinedOutput()
	if err != nil {
		t.Errorf("promtool %v: %v (make promtool builds it)\n%s", args, err, out)
	}
	return string(out)
}

func TestTheAlertsComeWhenTheyShouldAndNotOtherwise(t *testing.T) {
	promtool(t, "check", "rules", "rules.yaml")
	promtool(t, "test", "rules", "rules_test.yaml")
}

func TestEveryAlertIsTestedBothWaysAndIsInTheRunbook(t *testing.T) {
	alerts, err := ruleExpressions("../rules.yaml")
	must(t, err)
	read := func(path string) string {
		content, err := os.ReadFile(path)
		must(t, err)
		return string(content)
	}
	rules, tests, runbook := read("../rules.yaml"), read("../rules_test.yaml"), read("../../RUNBOOK.md")
	for alert := range alerts {
		if !regexp.MustCompile(`alertname: ` + alert + `\}`).MatchString(tests) {
			t.Errorf("%s: no test says when it is silent", alert)
		}
		if !regexp.MustCompile(`alertname: ` + alert + `\n\s+exp_alerts:`).MatchString(tests) {
			t.Errorf("%s: no test says when it comes", alert)
		}
		if !strings.Contains(rules, "RUNBOOK.md#"+strings.ToLower(alert)+"\n") {
			t.Errorf("%s: doesn't lead to its entry in the runbook", alert)
		}
		_, entry, found := strings.Cut(runbook, "\n## "+alert+"\n")
		entry, _, _ = strings.Cut(entry, "\n## ")
		for _, part := range []string{"**Meaning.**", "**Detect.**", "**Identify.**", "**Act.**", "**Verify.**"} {
			if !found || !strings.Contains(entry, part) {
				t.Errorf("%s: the runbook has no %s", alert, part)
			}
		}
	}
	if len(alerts) < 7 {
		t.Errorf("only %d alerts", len(alerts))
	}
}
