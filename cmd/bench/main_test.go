package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/bench/audit/audittest"
	"github.com/tenure-dev/tenure/bench/witness"
	"github.com/tenure-dev/tenure/test/must"
)

// line is a write of an epoch in a second.
func line(epoch, second int) string {
	received := time.Date(2026, 11, 20, 10, 0, second, 0, time.UTC)
	return audittest.Line(audit.Event{Verb: "patch", User: "tenure", Group: audit.AppsGroup, Resource: "deployments",
		Namespace: "ns", Name: "web", Code: 200, Received: received.UnixMicro(),
		Completed: received.Add(500 * time.Millisecond).UnixMicro(),
		UserAgent: fmt.Sprintf("tenure/v1 (shard=west/; epoch=%d; incarnation=r-%d)", epoch, epoch)})
}

func logDir(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "west"), 0o755))
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "west", "audit.log"), []byte(text), 0o644))
	return dir
}

func TestBenchExitsAndSaysWhy(t *testing.T) {
	clean := logDir(t, line(1, 1)+line(2, 2))
	fallen := logDir(t, line(2, 1)+line(1, 2))
	garbage := logDir(t, "garbage\n")
	other := filepath.Join(t.TempDir(), "other.json")
	must.Succeed(t, os.WriteFile(other, []byte(`{"schema":"x"}`), 0o600))
	waived := []string{"--unwitnessed", "a few lines", "--waive", "no-body=level Metadata"}
	tests := []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string
	}{
		{"no command", nil, exitUsage, "witness", "want a command"},
		{"help", []string{"help"}, exitOK, "Exit code", ""},
		{"an unknown command", []string{"wittness"}, exitUsage, "", `unknown command "wittness", did you mean witness?`},
		{"an unknown flag", []string{"witness", clean, "--loud"}, exitUsage, "", "unknown flag: --loud"},
		{"a flag's help", []string{"witness", "-h"}, exitOK, "bench witness DIR", ""},
		{"no directory", []string{"witness"}, exitUsage, "", "want a directory of audit logs"},
		{"two directories", []string{"witness", clean, fallen}, exitUsage, "", "a directory of audit logs, one"},
		{"a directory that is not there", []string{"witness", "/does/not/exist"}, exitUsage, "", "looking for audit logs"},
		{"a directory without logs", []string{"witness", t.TempDir()}, exitUsage, "", "no audit logs found"},
		{"an unreadable line", []string{"witness", garbage}, exitUsage, "", "west/audit.log:1: unreadable line"},
		{"a kubeconfig without a cluster", []string{"run", "at-burst", "--kubeconfig", "x"}, exitUsage, "",
			"want CLUSTER=FILE"},
		{"no write in flight", []string{"witness", "--in-flight", "0", clean}, exitUsage, "", "--in-flight"},
		{"a negative skew", []string{"witness", "--skew", "-1s", clean}, exitUsage, "", "can't be negative"},
		{"a log that lacks most of what is to be judged", []string{"witness", clean}, exitFindings,
			"evidence no-records", ""},
		{"a clean log, and why it lacks that", append([]string{"witness", clean}, waived...), exitOK,
			"no violation found", ""},
		{"an excuse for a broken invariant", []string{"witness", clean, "--waive", "lost-at=why not"}, exitUsage, "",
			"only missing evidence can be waived"},
		{"a restore without its time", []string{"witness", clean, "--restored", "home"}, exitUsage, "", "want CLUSTER=TIME"},
		{"a restore of a cluster without a log", []string{"witness", clean, "--restored", "wst=2026-11-20T10:00:00Z"},
			exitUsage, "", `--restored "wst=2026-11-20T10:00:00Z": no log is of cluster "wst"; there are logs of west`},
		{"a restore of no cluster", []string{"witness", clean, "--restored", "=2026-11-20T10:00:00Z"}, exitUsage, "",
			`no log is of cluster ""`},
		{"a restore of a cluster with a log", append([]string{"witness", clean, "--restored", "west=2026-11-20T10:00:00Z"},
			waived...), exitOK, "no violation found", ""},
		{"a user by whom no line is", append([]string{"witness", clean, "--user", "tenur"}, waived...), exitUsage, "",
			`--user "tenur": no line of the logs is by that user; those with the User-Agent of a replica are by tenure`},
		{"a user who wrote", append([]string{"witness", clean, "--user", "tenure"}, waived...), exitOK,
			"no violation found", ""},
		{"a log with a violation", []string{"witness", fallen}, exitFindings, "falling-epoch", ""},

		{"the scenarios", []string{"list"}, exitOK, "dead-cluster", ""},
		{"list takes none", []string{"list", "x"}, exitUsage, "", `"x"`},
		{"no scenario", []string{"run"}, exitUsage, "", "want a scenario (bench list) or a file\n"},
		{"an unknown scenario", []string{"run", "at-brust"}, exitUsage, "", "at-burst"},
		{"two scenarios", []string{"run", "crash", "churn"}, exitUsage, "", `"churn"`},
		{"an unknown flag of run", []string{"run", "--jsno", "x"}, exitUsage, "", "jsno"},
		{"an impossible value", []string{"run", "churn", "--set", "replicas=0"}, exitUsage, "", "fleet.replicas"},
		{"a report below a file", []string{"run", "churn", "--json", other + "/x/y.json"}, exitUsage, "", "--json"},
		{"a page below a file", []string{"run", "churn", "--html", other + "/x.html"}, exitUsage, "", "--html"},
		{"a report that is a folder", []string{"run", "churn", "--json", clean, "--tenure", "/nope"}, exitUsage, "",
			"is a directory"},
		{"a report in a folder that takes none", []string{"run", "churn", "--json", "/proc/x.json", "--tenure", "/nope"},
			exitUsage, "", "--json"},
		{"profiles below a file", []string{"run", "churn", "--profile", other + "/x", "--tenure", "/nope"}, exitUsage, "",
			"folder of profiles"},
		{"tour takes none", []string{"tour", "x"}, exitUsage, "", `"x"`},
		{"one report to compare", []string{"compare", other}, exitUsage, "", "compare A B"},
		{"no report", []string{"check", other}, exitUsage, "", `"x"`},
		{"no such file", []string{"check", "/no/such.json"}, exitUsage, "", "/no/such.json"},
		{"a floor of no cluster", []string{"floor"}, exitUsage, "", "kubeconfig"},
		{"not a number", []string{"algorithms", "--replicas", "1,x"}, exitUsage, "", `"x"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr strings.Builder
			if code := run(tt.args, &stdout, &stderr); code != tt.code {
				t.Errorf("exit code %d, want %d; stderr: %s", code, tt.code, stderr.String())
			}
			if !strings.Contains(stdout.String(), tt.stdout) || !strings.Contains(stderr.String(), tt.stderr) {
				t.Errorf("want %q on stdout and %q on stderr, got:\n%s\n%s", tt.stdout, tt.stderr, stdout.String(), stderr.String())
			}
			if strings.Count(stderr.String(), "\n") > 1 {
				t.Errorf("an error is more than a line:\n%s", stderr.String())
			}
		})
	}
}

func TestAReportAndItsPageAreTwoFilesAndARefusedRunLeavesNeither(t *testing.T) {
	dir, used := t.TempDir(), t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(used, "x"), nil, 0o600)) // so that no run uses it
	one, link := filepath.Join(dir, "one"), filepath.Join(dir, "link")
	must.Succeed(t, os.Symlink(one, link))
	for _, c := range []struct{ json, html, want string }{
		{one, one, "is the file of --json, too"}, {one, link, "is the file of --json, too"},
		{one, filepath.Join(dir, "two"), "is not empty"},
	} {
		var out, errs strings.Builder
		code := run([]string{"run", "churn", "--json", c.json, "--html", c.html, "--dir", used}, &out, &errs)
		if code != exitUsage || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%s and %s: exit code %d: %s", c.json, c.html, code, errs.String())
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("%s and %s leave %v, %v", c.json, c.html, left, err)
		}
	}
	const kept = "{}"
	must.Succeed(t, os.WriteFile(one, []byte(kept), 0o600))
	var out, errs strings.Builder
	run([]string{"run", "churn", "--json", one, "--dir", used}, &out, &errs)
	if text, err := os.ReadFile(one); err != nil || string(text) != kept {
		t.Errorf("a report that was there is now %q, %v", text, err)
	}
}

func TestWhatFailsAfterASignalWasInterrupted(t *testing.T) {
	killed := errors.New("kubectl apply: signal: killed")
	over, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		code int
		text string
	}{
		"a failure":                {t.Context(), killed, exitUsage, killed.Error()},
		"a failure after a signal": {over, killed, exitUsage, "interrupted"},
		"done after a signal":      {over, nil, exitOK, ""},
		"findings after a signal":  {over, errFindings, exitFindings, ""},
	} {
		if code, text := outcome(c.ctx, c.err); code != c.code || text != c.text {
			t.Errorf("%s: %d and %q, want %d and %q", name, code, text, c.code, c.text)
		}
	}
}

func TestTheJSONReportSaysWhatTheTextSays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	var stdout, stderr strings.Builder
	if code := run([]string{"witness", logDir(t, line(2, 1)+line(1, 2)), "--json", file}, &stdout,
		&stderr); code != exitFindings {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	data, err := os.ReadFile(file)
	must.Succeed(t, err)
	var r witness.Report
	must.Succeed(t, json.Unmarshal(data, &r))
	if r.Schema != witness.Schema || r.OK || r.Counts[witness.FallingEpoch] != 1 || r.Violations[0].Second.Line != 2 {
		t.Errorf("report: %s", data)
	}
}
