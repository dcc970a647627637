package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-dev/tenure/bench/witness"
	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

var due = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// perfect is what a run without a fault leaves behind: two Ats in each of three clusters, two replicas, six shards.
func perfect() *observation {
	o := &observation{
		expected: 6, took: 40 * time.Second, lease: 5 * time.Second,
		ats: map[string][]cnatv1alpha1.At{}, watches: map[string]watchFacts{},
		live: map[string]string{"r1-a": "r1", "r3-c": "r3"}, replicas: []string{"r1", "r3"},
		handoffs: []handoff{{Shard: "west/1", Kind: protocol.Crash, From: "r2-b", To: "r3-c", Epoch: 2, GapMS: new(4500.0)},
			{Shard: "east/1", Kind: protocol.Planned, From: "r1-a", To: "r3-c", Epoch: 3, GapMS: new(12.0)}},
		second: secondFacts{
			deployments: 12, within: 3 * time.Second, frozen: 6 * time.Second, shownAfter: 5 * time.Second, shownBy: 12,
			updates: 24, slowest: 80 * time.Millisecond, caught: 2 * time.Second,
			repairs: []repair{{"copy deleted in east", new(12 * time.Millisecond)},
				{"copy scaled in west", new(9 * time.Millisecond)}},
		},
		traces: []traceFacts{
			{what: "an At's life", about: "job-6", traces: 4, spans: 21},
			{what: "a handoff", about: "west/1 to r3", traces: 1, spans: 8},
		},
		witness: &witness.Report{OK: true, Ats: witness.AtStats{Pods: 6, Lateness: witness.Spread{Max: 10}},
			Counts: map[witness.Kind]int{}, Handoffs: []witness.Handoff{{From: "", To: "r2-b"}, {From: "r2-b", To: "r3-c"},
				{From: "r1-a", To: "r3-c"}}},
	}
	for _, cluster := range workloadClusters {
		for i := range 2 {
			name := fmt.Sprintf("job-%d", i)
			at := cnatv1alpha1.At{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(cluster + name)}}
			at.Spec.Schedule, at.Status.Phase = due.Format(time.RFC3339), cnatv1alpha1.AtDone
			at.Status.StartTime = &metav1.MicroTime{Time: due.Add(time.Millisecond)}
			o.ats[cluster] = append(o.ats[cluster], at)
		}
		o.watches[cluster] = watchFacts{filtered: 2, kept: 9}
		for i, holder := range []string{"r1-a", "r3-c"} {
			shard := tenurev1alpha1.Shard{Spec: tenurev1alpha1.ShardSpec{Cluster: cluster, Prefix: fmt.Sprint(i)}}
			shard.Status.Holder, shard.Status.Phase = holder, tenurev1alpha1.ShardHeld
			o.shards = append(o.shards, shard)
		}
	}
	return o
}

