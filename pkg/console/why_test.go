package console

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/at"
	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/expect"
)

// question asks about an At whose shard is west/01, which r1 holds.
func question() Question {
	uid := ""
	for i := 0; uid == "" || keyspace.SlotOf(uid)>>6 != 1; i++ {
		uid = strings.Repeat("x", i)
	}
	return Question{
		Snapshot: healthy(),
		Object:   Object{Kind: "at", Namespace: "default", Name: "hello", Cluster: "west"},
		At: &cnatv1alpha1.At{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hello", UID: types.UID(uid),
				CreationTimestamp: metav1.NewTime(now.Add(-time.Minute))},
			Spec:   cnatv1alpha1.AtSpec{Schedule: now.Add(time.Minute).Format(time.RFC3339), Command: "true"},
			Status: cnatv1alpha1.AtStatus{Phase: cnatv1alpha1.AtPending},
		},
	}
}

// troubles are the links that are broken, with how.
func troubles(w Why) []string {
	var all []string
	for _, l := range w.Links {
		if l.Trouble != "" {
			all = append(all, l.Name+": "+l.Trouble)
		}
	}
	return all
}

// explains has a question explained. The verdict "" is that on an object that r1 has, by what is broken.
func explains(t *testing.T, q Question, verdict string, broken []string) {
	t.Helper()
	w := Explain(q)
	if verdict == "" {
		verdict = "r1 has it; " + broken[0]
	}
	if w.Verdict != verdict || w.Healthy != (len(broken) == 0) {
		t.Errorf("%q (healthy: %v), want %q", w.Verdict, w.Healthy, verdict)
	}
	expect.Equal(t, "broken links", broken, troubles(w))
}

