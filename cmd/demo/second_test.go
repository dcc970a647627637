package main

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/bench/audit/audittest"
	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/pkg/telemetry/jaeger"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

func TestRepairIsTheReplicasNextWriteOfTheSameCopy(t *testing.T) {
	line := func(user, verb, sub, name string, ms int64, code int) string {
		return audittest.Line(audit.Event{User: user, Verb: verb, Group: audit.AppsGroup, Resource: "deployments",
			Subresource: sub, Namespace: "web", Name: name, Code: code, Received: 1000 * ms})
	}
	log := line("us", "patch", "", "app-01", 1000, 201) + // when it was made
		line(adminUser, "delete", "", "app-01", 2000, 200) +
		line("us", "patch", "status", "app-01", 2010, 200) +
		line("us", "patch", "", "app-02", 2020, 200) +
		line("us", "patch", "", "app-01", 2030, 409) +
		line("others", "patch", "", "app-01", 2035, 200) +
		line("us", "patch", "", "app-01", 2040, 201) +
		line("us", "patch", "", "app-01", 9000, 200) +
		line(adminUser, "update", "scale", "app-03", 3000, 200)
	facts, err := readAudit(auditFile(t, log), "us")
	must.Succeed(t, err)
	if got := facts.repaired("delete", "app-01"); got == nil || *got != 40*time.Millisecond {
		t.Errorf("deleted copy repaired after %v, want 40ms", got)
	}
	if got := facts.repaired("update", "app-03"); got != nil {
		t.Errorf("a copy that nobody wrote since was repaired after %v", got)
	}
	if got := facts.repaired("delete", "app-02"); got != nil {
		t.Errorf("a copy that nobody deleted was repaired after %v", got)
	}
}

func sourceWith(status corev1.ConditionStatus, reason, message string) *appsv1.Deployment {
	d := planDeployments(1)[0]
	d.Generation = 2
	d.Status.Conditions = []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Message: message},
		{Type: replication.ConditionReplicated, Status: status, Reason: reason, Message: message},
	}
	return d
}

func TestAConditionCountsOnlyIfItSpeaksOfTheSourceAsItIs(t *testing.T) {
	const away = "generation 2: 2 of 3 clusters available; east 2/2, north: doesn't answer, west 2/2"
	for _, c := range []struct {
		name             string
		source           *appsv1.Deployment
		replicated, away bool
	}{
		{"replicated", sourceWith(corev1.ConditionTrue, replication.ReasonReplicated,
			"generation 2: 3 of 3 clusters available"), true, false},
		{"replicated as it was before", sourceWith(corev1.ConditionTrue, replication.ReasonReplicated,
			"generation 1: 3 of 3 clusters available"), false, false},
		{"one away", sourceWith(corev1.ConditionFalse, replication.ReasonAway, away), false, true},
		{"another one away", sourceWith(corev1.ConditionFalse, replication.ReasonAway,
			"generation 2: 2 of 3 clusters available; east: doesn't answer, north 2/2, west 2/2"), false, false},
		{"one away, another not through", sourceWith(corev1.ConditionFalse, replication.ReasonAway,
			"generation 2: 1 of 3 clusters available; east 1/2, north: doesn't answer, west 2/2"), false, false},
		{"no condition", planDeployments(1)[0], false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := isReplicated(c.source); got != c.replicated {
				t.Errorf("replicated = %v, want %v", got, c.replicated)
			}
			if got := showsAway(c.source, "north"); got != c.away {
				t.Errorf("shows north away = %v, want %v", got, c.away)
			}
		})
	}
}

func TestACopyIsCurrentOnceItsPodsAre(t *testing.T) {
	source := planDeployments(1)[0]
	for _, c := range []struct {
		name  string
		spoil func(*appsv1.Deployment)
		want  bool
	}{
		{"all as wanted", func(*appsv1.Deployment) {}, true},
		{"the old image", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = nextImage }, false},
		{"scaled", func(d *appsv1.Deployment) { *d.Spec.Replicas = scaledTo }, false},
		{"not seen by its controller yet", func(d *appsv1.Deployment) { d.Generation++ }, false},
		{"a Pod too many", func(d *appsv1.Deployment) { d.Status.Replicas++ }, false},
		{"a Pod that isn't available", func(d *appsv1.Deployment) { d.Status.AvailableReplicas-- }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			copied := planDeployments(1)[0]
			copied.Status = appsv1.DeploymentStatus{Replicas: copyReplicas, UpdatedReplicas: copyReplicas,
				AvailableReplicas: copyReplicas}
			c.spoil(copied)
			if got := isCurrent(copied, source); got != c.want {
				t.Errorf("current = %v, want %v", got, c.want)
			}
		})
	}
	if isCurrent(nil, source) {
		t.Error("a copy that isn't there is current")
	}
}