func TestJudgeFindsEachFaultAndNothingElse(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*observation)
		want  string // the verdict's words; empty: everything holds
	}{
		{"nothing wrong", func(*observation) {}, ""},
		{"an At that isn't DONE", func(o *observation) { o.ats["west"][0].Status.Phase = cnatv1alpha1.AtRunning },
			"Ats DONE: 5 of 6"},
		{"an At that is gone", func(o *observation) { o.ats["west"] = o.ats["west"][1:] }, "Ats DONE: 5 of 6"},
		{"an At without a Pod", func(o *observation) { o.witness.Ats.Pods = 5 }, "Pods made for them: 5"},
		{"a second Pod", func(o *observation) { o.witness.Ats.Pods, o.witness.Ats.PodsRemade = 7, 1 },
			"Pods made for them: 7; second Pods of one At: 1"},
		{"one At with two Pods and another with none", func(o *observation) { o.witness.Ats.PodsRemade = 1 },
			"second Pods of one At: 1"},
		{"a Pod of nobody's", func(o *observation) { o.witness.Counts[witness.PodWithoutAt] = 1 },
			"Pods made for them: 6"},
		{"a Pod from before its time", func(o *observation) { o.witness.Counts[witness.EarlyPod] = 1 },
			"started before their time: 1"},
		{"a claim before its time", func(o *observation) {
			o.ats["east"][0].Status.StartTime.Time = due.Add(-time.Microsecond)
		}, "started before their time: 1"},
		{"a shard of the dead", func(o *observation) { o.shards[1].Status.Holder = "r2-b" },
			"shards held by live replicas: 5 of 6"},
		{"a shard of nobody's", func(o *observation) { o.shards[1].Status.Holder = "" },
			"shards held by live replicas: 5 of 6"},
		{"uneven shares", func(o *observation) { o.shards[1].Status.Holder = "r1-a" }, "shards per replica: r1 4, r3 2"},
		{"a replica with nothing", func(o *observation) { o.replicas = append(o.replicas, "r4") },
			"shards per replica: r1 3, r3 3, r4 0"},
		{"a watch without selector", func(o *observation) {
			o.watches["west"] = watchFacts{filtered: 2, unfiltered: 1, kept: 9}
		}, "watches filtered by the: client in west; server in east, north"},
		{"a handoff that the watch missed", func(o *observation) { o.handoffs = nil },
			"handoffs: 0 watched, but 2 in the audit log; gaps, Crash: there were none; gaps, Planned: there were none"},
		{"a crash whose handoffs the record calls otherwise", func(o *observation) {
			o.handoffs[0].Kind, o.handoffs[0].GapMS = protocol.Planned, new(20.0)
		}, "gaps, Crash: there were none"},
		{"a join that moved nothing as planned", func(o *observation) { o.handoffs[1].Kind = protocol.Crash },
			"gaps, Planned: there were none"},
		{"a handoff whose reply was lost", func(o *observation) { o.witness.Handoffs = o.witness.Handoffs[:1] }, ""},
		{"a handoff without a gap", func(o *observation) { o.handoffs[0].GapMS = nil },
			"handoff of west/1: the logs don't tell how long it took"},
		{"a Deployment whose replication was not seen", func(o *observation) { o.second.within = 0 },
			"Deployments replicated: 12 to 3 clusters in 0.0 ms"},
		{"a copy that nobody repaired", func(o *observation) { o.second.repairs[0].took = nil },
			"copy deleted in east: not repaired"},
		{"a cluster whose trouble isn't shown", func(o *observation) { o.second.shownBy = 11 },
			"shown while north was frozen: by 11 of 12 conditions within 5.00 s"},
		{"a cluster that waited for the frozen one", func(o *observation) { o.second.updates = 23 },
			"updated meanwhile elsewhere: 23 of 24 copies, each within 80.0 ms, at most 5s"},
		{"a cluster that didn't catch up", func(o *observation) { o.second.caught = 0 },
			"north after 6.00 s frozen: caught up in 0.0 ms, at most 30s"},
		{"an At that waited too long", func(o *observation) { o.witness.Ats.Lateness.Max = 20001 },
			"latest after its time: 20.00 s, at most 20s"},
		{"an At that waited as long as it may", func(o *observation) { o.witness.Ats.Lateness.Max = 20000 }, ""},
		{"Pods that no audit log tells of", func(o *observation) { o.witness.Ats.Lateness.Max = 0 },
			"latest after its time: 0.0 ms, at most 20s"},
		{"a crash with too long a gap", func(o *observation) { o.handoffs[0].GapMS = new(7001.0) },
			"gaps, Crash: 1: 7.00 s median, 7.00 s longest, at most 7s"},
		{"a planned move with too long a gap", func(o *observation) {
			o.handoffs[1].GapMS = new(501.0)
		}, "gaps, Planned: 1: 501.0 ms median, 501.0 ms longest, at most 500ms"},
		{"a move without any gap", func(o *observation) {
			o.handoffs[1].GapMS = new(0.0)
		}, ""},
		{"a copy that was repaired late", func(o *observation) { o.second.repairs[1].took = new(5001 * time.Millisecond) },
			"copy scaled in west: repaired after 5.00 s, at most 5s"},
		{"copies that were updated late", func(o *observation) { o.second.slowest = 5001 * time.Millisecond },
			"updated meanwhile elsewhere: 24 of 24 copies, each within 5.00 s, at most 5s"},
		{"a cluster that caught up late", func(o *observation) { o.second.caught = 31 * time.Second },
			"north after 6.00 s frozen: caught up in 31.00 s, at most 30s"},
		{"a handoff without a trace", func(o *observation) { o.traces[1].traces = 0 },
			"trace: a handoff: west/1 to r3: no trace"},
		{"a falling epoch", func(o *observation) {
			o.witness.OK, o.witness.Counts = false, map[witness.Kind]int{witness.FallingEpoch: 2}
			o.witness.Violations = make([]witness.Violation, 2)
		}, "invariants broken (audit logs): 2: falling-epoch 2"},
		{"logs with nothing in them", func(o *observation) {
			o.witness.OK, o.witness.Counts = false, map[witness.Kind]int{witness.NoWrites: 1}
		}, "invariants broken (audit logs): 1: no-writes 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := perfect()
			c.spoil(o)
			got := ""
			if err := verdict(judge(o)); err != nil {
				got = strings.TrimPrefix(err.Error(), errDoesNotHold.Error()+": ")
			}
			expect.Equal(t, "verdict", c.want, got)
		})
	}
}

