package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/bench/audit/audittest"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/must"
)

func TestFiguresAreThoseOfOurControllers(t *testing.T) {
	m, err := lab.ParseMetrics(strings.NewReader(`# TYPE workqueue_depth gauge
workqueue_depth{controller="at",name="at",priority="-100"} 7
workqueue_depth{controller="replication",name="replication",priority="0"} 5
workqueue_depth{controller="other",name="other",priority="0"} 99
# TYPE controller_runtime_reconcile_total counter
controller_runtime_reconcile_total{controller="at",result="success"} 1.5e+03
controller_runtime_reconcile_total{controller="at",result="error"} 2
`))
	if got, want := figuresOf(m), (figures{queue: 12, reconciled: 1502}); err != nil || got != want {
		t.Errorf("figures %+v (%v), want %+v", got, err, want)
	}
}

func TestPlanSpreadsTheAtsOverClustersAndTime(t *testing.T) {
	start := time.Date(2030, 1, 2, 3, 4, 5, 600e6, time.UTC)
	orders := planAts(600, start, 30*time.Second)
	clusters, names, now := map[string]int{}, map[atID]bool{}, 0
	var latest time.Time
	for _, o := range orders {
		clusters[o.cluster]++
		names[atID{o.cluster, o.at.Namespace, o.at.Name}] = true
		due := dueTime(*o.at)
		if due.Nanosecond() != 0 {
			t.Fatalf("due at %s: want whole seconds", due)
		}
		if !due.After(start) {
			now++
		}
		if due.After(latest) {
			latest = due
		}
	}
	expect.Equal(t, "Ats per cluster", map[string]int{"west": 200, "east": 200, "north": 200}, clusters)
	if len(names) != 600 {
		t.Errorf("%d different names, want 600", len(names))
	}
	if now < 300 || now > 310 {
		t.Errorf("%d due at once, want 300 and those of the first second", now)
	}
	if want := start.Add(30 * time.Second).Truncate(time.Second); !latest.Equal(want) {
		t.Errorf("latest due %s, want %s", latest, want)
	}
}

// auditFile writes an audit log.
func auditFile(t *testing.T, log string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "audit.log")
	must.Succeed(t, os.WriteFile(file, []byte(log), 0o600))
	return file
}

func TestAuditLogTellsOfSelectors(t *testing.T) {
	const filtered = "/apis/x/v1/ats?watch=true&shardSelector=" +
		"shardRange%28object.metadata.uid%2C+%270x00%27%2C+%270x10%27%29"
	line := func(user, verb, uri string) string {
		return audittest.Line(audit.Event{User: user, Verb: verb, Group: audit.AtGroup, Resource: "ats", Namespace: "shop",
			URI: uri, Code: 200})
	}
	log := line("us", "watch", filtered) + line("us", "watch", filtered) + line("us", "list", "/apis/x/v1/ats") +
		line("others", "list", "/apis/x/v1/ats")
	got, err := readAudit(auditFile(t, log), "us")
	must.Succeed(t, err)
	want := auditFacts{filtered: 2, unfiltered: 1}
	expect.Equal(t, "facts", want, got, cmp.AllowUnexported(auditFacts{}, request{}))
}

func TestGapOfACrashCountsFromItsEnd(t *testing.T) {
	end := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	a := lab.Line{Time: end.Add(4500 * time.Millisecond), Shard: "west/01", Epoch: 7, Kind: protocol.Crash, GapMS: 0.5}
	crash, planned := handoff{Kind: protocol.Crash, From: "r2-x", Epoch: 7},
		handoff{Kind: protocol.Planned, From: "r2-x", Epoch: 7}
	skipped := handoff{Kind: protocol.Planned, From: "r2-x", Epoch: 6, time: end.Add(time.Second)}
	for _, c := range []struct {
		name  string
		h     handoff
		began *lab.Line
		end   time.Time
		want  *float64
	}{
		{"a crash", crash, &a, end, new(4500.0)},
		{"a crash whose time nobody knows", crash, &a, time.Time{}, nil},
		{"a crash that nobody has taken over yet", crash, nil, end, nil},
		{"a planned move", planned, &a, time.Time{}, new(0.5)},
		{"a planned move that isn't through", planned, nil, time.Time{}, nil},
		{"a planned move to one that lapsed before it began", skipped, &a, time.Time{}, new(3500.0)},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect.Equal(t, "gap", c.want, gap(c.h, c.began, c.end))
		})
	}
}