func TestWhyFollowsTheChainAndNamesTheBrokenLink(t *testing.T) {
	cases := map[string]struct {
		change  func(*Question)
		verdict string // "": as explains has it
		broken  []string
	}{
		"it waits for its time": {func(*Question) {}, "r1 has it; its time comes in 60s", nil},
		"its time is millennia away": {func(q *Question) { q.At.Spec.Schedule = "9999-12-31T23:59:59Z" },
			"r1 has it; its time comes in 2912119d", nil},
		"it is being deleted": {func(q *Question) {
			q.At.Spec.Schedule = now.Add(-time.Minute).Format(time.RFC3339)
			q.At.DeletionTimestamp, q.At.Finalizers = &metav1.Time{Time: now}, []string{"example.com/x"}
		}, "r1 has it; it is being deleted, so it starts nothing", nil},
		"due just now": {func(q *Question) { q.At.Spec.Schedule = now.Add(-time.Second).Format(time.RFC3339) },
			"r1 has it; it is due now", nil},
		"overdue": {func(q *Question) { q.At.Spec.Schedule = now.Add(-time.Minute).Format(time.RFC3339) }, "",
			[]string{"due: it is overdue"}},
		"overdue since nobody holds the shard": {func(q *Question) {
			q.At.Spec.Schedule = now.Add(-time.Minute).Format(time.RFC3339)
			q.Snapshot.Records.Shards[5].Status.Holder = ""
		}, "holder: nobody holds west/01", []string{"holder: nobody holds west/01", "due: it is overdue"}},
		"the holder can't fill its caches": {func(q *Question) { stick(&q.Snapshot, 2) }, "",
			[]string{"service: the holder can't list or watch some kinds, or can't use the cluster"}},
		"the holder can't fill its caches of another shard, or of this one": {func(q *Question) { stick(&q.Snapshot, 1) },
			"r1 has it; its time comes in 60s", nil},
		"the holder is quiet": {func(q *Question) { q.Snapshot.Records.Leases[1] = lease("r1", time.Minute) },
			"lease: the holder is dead, or can't write to the home cluster",
			[]string{"lease: the holder is dead, or can't write to the home cluster"}},
		"its cluster answered half a minute after the leases were read": {
			func(q *Question) { q.Read = now.Add(30 * time.Second) }, "r1 has it; its time comes in 30s", nil},
		"the holder is sealed": {
			func(q *Question) { q.Snapshot.Records.Leases[1].Annotations["tenure.dev/sealed-by"] = "r0" },
			"lease: the holder was declared dead", []string{"lease: the holder was declared dead"}},
		"the holder has no lease": {func(q *Question) {
			q.Snapshot.Records.Leases = append(q.Snapshot.Records.Leases[:1], q.Snapshot.Records.Leases[2])
		}, "lease: the holder has no Lease: it is dead", []string{"lease: the holder has no Lease: it is dead"}},
		"no record covers it": {func(q *Question) { q.Snapshot.Records.Shards = q.Snapshot.Records.Shards[:5] },
			"shard: no record covers slot 5b of cluster west", []string{"shard: no record covers slot 5b of cluster west"}},
		"the cluster doesn't answer, and that isn't all": {func(q *Question) {
			westAway(&q.Snapshot)
			q.Snapshot.Clusters[1].Reported = true
			q.At, q.Unreadable = nil, "no route"
		}, "object: it can't be read: no route",
			[]string{"cluster: Unreachable: no route", "object: it can't be read: no route"}},
		"the cluster can't be reached from here": {func(q *Question) {
			westAway(&q.Snapshot)
			q.At, q.Unreadable = nil, "no route"
		}, "object: it can't be read: no route", []string{"object: it can't be read: no route"}},
		"there is no such object": {func(q *Question) { q.At = nil }, "no such object", []string{"object: no such object"}},
		"home was restored from a backup": {func(q *Question) { q.At.Status.Epoch = 9 }, "",
			[]string{"epoch: the record is older than the object, so no replica makes any write of its status"}},
		"the schedule makes no sense": {func(q *Question) { q.At.Spec.Schedule = "tomorrow" }, "",
			[]string{`due: spec.schedule "tomorrow" is not an RFC 3339 time such as 2019-04-12T10:12:00Z`}},
		"it is suspended": {func(q *Question) { q.At.Spec.Suspend = true }, "r1 has it; it is suspended", nil},
		"it is blocked": {func(q *Question) {
			q.At.Status.Conditions = []metav1.Condition{{Type: cnatv1alpha1.ConditionBlocked, Reason: "ForeignPod",
				Message: "not ours", LastTransitionTime: metav1.NewTime(now)}}
		}, "", []string{"blocked: not ours"}},
		"its Pod isn't scheduled": {func(q *Question) {
			q.At.Status.Phase, q.At.Status.StartTime = cnatv1alpha1.AtRunning, &metav1.MicroTime{Time: now.Add(-time.Second)}
			q.Pod = podOf(q.At, corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no node"},
			}})
		}, "", []string{"pod: it isn't scheduled: no node"}},
		"its image isn't there": {func(q *Question) {
			q.At.Status.Phase = cnatv1alpha1.AtRunning
			q.Pod = podOf(q.At, corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
				{Name: at.ContainerName, State: waits("ErrImagePull", "not found")},
			}})
		}, "", []string{"pod: its container doesn't start: ErrImagePull: not found"}},
		"its Pod is on its way": {func(q *Question) {
			q.At.Status.Phase = cnatv1alpha1.AtRunning
			q.Pod = podOf(q.At, corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
				{State: waits("ContainerCreating", "")},
			}})
		}, "r1 has it; its Pod is there", nil},
		"its Pod was refused before it was suspended": {func(q *Question) {
			q.At.Status.Phase, q.At.Spec.Suspend, q.At.Generation = cnatv1alpha1.AtRunning, true, 2
			q.At.Status.Conditions = []metav1.Condition{{Type: cnatv1alpha1.ConditionBlocked, Reason: "PodRefused",
				ObservedGeneration: 1}}
		}, "r1 has it; it has begun and is suspended; no Pod of it is to be seen", nil},
		"the fleet may not write there": {func(q *Question) {
			q.At.Spec.Schedule, q.Barred = now.Add(-time.Hour).Format(time.RFC3339), true
		}, "", []string{"rights: the fleet may not run Ats there, so it never starts", "due: it is overdue"}},
		"the fleet may not write there any more": {func(q *Question) {
			q.At.Status.Phase, q.Barred = cnatv1alpha1.AtRunning, true
		}, "", []string{"rights: the fleet may not run Ats there, so nothing records how it ends"}},
		"its Pod ended just now": {
			func(q *Question) { q.At.Status.Phase, q.Pod = cnatv1alpha1.AtRunning, endedPod(q.At, time.Second) },
			"r1 has it; its Pod is there", nil},
		"its Pod ended long ago": {
			func(q *Question) { q.At.Status.Phase, q.Pod = cnatv1alpha1.AtRunning, endedPod(q.At, time.Hour) }, "",
			[]string{"ended: its status doesn't say so"}},
		"it is done": {
			func(q *Question) { q.At.Status.Phase, q.At.Status.Result = cnatv1alpha1.AtDone, cnatv1alpha1.AtFailed },
			"r1 has it; it is done", nil},
		"its shard moves": {func(q *Question) { assigned(&q.Snapshot.Records.Shards[5], "r0-aaaaaa", time.Second) },
			"r1 has it; its time comes in 60s", nil},
		"its shard's move is stuck": {func(q *Question) { assigned(&q.Snapshot.Records.Shards[5], "r0-aaaaaa", time.Hour) },
			"", []string{"record: asked for 60m00s ago"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			q := question()
			c.change(&q)
			explains(t, q, c.verdict, c.broken)
		})
	}
}