func TestWatchModeIsTheServersOnlyIfNothingArrivedInVain(t *testing.T) {
	for _, c := range []struct {
		name string
		in   watchFacts
		want string
	}{
		{"selectors, and nothing of other shards", watchFacts{filtered: 8, kept: 300}, "server"},
		{"replicas threw something away", watchFacts{filtered: 8, kept: 300, discarded: 3}, "client"},
		{"a request without selector", watchFacts{filtered: 8, unfiltered: 1, kept: 300}, "client"},
		{"nothing to see it by", watchFacts{filtered: 8}, "client"},
		{"no requests", watchFacts{kept: 300}, "client"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.in.mode(); got != c.want {
				t.Errorf("mode %q, want %q", got, c.want)
			}
		})
	}
}

func TestResultHasTheNamesThatOthersReadItBy(t *testing.T) {
	o := perfect()
	got, err := json.Marshal(newResult(o, judge(o)))
	must.Succeed(t, err)
	want := `{"ok":true,"ats":6,"done":6,"pods":6,"duplicate_pods":0,"early":0,"max_lateness_ms":10,"replicas":2,"shards":6,` +
		`"handoffs":[{"shard":"west/1","kind":"Crash","from":"r2-b","to":"r3-c","epoch":2,"gapMs":4500},` +
		`{"shard":"east/1","kind":"Planned","from":"r1-a","to":"r3-c","epoch":3,"gapMs":12}],` +
		`"watch_mode":{"east":"server","north":"server","west":"server"}}`
	expect.Equal(t, "result", want, string(got))
	o.handoffs = nil
	if got, _ := json.Marshal(newResult(o, nil)); !strings.Contains(string(got), `"handoffs":[]`) {
		t.Errorf("no handoffs must be an empty list: %s", got)
	}
}

func TestSummaryFitsAScreen(t *testing.T) {
	o := perfect()
	want := strings.TrimPrefix(`
Everything holds. 6 Ats in 40s, the latest 10.0 ms after its time.
  ok    Ats DONE                         6 of 6
  ok    Pods made for them               6
  ok    second Pods of one At            0
  ok    started before their time        0
  ok    shards held by live replicas     6 of 6
  ok    shards per replica               r1 3, r3 3
  ok    latest after its time            10.0 ms, at most 20s
  ok    handoffs                         2
  ok    gaps, Crash: 1                   4.50 s median, 4.50 s longest, at most 7s
  ok    gaps, Planned: 1                 12.0 ms median, 12.0 ms longest, at most 500ms
  ok    watches filtered by the          server in west, east, north
  ok    Deployments replicated           12 to 3 clusters in 3.00 s
  ok    copy deleted in east             repaired after 12.0 ms, at most 5s
  ok    copy scaled in west              repaired after 9.0 ms, at most 5s
  ok    shown while north was frozen     by 12 of 12 conditions within 5.00 s
  ok    updated meanwhile elsewhere      24 of 24 copies, each within 80.0 ms, at most 5s
  ok    north after 6.00 s frozen        caught up in 2.00 s, at most 30s
  ok    trace: an At's life              job-6, 4 reconciles, 21 spans
  ok    trace: a handoff                 west/1 to r3, 8 spans
  ok    invariants broken (audit logs)   0
`, "\n")
	expect.Equal(t, "summary", want, summary(o, judge(o)))
	o.witness.Ats.PodsRemade = 1
	if got := summary(o, judge(o)); !strings.HasPrefix(got, "Something does NOT hold.") ||
		!strings.Contains(got, "FAIL  second Pods") {
		t.Errorf("a fault isn't told:\n%s", got)
	}
}

func TestTracesAreShownByCommandsThatAShellUnderstands(t *testing.T) {
	s := &settings{tenure: "/x y/tenure", stay: true}
	got := sights(s, "http://127.0.0.1:16686", []traceFacts{
		{what: "an At's life", about: "job-6", path: "/api/traces?service=tenure&tag=a:b", arguments: []string{"at/job-6"}},
		{what: "a handoff", about: "there was none"},
	})
	want := strings.TrimPrefix(`
Worth seeing in Jaeger (built without its web pages, so by these commands):
  an At's life (job-6)
    '/x y/tenure' trace at/job-6
    curl 'http://127.0.0.1:16686/api/traces?service=tenure&tag=a:b'
`, "\n")
	expect.Equal(t, "sights", want, got)
	for _, word := range []string{"/tmp/tenure-planes-1", "/my folder/x", `/it's "$HOME"`, "/a*b", "~/x", "/größe"} {
		out, err := exec.Command("sh", "-c", "printf %s "+quote(word)).Output()
		must.Succeed(t, err)
		expect.Equal(t, "what the shell makes of it", word, string(out))
	}
	if quote("/tmp/tenure-planes-1") != "/tmp/tenure-planes-1" {
		t.Error("a usual path needs no quotes")
	}
}
