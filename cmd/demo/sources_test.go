package main

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/bench/audit"
)

func TestFiguresAreSummedOverSeries(t *testing.T) {
	page := `# HELP workqueue_depth Current depth
# TYPE workqueue_depth gauge
workqueue_depth{controller="at",name="at",priority="-100"} 7
workqueue_depth{controller="at",name="at",priority="0"} 5
workqueue_depth{controller="other",name="other",priority="0"} 99
controller_runtime_reconcile_total{controller="at",result="success"} 1.5e+03
controller_runtime_reconcile_total{controller="at",result="error"} 2 1700000000
tenure_watch_discarded_total{cluster="west"} 3
tenure_watch_discarded_total{cluster="a \"}\" name"} 4
go_goroutines 12
nonsense
`
	got, err := readFigures(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	want := figures{queue: 12, reconciled: 1502, discarded: map[string]int{"west": 3, `a "}" name`: 4}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(figures{})); diff != "" {
		t.Error("figures (-want +got):\n" + diff)
	}
}

func TestAReplicaThatDoesNotTellOfDiscardsIsNotTakenForOneWithNone(t *testing.T) {
	got, err := readFigures(strings.NewReader("go_goroutines 12\n"))
	if err != nil || got.discarded != nil {
		t.Errorf("discarded = %v (%v), want nil", got.discarded, err)
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
	if diff := cmp.Diff(map[string]int{"west": 200, "east": 200, "north": 200}, clusters); diff != "" {
		t.Error("Ats per cluster (-want +got):\n" + diff)
	}
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

func auditLine(user, verb, group, resource, name, uri string, code int) string {
	return fmt.Sprintf(`{"stage":"ResponseComplete","verb":%q,"requestURI":%q,"user":{"username":%q},"objectRef":{"apiGroup":%q,"resource":%q,"namespace":"shop","name":%q},`+
		`"responseStatus":{"code":%d},"requestReceivedTimestamp":"2030-01-02T03:04:05.100000Z","stageTimestamp":"2030-01-02T03:04:05.200000Z"}`+"\n",
		verb, uri, user, group, resource, name, code)
}

// auditFile writes an audit log.
func auditFile(t *testing.T, log string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(file, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAuditLogTellsOfPodsAndSelectors(t *testing.T) {
	const filtered = "/apis/x/v1/ats?shardSelector=shardRange%28object.metadata.uid%2C+%270x00%27%2C+%270x10%27%29&watch=true"
	log := auditLine("us", "create", "", "pods", "job-1", "/p", 201) +
		auditLine("us", "create", "", "pods", "refused", "/p", 409) +
		auditLine("others", "create", "", "pods", "job-2", "/p", 201) +
		auditLine("us", "watch", audit.AtGroup, "ats", "", filtered, 200) +
		auditLine("us", "watch", audit.AtGroup, "ats", "", filtered, 200) +
		auditLine("us", "list", audit.AtGroup, "ats", "", "/apis/x/v1/ats", 200) +
		auditLine("others", "list", audit.AtGroup, "ats", "", "/apis/x/v1/ats", 200)
	got, err := readAudit(auditFile(t, log), "us")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	want := auditFacts{
		podCreates: map[[2]string]request{{"shop", "job-1"}: {at.Add(100 * time.Millisecond), at.Add(200 * time.Millisecond)}},
		selectors:  []string{"shardRange(object.metadata.uid, '0x00', '0x10')"}, unfiltered: 1,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(auditFacts{}, request{})); diff != "" {
		t.Error("facts (-want +got):\n" + diff)
	}
}

func TestRangesAreHalfOpenAndReachTheEnd(t *testing.T) {
	hash := fnv.New64a()
	hash.Write([]byte("some-uid"))
	at := hash.Sum64()
	for _, c := range []struct {
		name, low, high string
		want            bool
	}{
		{"everything", "0000000000000000", "10000000000000000", true},
		{"from it on", fmt.Sprintf("%016x", at), "10000000000000000", true},
		{"up to it", "0000000000000000", fmt.Sprintf("%016x", at), false},
		{"just it", fmt.Sprintf("%016x", at), fmt.Sprintf("%016x", at+1), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := inRange(fmt.Sprintf("shardRange(object.metadata.uid, '0x%s', '0x%s')", c.low, c.high), "some-uid")
			if err != nil || got != c.want {
				t.Errorf("in range = %v (%v), want %v", got, err, c.want)
			}
		})
	}
	if _, err := inRange("everything", "some-uid"); err == nil {
		t.Error("a selector without bounds was accepted")
	}
}

func TestGapOfACrashCountsFromItsEnd(t *testing.T) {
	line := `{"time":"2030-01-02T03:04:09.5Z","level":"INFO","msg":"shard active","shard":"west/01","epoch":7,"kind":"crash","gap_ms":0.5}`
	a, ok := parseActivation([]byte(line))
	if !ok || a.tenure != (tenureID{"west/01", 7}) {
		t.Fatalf("activation %+v (%v)", a, ok)
	}
	if _, ok := parseActivation([]byte(`{"msg":"shard closed","shard":"west/01","epoch":7}`)); ok {
		t.Error("the end of a tenure was taken for a beginning")
	}
	lapsed, end, ok := parseLapse([]byte(`{"time":"2030-01-02T03:04:05Z","msg":"incarnation lapsed: stopping everything it held","incarnation":"r2-x"}`))
	if !ok || lapsed != "r2-x" {
		t.Fatalf("lapse of %q (%v)", lapsed, ok)
	}
	crash, planned := handoff{Kind: kindCrash, From: "r2-x", Epoch: 7}, handoff{Kind: "planned", From: "r2-x", Epoch: 7}
	skipped := handoff{Kind: "planned", From: "r2-x", Epoch: 6, time: end.Add(time.Second)}
	for _, c := range []struct {
		name  string
		h     handoff
		began *activation
		end   *time.Time
		want  *float64
	}{
		{"a crash", crash, &a, &end, ms(4500)},
		{"a crash whose time nobody knows", crash, &a, nil, nil},
		{"a crash that nobody has taken over yet", crash, nil, &end, nil},
		{"a planned move", planned, &a, nil, ms(0.5)},
		{"a planned move that isn't through", planned, nil, nil, nil},
		{"a planned move to one that lapsed before it began", skipped, &a, nil, ms(3500)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, gap(c.h, c.began, c.end)); diff != "" {
				t.Error("gap (-want +got):\n" + diff)
			}
		})
	}
}

func TestServedFromPassesOverTenuresThatNeverBegan(t *testing.T) {
	began := map[tenureID]activation{}
	for _, id := range []tenureID{{"west/0", 2}, {"west/0", 5}, {"west/0", 9}, {"west/1", 4}} {
		began[id] = activation{tenure: id}
	}
	for epoch, want := range map[int64]int64{1: 2, 2: 2, 3: 5, 5: 5, 6: 9} {
		if got := servedFrom(began, "west/0", epoch); got == nil || got.tenure.epoch != want {
			t.Errorf("from epoch %d: %+v, want epoch %d", epoch, got, want)
		}
	}
	if got := servedFrom(began, "west/0", 10); got != nil {
		t.Errorf("from epoch 10: %+v, want none", got)
	}
}

func TestTailReturnsWholeLinesOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	follow := &tail{path: path}
	if got := follow.next(); got != nil {
		t.Errorf("a missing file gave %q", got)
	}
	var content string
	for _, c := range []struct{ add, want string }{{"one\ntw", "one\n"}, {"", ""}, {"o\nthree\n", "two\nthree\n"}} {
		content += c.add
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := string(follow.next()); got != c.want {
			t.Errorf("after %q: %q, want %q", content, got, c.want)
		}
	}
}

func TestReplicaOfAnIncarnation(t *testing.T) {
	for in, want := range map[string]string{"r1-abc": "r1", "my-pod-0-x": "my-pod-0", "": "", "r1": "r1"} {
		if got := replicaOf(in); got != want {
			t.Errorf("replicaOf(%q) = %q, want %q", in, got, want)
		}
	}
}