func endedPod(of *cnatv1alpha1.At, ago time.Duration) *corev1.Pod {
	return podOf(of, corev1.PodStatus{Phase: corev1.PodSucceeded,
		ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(now.Add(-ago))}}}}})
}

func TestWhyTellsTheTraceThatLastWroteTheStatus(t *testing.T) {
	q := question()
	const want = "0af7651916cd43dd8448eb211c80319c"
	q.At.Status.TraceID = want
	if got := Explain(q).TraceID; got != want {
		t.Errorf("trace %q, want %q", got, want)
	}
}

func TestWhyTellsHowTheCopiesOfADeploymentAre(t *testing.T) {
	condition := func(status corev1.ConditionStatus, reason, message string) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) {
			d.Status.Conditions = []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse},
				{Type: replication.ConditionReplicated, Status: status, Reason: reason, Message: message,
					LastTransitionTime: metav1.NewTime(now.Add(-time.Minute))},
			}
		}
	}
	for name, tt := range map[string]struct {
		change  func(*appsv1.Deployment)
		verdict string // "": as explains has it
		broken  []string
	}{
		"not seen yet": {func(*appsv1.Deployment) {}, "r1 has it; nobody has looked at it yet", nil},
		"as it should be": {condition(corev1.ConditionTrue, replication.ReasonReplicated, "east 2/2, west 2/2"),
			"r1 has it; all its copies are as they should be", nil},
		"under way": {condition(corev1.ConditionFalse, replication.ReasonProgressing, "east 0/2, west 2/2"),
			"r1 has it; its copies are under way", nil},
		"a rollout gets no further": {
			condition(corev1.ConditionFalse, replication.ReasonStalled, "east: 0/2, its rollout is stalled, west 2/2"), "",
			[]string{"condition: RolloutStalled"}},
		"a rollout gets no further, since the source is paused": {func(d *appsv1.Deployment) {
			condition(corev1.ConditionFalse, replication.ReasonStalled, "east: 0/2, the source is paused, west 2/2")(d)
			d.Spec.Paused = true
		}, "", []string{"condition: RolloutStalled: it is paused"}},
		"a cluster is away": {condition(corev1.ConditionFalse, replication.ReasonAway, "east: away, west 2/2"), "",
			[]string{"condition: ClusterAway"}},
		"not labelled": {func(d *appsv1.Deployment) { d.Labels = nil }, "",
			[]string{`copies: it has no label tenure.dev/replicate: "true", so it isn't copied anywhere`}},
		"not labelled any more": {func(d *appsv1.Deployment) {
			condition(corev1.ConditionFalse, replication.ReasonCleaningUp, "east: leaving")(d)
			d.Labels, d.Finalizers = nil, []string{replication.Finalizer}
		}, "r1 has it; its copies are being deleted", nil},
		"not labelled any more, and nothing has changed for an hour": {func(d *appsv1.Deployment) {
			condition(corev1.ConditionFalse, replication.ReasonCleaningUp, "east: away")(d)
			d.Status.Conditions[1].LastTransitionTime = metav1.NewTime(now.Add(-2 * time.Hour))
			d.Status.Conditions[1].LastUpdateTime = metav1.NewTime(now.Add(-time.Hour))
			d.Labels, d.Finalizers = nil, []string{replication.Finalizer}
		}, "", []string{"condition: copies aren't deleted, and it stays until they are"}},
		"in a cluster from which nothing is copied": {
			func(d *appsv1.Deployment) { d.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour)) }, "",
			[]string{"condition: no replica has looked at it, or may write to it"}},
		"made from a copy's file, and labelled": {func(d *appsv1.Deployment) {
			condition(corev1.ConditionFalse, replication.ReasonAway, "east: away")(d)
			d.Annotations[replication.AnnotationSource] = "home/shop/web"
		}, "", []string{"condition: ClusterAway"}},
		"a copy": {func(d *appsv1.Deployment) {
			d.Labels, d.Annotations = nil, map[string]string{replication.AnnotationSource: "home/shop/web"}
		}, "it is the copy of home/shop/web: ask about that one", nil},
	} {
		t.Run(name, func(t *testing.T) {
			q := question()
			q.Object.Kind = kindDeployment
			q.Deployment = &appsv1.Deployment{ObjectMeta: q.At.ObjectMeta}
			q.At = nil
			q.Deployment.Labels = map[string]string{replication.LabelReplicate: "true"}
			q.Deployment.Annotations = map[string]string{replication.AnnotationClusters: "*"}
			tt.change(q.Deployment)
			explains(t, q, tt.verdict, tt.broken)
		})
	}
}