func TestWhatHasNoTraceFails(t *testing.T) {
	const at, silent = "an At's life", "Jaeger doesn't answer"
	for want, facts := range map[string]traceFacts{
		"trace: an At's life: job-6, 2 spans":                    {what: at, about: "job-6", traces: 1, spans: 2},
		"trace: an At's life: job-6, 4 reconciles, 1 span":       {what: at, about: "job-6", traces: 4, spans: 1},
		"trace: an At's life: job-6: no trace FAIL":              {what: at, about: "job-6"},
		"trace: an At's life: job-6: Jaeger doesn't answer FAIL": {what: at, about: "job-6", missing: silent},
	} {
		c := facts.check()
		got := c.what + ": " + c.found
		if !c.ok {
			got += " FAIL"
		}
		expect.Equal(t, "check", want, got)
	}
}

func TestATraceIsAskedForUntilItNoLongerGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := []int{0, 2, 5, 5, 9} // what Jaeger has, by request
		facts, err := finder(func(context.Context, *jaeger.Client) (traceFacts, error) {
			n := spans[0]
			spans = spans[1:]
			return traceFacts{traces: min(n, 1), spans: n}, nil
		}).until(t.Context(), nil)
		must.Succeed(t, err)
		expect.Equal(t, "spans", 5, facts.spans)
		expect.Equal(t, "not asked for", []int{9}, spans)
	})
}

func TestTheHandoffWorthSeeingIsThePlannedOneWithTheLongestGapButOneWithWorkComesFirst(t *testing.T) {
	loaded := time.Now()
	later := loaded.Add(time.Second)
	idle := []handoff{
		{Shard: "west/0", Kind: protocol.Planned, GapMS: new(5.0), time: later},
		{Shard: "west/1", Kind: protocol.Planned, GapMS: new(9.0), time: later},
		{Shard: "west/2", Kind: protocol.Crash, GapMS: new(4000.0), time: later, waiting: 1},
		{Shard: "west/3", Kind: protocol.Planned, time: later, waiting: 1},
		{Shard: "west/4", Kind: protocol.Planned, GapMS: new(20.0), time: loaded.Add(-time.Second)}, // of an empty shard
	}
	busy := []handoff{
		{Shard: "east/0", Kind: protocol.Planned, GapMS: new(1.0), time: later, waiting: 9},
		{Shard: "east/1", Kind: protocol.Planned, GapMS: new(2.0), time: later, waiting: 1},
	}
	for want, handoffs := range map[string][]handoff{
		"west/1": idle, "east/1": slices.Concat(busy, idle), "east/0": slices.Concat(idle, busy[:1]),
	} {
		if got := worthSeeing(handoffs, loaded); got == nil || got.Shard != want {
			t.Errorf("got %+v, want %s", got, want)
		}
	}
	if got := worthSeeing(nil, loaded); got != nil {
		t.Errorf("got %+v of none", got)
	}
}

func TestAHandoffKnowsTheAtsThatWaitInItsShard(t *testing.T) {
	b := newBoard(5, 2)
	moved, due := metav1.NowMicro(), time.Now()
	at := func(cluster, uid string, phase cnatv1alpha1.AtPhase) {
		at := &cnatv1alpha1.At{}
		at.Name, at.UID, at.Status.Phase = cluster+uid+string(phase)+due.String(), types.UID(uid), phase
		at.Spec.Schedule = due.UTC().Format(time.RFC3339)
		b.setAt(cluster, at)
	}
	const lower, upper = "two", "uid-1" // UIDs whose hashes begin with 0 and with 1
	at("west", upper, "")
	at("west", upper, cnatv1alpha1.AtPending)
	at("west", upper, cnatv1alpha1.AtRunning)
	at("west", upper, cnatv1alpha1.AtDone)
	at("west", lower, cnatv1alpha1.AtPending)
	at("east", upper, cnatv1alpha1.AtPending)
	due = due.Add(2 * soon)
	at("west", upper, cnatv1alpha1.AtPending)
	for _, prefix := range []string{"0", "1"} {
		s := &tenurev1alpha1.Shard{Spec: tenurev1alpha1.ShardSpec{Cluster: "west", Prefix: prefix}}
		s.Name = prefix
		s.Status.LastMove = &tenurev1alpha1.ShardMove{Kind: string(protocol.Planned), From: "r1-a", To: "r2-b",
			Time: moved}
		b.setShard(s)
	}
	var waiting []int
	for _, h := range b.snapshot().handoffs {
		waiting = append(waiting, h.waiting)
	}
	expect.Equal(t, "waiting", []int{1, 2}, waiting)
}