func TestWhySaysWhereTheFleetMayNotWriteToADeployment(t *testing.T) {
	const rights = "rights: the fleet may not write to Deployments there, so nothing new is copied or deleted"
	for name, labels := range map[string]map[string]string{
		rights: {replication.LabelReplicate: "true"},
		`copies: it has no label tenure.dev/replicate: "true", so it isn't copied anywhere`: nil,
	} {
		q := question()
		q.Deployment = &appsv1.Deployment{ObjectMeta: q.At.ObjectMeta}
		q.Deployment.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
		q.At, q.Object.Kind, q.Barred, q.Deployment.Labels = nil, kindDeployment, true, labels
		got := Explain(q)
		if diff := cmp.Diff([]string{name}, troubles(got)); diff != "" || got.Verdict != "r1 has it; "+name {
			t.Errorf("%q (-want +got):\n%s", got.Verdict, diff)
		}
	}
}

func TestTheFleetIsAskedForTheRightThatTheObjectNeeds(t *testing.T) {
	for want, q := range map[string]Question{
		"update cnat.programming-kubernetes.info ats status": {At: &cnatv1alpha1.At{}},
		"patch apps deployments ":                            {Deployment: &appsv1.Deployment{}},
	} {
		q.Object.Namespace = "jobs"
		for _, allowed := range []bool{true, false} {
			asked := ""
			c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
					review := o.(*authorizationv1.SelfSubjectAccessReview)
					a := review.Spec.ResourceAttributes
					asked = strings.Join([]string{a.Verb, a.Group, a.Resource, a.Subresource}, " ")
					review.Status.Allowed = allowed && a.Namespace == "jobs"
					return nil
				}})
			if got := q.barred(t.Context(), c); got == allowed || asked != want {
				t.Errorf("asked for %q: barred %v, want %q, allowed %v", asked, got, want, allowed)
			}
		}
	}
}

func TestAnObjectIsNamedByKindAndName(t *testing.T) {
	for text, kind := range map[string]string{
		"at/x": "at", "Ats/x": "at", "deployment/x": "deployment", "Deploy/x": "deployment", "at/": "", "at": "",
		"pod/x": "", "": "", "at.cnat.programming-kubernetes.info/x": "at", "deployment.apps/x": "deployment",
		"deployment.example.com/x": "", "at.apps/x": "", "deployment.cnat.programming-kubernetes.info/x": "", "at./x": "",
	} {
		o, err := ParseObject(text)
		if (err == nil) != (kind != "") || err == nil && o != (Object{Kind: kind, Name: "x"}) {
			t.Errorf("%q: %v, %v", text, o, err)
		}
	}
}

// Where replicas don't copy from home, a Deployment's cluster isn't known unless it is named: no mistyped flag.
func TestADeploymentIsLookedForAtHomeUnlessItsClusterIsNamed(t *testing.T) {
	var typed *UsageError
	if _, err := clusterOf(healthy(), Object{Kind: kindDeployment}); err == nil || errors.As(err, &typed) ||
		!strings.Contains(err.Error(), "--deployment-source") {
		t.Errorf("home is no cluster of the fleet: %v", err)
	}
	if _, err := clusterOf(healthy(), Object{Kind: kindDeployment, Cluster: "north"}); !errors.As(err, &typed) {
		t.Errorf("an unknown cluster is named: %v", err)
	}
	if got, err := clusterOf(healthy(), Object{Kind: kindDeployment, Cluster: "west"}); err != nil || got != "west" {
		t.Errorf("another cluster: %v, %v", got, err)
	}
}

func TestTheClusterMayBeLeftOutOnlyWhereThereIsOne(t *testing.T) {
	s := healthy()
	if _, err := theCluster(s, ""); err == nil || !strings.Contains(err.Error(), "east, west") {
		t.Errorf("two clusters: %v", err)
	}
	if _, err := theCluster(s, "north"); err == nil || !strings.Contains(err.Error(), "east, west") {
		t.Errorf("an unknown cluster: %v", err)
	}
	forget(&s, "west") // records stay
	s.Clusters = s.Clusters[:1]
	if got, err := theCluster(s, ""); err != nil || got != "east" {
		t.Errorf("one cluster, and one that was removed: %v, %v", got, err)
	}
	if got, err := theCluster(s, "west"); err != nil || got != "west" {
		t.Errorf("the one that was removed: %v, %v", got, err)
	}
	s.Records.Shards = s.Records.Shards[:4]
	if got, err := theCluster(s, ""); err != nil || got != "east" {
		t.Errorf("one cluster: %v, %v", got, err)
	}
}

func TestAClusterThatIsNotKnownIsSaidWithWhatCouldNotBeRead(t *testing.T) {
	unread := []string{"the kubeconfig Secrets (forbidden)"}
	unreadable := healthy()
	unreadable.Registered, unreadable.Clusters, unreadable.Unread = false, nil, unread
	for _, c := range []struct {
		name string
		s    Snapshot
		want string
	}{
		{"none, and Secrets can't be read", Snapshot{Namespace: "n", Unread: unread},
			"no cluster is known in namespace n; not read: the kubeconfig Secrets (forbidden)"},
		{"none", Snapshot{Namespace: "n", Registered: true},
			"no cluster is registered in namespace n: tenure cluster add NAME"},
		{"others, and Secrets can't be read", unreadable,
			"--cluster north: no such cluster; there are: east, west; not read: the kubeconfig Secrets (forbidden)"},
	} {
		if _, err := theCluster(c.s, "north"); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
