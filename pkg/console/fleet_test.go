package console

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tenure-dev/tenure/bench/machine"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/certs"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// healthy is two replicas that share two clusters of four shards, an hour old.
func healthy() Snapshot {
	s := Snapshot{Home: "https://home", Namespace: "tenure-system", Now: now, Registered: true}
	s.Records.Leases = []coordinationv1.Lease{lease("r0", time.Second), lease("r1", 2*time.Second), lead("r0-aaaaaa")}
	for _, cluster := range []string{"east", "west"} {
		s.Clusters = append(s.Clusters, Answer{Cluster: keyspace.ClusterName(cluster), Since: now.Add(-time.Hour),
			Reason: clusterhealth.ReasonUsable})
		for i, prefix := range keyspace.Partition(2) {
			s.Records.Shards = append(s.Records.Shards, shardRecord(cluster, prefix.String(), fmt.Sprintf("r%d-aaaaaa", i%2)))
		}
	}
	return s
}

func lease(replica string, ago time.Duration) coordinationv1.Lease {
	return coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: replica + "-aaaaaa", ResourceVersion: "5",
			Labels: map[string]string{tenurev1alpha1.RoleLabel: tenurev1alpha1.RoleMember,
				tenurev1alpha1.ReplicaLabel: replica},
			Annotations: map[string]string{"tenure.dev/lease-duration": "10s", "tenure.dev/build": "v1"},
		},
		Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: now.Add(-ago)}},
	}
}

func lead(holder string) coordinationv1.Lease {
	return coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: tenurev1alpha1.CoordinatorName, ResourceVersion: "6",
			Labels: map[string]string{tenurev1alpha1.RoleLabel: tenurev1alpha1.RoleCoordinator}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
}

func shardRecord(cluster, prefix, holder string) tenurev1alpha1.Shard {
	p, err := keyspace.ParsePrefix(prefix)
	if err != nil {
		panic(err)
	}
	id := keyspace.ShardID{Cluster: keyspace.ClusterName(cluster), Prefix: p}
	return tenurev1alpha1.Shard{
		ObjectMeta: metav1.ObjectMeta{Name: id.RecordName(""), ResourceVersion: "7",
			CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
		Spec: tenurev1alpha1.ShardSpec{Cluster: cluster, Prefix: prefix, Assignee: holder},
		Status: tenurev1alpha1.ShardStatus{
			Holder: holder, Epoch: 3, Phase: tenurev1alpha1.ShardHeld, Objects: 10, LoadMilli: 20,
			HeldSince: &metav1.MicroTime{Time: now.Add(-time.Hour)},
			LastMove: &tenurev1alpha1.ShardMove{Kind: string(protocol.Join), To: holder,
				Time: metav1.NewMicroTime(now.Add(-time.Hour))},
		},
	}
}

// assigned makes a record's assignee differ from its holder, since some time ago.
func assigned(s *tenurev1alpha1.Shard, to string, ago time.Duration) {
	s.Spec.Assignee = to
	at := metav1.NewTime(now.Add(-ago))
	s.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "tenure", Time: &at, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:assignee":{}}}`)},
		{Manager: "kubectl", Time: &metav1.Time{Time: now},
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{}}}`)},
		{Manager: "tenure", Subresource: "status", Time: &metav1.Time{Time: now},
			FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)},
	}
}

// hold makes a replica the holder and assignee of a cluster's shards, or nobody, if by is "".
func hold(s *Snapshot, cluster, by string) {
	for i := range s.Records.Shards {
		if r := &s.Records.Shards[i]; r.Spec.Cluster == cluster {
			r.Spec.Assignee, r.Status.Holder = by, by
		}
	}
}

// forget has a cluster's shards held by nobody, and no replica know it. A replica says that it can't serve such a
// cluster.
func forget(s *Snapshot, cluster string) {
	hold(s, cluster, "")
	for i := range s.Records.Leases[:2] {
		s.Records.Leases[i].Annotations["tenure.dev/unfit"] = cluster
	}
}

// letGo has the last shard's status written as long ago.
func letGo(s *Snapshot, ago time.Duration) {
	s.Records.Shards[7].ManagedFields = []metav1.ManagedFieldsEntry{
		{Subresource: "status", Time: &metav1.Time{Time: now.Add(-ago)}}}
}

// westAway has west not answer here.
func westAway(s *Snapshot) {
	s.Clusters[1].Reason, s.Clusters[1].Note = clusterhealth.ReasonUnreachable, "no route"
}

// secretOf is the Secret of a cluster whose kubeconfig has these fields of the cluster and this token.
func secretOf(name, fields, token string) corev1.Secret {
	const text = `{current-context: c, clusters: [{name: c, cluster: {%s}}],` +
		` contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: %s}}]}`
	s := corev1.Secret{Data: map[string][]byte{kubeconfig.Key: fmt.Appendf(nil, text, fields, token)}}
	s.Name = name
	return s
}

// event is what a replica said of a cluster's Secret at a time.
func event(cluster string, uid types.UID, reason string, at time.Time) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint(cluster, at.UnixNano()),
			CreationTimestamp: metav1.NewTime(at)},
		InvolvedObject:      corev1.ObjectReference{Kind: "Secret", Namespace: "ns", Name: cluster, UID: uid},
		ReportingController: clusterhealth.EventReporter, Reason: reason, EventTime: metav1.NewMicroTime(at),
	}
}

// homeWith is a home cluster with these events.
func homeWith(events ...client.Object) client.Client {
	kind := func(o client.Object) []string { return []string{o.(*corev1.Event).InvolvedObject.Kind} }
	return fake.NewClientBuilder().WithIndex(&corev1.Event{}, "involvedObject.kind", kind).WithObjects(events...).Build()
}

// large is a fleet of so many replicas and clusters, each of 1<<bits shards.
func large(replicas, clusters, bits int) Snapshot {
	s := Snapshot{Namespace: "n", Now: now, Registered: true}
	for i := range replicas {
		s.Records.Leases = append(s.Records.Leases, lease(fmt.Sprint("r", i), time.Second))
	}
	s.Records.Leases = append(s.Records.Leases, lead("r0-aaaaaa"))
	for c := range clusters {
		cluster := fmt.Sprint("c", c)
		s.Clusters = append(s.Clusters, Answer{Cluster: keyspace.ClusterName(cluster), Reason: clusterhealth.ReasonUsable})
		for i, prefix := range keyspace.Partition(bits) {
			s.Records.Shards = append(s.Records.Shards, shardRecord(cluster, prefix.String(),
				fmt.Sprintf("r%d-aaaaaa", (c<<bits+i)%replicas)))
		}
	}
	return s
}

// said is the findings without what to do.
func said(f Fleet) []string {
	var all []string
	for _, x := range f.Findings {
		all = append(all, string(x.Severity)+": "+x.What)
	}
	return all
}

// stick makes r1 say that it can't serve some shards of west.
func stick(s *Snapshot, shards int) {
	s.Records.Leases[1].Annotations["tenure.dev/cluster-trouble"] = inspect.EncodeViews([]inspect.ClusterView{
		{Cluster: "west", State: protocol.ClusterClosed, Stuck: shards, StuckSeconds: 92}})
}

// shutOut makes a replica say that it can't use west, as replicas do.
func shutOut(s *Snapshot, replica int) {
	says := s.Records.Leases[replica].Annotations
	says["tenure.dev/unfit"] = "west"
	says["tenure.dev/cluster-trouble"] = inspect.EncodeViews([]inspect.ClusterView{
		{Cluster: "west", State: protocol.ClusterOpen, Cause: "silent"}})
}

func TestTheFleetIsJudgedByItsRecords(t *testing.T) {
	cases := map[string]struct {
		change func(*Snapshot)
		want   []string
	}{
		"nothing is wrong": {func(*Snapshot) {}, nil},
		"a shard has no holder": {
			func(s *Snapshot) { s.Records.Shards[1].Status.Holder, s.Records.Shards[1].Spec.Assignee = "", "" },
			[]string{"wrong: nobody holds 1 shard: east/01", "note: the planner would move 1 shard"}},
		"a holder can't serve what it holds": {func(s *Snapshot) { shutOut(s, 1) },
			[]string{"wrong: 2 shards of cluster west held by replicas that can't serve or watch it: r1-aaaaaa",
				"wrong: nothing is served (silent): west at r1-aaaaaa",
				"note: the planner would move 4 shards"}},
		"a holder can't fill its caches of some of what it holds": {func(s *Snapshot) { stick(s, 1) },
			[]string{"wrong: 1 shard of cluster west held by replicas that can't serve or watch it: r1-aaaaaa"}},
		"a holder says that it can't fill more than it holds": {func(s *Snapshot) { stick(s, 9) },
			[]string{"wrong: 2 shards of cluster west held by replicas that can't serve or watch it: r1-aaaaaa"}},
		"a replica can't serve what others hold": {func(s *Snapshot) {
			shutOut(s, 1)
			hold(s, "west", "r0-aaaaaa")
			hold(s, "east", "r1-aaaaaa")
		}, []string{"note: cluster west can't be served by r1-aaaaaa; others serve it"}},
		"no replica can serve what one holds": {func(s *Snapshot) {
			shutOut(s, 0)
			shutOut(s, 1)
			hold(s, "west", "r0-aaaaaa")
			hold(s, "east", "r1-aaaaaa")
		}, []string{"wrong: 4 shards of cluster west held by replicas that can't serve or watch it: r0-aaaaaa",
			"wrong: nothing is served (silent): west at r0-aaaaaa"}},
		"no replica can serve a cluster, and nobody holds it": {func(s *Snapshot) {
			shutOut(s, 0)
			shutOut(s, 1)
			hold(s, "west", "")
		}, []string{"wrong: nobody holds 4 shards: west/00, west/01, west/10 and 1 more",
			"wrong: nothing is served (silent): west at 2 replicas",
			"note: cluster west can't be served by r0-aaaaaa, r1-aaaaaa; nobody serves it"}},
		"all holders are quiet, of a cluster without a Secret too": {func(s *Snapshot) {
			s.Clusters = s.Clusters[:1]
			s.Records.Leases[0], s.Records.Leases[1] = lease("r0", time.Minute), lease("r1", time.Minute)
		}, []string{"wrong: no replica is alive: nothing is reconciled",
			"wrong: r0-aaaaaa, which is quiet, holds 4 shards: east/00, east/10, west/00 and 1 more",
			"wrong: r1-aaaaaa, which is quiet, holds 4 shards: east/01, east/11, west/01 and 1 more",
			"wrong: replica r0-aaaaaa hasn't renewed its Lease for 60s of 10s (by its own clock)",
			"wrong: replica r1-aaaaaa hasn't renewed its Lease for 60s of 10s (by its own clock)"}},
		"a holder was sealed": {func(s *Snapshot) { s.Records.Leases[1].Annotations["tenure.dev/sealed-by"] = "r0-aaaaaa" },
			[]string{"wrong: r1-aaaaaa, which was sealed, holds 4 shards: east/01, east/11, west/01 and 1 more",
				"note: the planner would move 4 shards"}},
		"a holder has no lease": {func(s *Snapshot) { s.Records.Leases = append(s.Records.Leases[:1], s.Records.Leases[2]) },
			[]string{"wrong: r1-aaaaaa, which has no Lease, holds 4 shards: east/01, east/11, west/01 and 1 more",
				"note: the planner would move 4 shards"}},
		"a holder is quiet": {func(s *Snapshot) { s.Records.Leases[1] = lease("r1", 11*time.Second) },
			[]string{"wrong: r1-aaaaaa, which is quiet, holds 4 shards: east/01, east/11, west/01 and 1 more",
				"wrong: replica r1-aaaaaa hasn't renewed its Lease for 11s of 10s (by its own clock)",
				"note: the planner would move 4 shards"}},
		"one that was seen to renew isn't quiet, whatever its clock says": {func(s *Snapshot) {
			s.Records.Leases[1] = lease("r1", time.Hour)
			s.Seen = map[string]LeaseWatch{"r1-aaaaaa": {Since: now.Add(-time.Second), Changed: true}}
		}, []string{"note: the clock of replica r1 is behind this one by 59m59s"}},
		"a time is past, for too short a while to know more": {func(s *Snapshot) {
			s.Records.Leases[1], s.Repeated = lease("r1", 15*time.Second), true
			s.Seen = map[string]LeaseWatch{"r1-aaaaaa": {Since: now.Add(-3 * time.Second)}}
		}, []string{"note: whether replica r1-aaaaaa lives isn't known: its Lease is 15s old by its own clock, " +
			"and it has been watched too briefly to tell"}},
		"a time is past, and stays the same": {func(s *Snapshot) {
			s.Records.Leases[1], s.Repeated = lease("r1", 15*time.Second), true
			s.Seen = map[string]LeaseWatch{"r1-aaaaaa": {Since: now.Add(-4 * time.Second)}}
		}, []string{"wrong: r1-aaaaaa, which is quiet, holds 4 shards: east/01, east/11, west/01 and 1 more",
			"wrong: replica r1-aaaaaa hasn't renewed its Lease for 15s of 10s (by its own clock)",
			"note: the planner would move 4 shards"}},
		"one that renews by a clock that is ahead": {func(s *Snapshot) {
			s.Records.Leases[1] = lease("r1", -time.Minute)
			s.Seen = map[string]LeaseWatch{"r1-aaaaaa": {Since: now.Add(-time.Second), Changed: true}}
		}, []string{"note: the clock of replica r1 is ahead of this one by 61s"}},
		"a time is ahead, for too short a while to know more": {func(s *Snapshot) {
			s.Records.Leases[1] = lease("r1", -time.Minute)
			s.Seen = map[string]LeaseWatch{"r1-aaaaaa": {Since: now.Add(-3 * time.Second)}}
		}, []string{"note: whether replica r1-aaaaaa lives isn't known: the clock by which it renewed its Lease is " +
			"ahead of this one by 63s, and it wasn't seen to renew since"}},
		"a time is ahead, and stays the same": {func(s *Snapshot) {
			s.Records.Leases[1] = lease("r1", 2*time.Second) // it was ahead when the watch began, hours ago
			s.Seen = map[string]LeaseWatch{"r1-aaaaaa": {Since: now.Add(-2 * time.Hour)}}
		}, []string{"wrong: r1-aaaaaa, which is quiet, holds 4 shards: east/01, east/11, west/01 and 1 more",
			"wrong: replica r1-aaaaaa hasn't renewed its Lease for 2h00m of 10s (as watched from here; a live replica " +
				"renews it four times in 10s, and the time in it is 119m58s ahead of this clock)",
			"note: the planner would move 4 shards"}},
		"one that is sealed needs no look at its clock": {func(s *Snapshot) {
			s.Records.Leases = append(s.Records.Leases, lease("r2", -time.Minute))
			s.Records.Leases[3].Annotations["tenure.dev/sealed-by"] = "r0-aaaaaa"
		}, nil},
		"nobody is alive": {func(s *Snapshot) { s.Records.Leases, s.Records.Shards = nil, nil },
			[]string{"wrong: no replica is alive: nothing is reconciled",
				"wrong: not divided into shards yet: east, west"}},
		"there is no coordinator": {func(s *Snapshot) { s.Records.Leases = s.Records.Leases[:2] },
			[]string{"wrong: there is no coordinator"}},
		"the coordinator is dead": {func(s *Snapshot) { s.Records.Leases[2] = lead("r9-zzzzzz") },
			[]string{"wrong: the coordinator, r9-zzzzzz, is missing"}},
		"a record is missing": {func(s *Snapshot) { s.Records.Shards = s.Records.Shards[1:] },
			[]string{"wrong: no record covers a part of: east (64 of 256 slots)"}},
		"records overlap": {
			func(s *Snapshot) { s.Records.Shards = append(s.Records.Shards, shardRecord("west", "1", "r0-aaaaaa")) },
			[]string{"wrong: records overlap, and no layout says which of them count: west"}},
		"a record has the name of another": {func(s *Snapshot) {
			extra := shardRecord("west", "1", "r0-aaaaaa")
			extra.Name, extra.Spec.Generation = "mine", 1
			s.Records.Shards = append(s.Records.Shards, extra)
		}, []string{"wrong: record mine: is about shard west/1, whose record is west.p1; delete it"}},
		"a cluster doesn't answer": {func(s *Snapshot) { westAway(s); s.Clusters[1].Reported = true },
			[]string{"wrong: cluster west: Unreachable: no route"}},
		"a cluster doesn't answer here": {westAway,
			[]string{"note: can't be reached from here, and replicas serve all of it: west"}},
		"a cluster doesn't answer here, and a replica can't reach it": {
			func(s *Snapshot) { westAway(s); s.Records.Leases[1].Annotations["tenure.dev/unfit"] = "west" },
			[]string{"wrong: 2 shards of cluster west held by replicas that can't serve or watch it: r1-aaaaaa",
				"wrong: cluster west: Unreachable: no route", "note: the planner would move 4 shards"}},
		"a cluster doesn't answer here, and credentials are refused": {
			func(s *Snapshot) { s.Clusters[1].Reason, s.Clusters[1].Note = clusterhealth.ReasonRefused, "no" },
			[]string{"wrong: cluster west: AccessRefused: no"}},
		"a new cluster is being divided": {func(s *Snapshot) {
			s.Clusters = append(s.Clusters, Answer{Cluster: "new", Since: now.Add(-time.Second),
				Reason: clusterhealth.ReasonUsable})
		}, []string{"note: cluster new is new and not divided into shards yet"}},
		"a cluster isn't divided": {func(s *Snapshot) {
			s.Clusters = append(s.Clusters, Answer{Cluster: "new", Since: now.Add(-time.Hour),
				Reason: clusterhealth.ReasonUsable})
		}, []string{"wrong: not divided into shards yet: new"}},
		"a cluster was removed": {func(s *Snapshot) {
			s.Clusters = s.Clusters[:1]
			forget(s, "west")
			for i := 4; i < 8; i++ { // the assignees stay
				s.Records.Shards[i].Spec.Assignee = "r0-aaaaaa"
			}
		}, []string{"note: not registered any more, records kept for their epochs: west"}},
		"a cluster was removed, and a replica that has just begun may be about to know it": {func(s *Snapshot) {
			s.Clusters = s.Clusters[:1]
			forget(s, "west")
			young := lease("r2", time.Second)
			young.CreationTimestamp = metav1.NewTime(now.Add(-19 * time.Second))
			s.Records.Leases = append(s.Records.Leases, young)
		}, []string{"note: not registered any more, records kept for their epochs: west",
			"note: the planner would move 1 shard"}},
		"a cluster was removed, and a replica hasn't said yet that it doesn't know it": {func(s *Snapshot) {
			s.Clusters = s.Clusters[:1]
			forget(s, "west")
			delete(s.Records.Leases[1].Annotations, "tenure.dev/unfit")
			letGo(s, 9*time.Second)
		}, []string{"note: not registered any more, records kept for their epochs: west"}},
		"a cluster was removed, and one replica still finishes what it does there": {func(s *Snapshot) {
			s.Clusters = s.Clusters[:1]
			forget(s, "west")
			s.Records.Shards[7].Status.Holder = "r0-aaaaaa"
		}, []string{"note: cluster west was removed, with 1 shard still held by r0-aaaaaa"}},
		"a cluster was removed, and one replica that finishes there is quiet": {func(s *Snapshot) {
			s.Clusters = s.Clusters[:1]
			forget(s, "west")
			s.Records.Shards[7].Status.Holder = "r0-aaaaaa"
			s.Records.Leases[0].Spec.RenewTime = lease("r0", 15*time.Second).Spec.RenewTime
		}, []string{"wrong: the coordinator, r0-aaaaaa, is quiet",
			"wrong: r0-aaaaaa, which is quiet, holds 2 shards: east/00, east/10",
			"wrong: replica r0-aaaaaa hasn't renewed its Lease for 15s of 10s (by its own clock)",
			"note: cluster west was removed, with 1 shard still held by r0-aaaaaa", "note: the planner would move 2 shards"}},
		"nobody holds a part of a cluster of a file that doesn't answer": {func(s *Snapshot) {
			s.Clusters = s.Clusters[:1]
			forget(s, "west")
			s.Records.Shards[7].Status.Holder = "r0-aaaaaa"
			shutOut(s, 0)
		}, []string{"wrong: nobody holds 3 shards: west/00, west/01, west/10",
			"wrong: 1 shard of cluster west held by replicas that can't serve or watch it: r0-aaaaaa",
			"wrong: nothing is served (silent): west at r0-aaaaaa"}},
		"nobody holds a part of a cluster of a file, whose holder has just begun": {func(s *Snapshot) {
			s.Clusters = s.Clusters[:1]
			forget(s, "west")
			s.Records.Shards[7].Status.Holder = "r0-aaaaaa"
			delete(s.Records.Leases[0].Annotations, "tenure.dev/unfit")
			s.Records.Leases[0].CreationTimestamp = metav1.NewTime(now)
		}, []string{"wrong: nobody holds 3 shards: west/00, west/01, west/10",
			"note: cluster west can't be served by r1-aaaaaa; others serve it", "note: the planner would move 5 shards"}},
		"nobody holds home, which has no Secret": {func(s *Snapshot) {
			s.Clusters = s.Clusters[:1]
			forget(s, "west")
			delete(s.Records.Leases[1].Annotations, "tenure.dev/unfit")
			letGo(s, 10*time.Second)
		}, []string{"wrong: nobody holds 4 shards: west/00, west/01, west/10 and 1 more",
			"note: cluster west can't be served by r0-aaaaaa; nobody serves it", "note: the planner would move 6 shards"}},
		"the holder of home has ended": {func(s *Snapshot) {
			s.Clusters = s.Clusters[:1]
			hold(s, "west", "r9-aaaaaa")
		}, []string{"wrong: r9-aaaaaa, which has no Lease, holds 4 shards: west/00, west/01, west/10 and 1 more",
			"note: the planner would move 4 shards"}},
		"a move is under way": {func(s *Snapshot) { assigned(&s.Records.Shards[0], "r1-aaaaaa", 5*time.Second) }, nil},
		"a move is stuck": {func(s *Snapshot) {
			assigned(&s.Records.Shards[0], "r1-aaaaaa", 90*time.Second)
			s.Records.Shards[0].Status.Warm = "r1-aaaaaa"
		}, []string{"wrong: on the way for more than 60s: 1 shard: east/00 (draining)"}},
		"a crash was healed": {func(s *Snapshot) {
			s.Records.Shards[0].Status.LastMove = &tenurev1alpha1.ShardMove{
				Kind: string(protocol.Crash), From: "r2-bbbbbb", To: "r0-aaaaaa", Time: metav1.NewMicroTime(now.Add(-time.Minute)),
			}
		}, []string{"note: r2-bbbbbb died or lapsed 60s ago: others took over 1 shard: east/00"}},
		"one replica has everything": {func(s *Snapshot) {
			hold(s, "west", "r0-aaaaaa")
			hold(s, "east", "r0-aaaaaa")
		}, []string{"note: the planner would move 4 shards"}},
		"two lives of one replica": {func(s *Snapshot) {
			l := lease("r1", time.Second)
			l.Name, l.Annotations["tenure.dev/leaving"] = "r1-bbbbbb", "true"
			s.Records.Leases = append(s.Records.Leases, l)
		}, []string{"note: 2 live incarnations are called r1"}},
		"a rollout": {func(s *Snapshot) { s.Records.Leases[1].Annotations["tenure.dev/build"] = "v2" },
			[]string{"note: a rollout is under way: builds v1, v2"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := healthy()
			c.change(&s)
			f := Assess(s)
			expect.Equal(t, "findings", c.want, said(f))
			wrong := strings.Contains(strings.Join(c.want, "\n"), "wrong: ")
			if f.Healthy == wrong {
				t.Errorf("healthy is %v", f.Healthy)
			}
			for _, x := range f.Findings {
				if x.Severity == Wrong && (x.Do == "" || x.Alert == "") {
					t.Errorf("%q says neither what to do nor where to read on", x.What)
				}
			}
		})
	}
}

func TestTheViewCountsWhatTheRecordsSay(t *testing.T) {
	s := healthy()
	assigned(&s.Records.Shards[0], "r1-aaaaaa", 5*time.Second)
	f := Assess(s)
	expect.Equal(t, "totals", Totals{Replicas: 2, Clusters: 2, Shards: 8, Held: 8, Moving: 1, Objects: 80, Load: 0.16},
		f.Totals, cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }))
	expect.Equal(t, "moves", []Move{{
		Shard: keyspace.ShardID{Cluster: "east", Prefix: keyspace.Partition(2)[0]}, From: "r0-aaaaaa", To: "r1-aaaaaa",
		Stage: "warming", AskedAgo: 5,
	}}, f.Moves)
	if got, want := f.Clusters[0].Map, "aaaaaaaabbbbbbbbaaaaaaaabbbbbbbb"; got != want {
		t.Errorf("map %s, want %s", got, want)
	}
	if !f.Replicas[0].Coordinator || f.Replicas[1].Coordinator {
		t.Error("the coordinator is another")
	}
}

func TestAMapMarksWhatIsMixedAndWhatIsNobodys(t *testing.T) {
	s := healthy()
	s.Records.Shards = nil
	for i, prefix := range keyspace.Partition(8) {
		r := shardRecord("west", prefix.String(), fmt.Sprintf("r%d-aaaaaa", i%2))
		if i < 8 {
			r.Status.Holder = ""
		}
		s.Records.Shards = append(s.Records.Shards, r)
	}
	clusters := Assess(s).Clusters
	west := slices.IndexFunc(clusters, func(c Cluster) bool { return c.Name == "west" })
	if want := "." + strings.Repeat("+", 31); west < 0 || clusters[west].Map != want {
		t.Errorf("%+v, want west with the map %s", clusters, want)
	}
}

func TestLimitsThatCannotBeUsedAreSaid(t *testing.T) {
	s := healthy()
	for i := range 2 * examples {
		s.BadLimits = append(s.BadLimits, fmt.Sprintf("Secret ns/c%d: annotation tenure.dev/cluster-qps: fast", i))
	}
	f := Assess(s)
	if last := len(f.Findings) - 1; !f.Healthy || last != examples || !strings.Contains(f.Findings[0].What, "ns/c0") ||
		!strings.HasPrefix(f.Findings[last].What, fmt.Sprintf("limits of %d clusters more", examples)) {
		t.Errorf("healthy %v: %+v", f.Healthy, f.Findings)
	}
}

func TestWhatCannotBeReadIsSaidAndNotJudged(t *testing.T) {
	s := healthy()
	s.Clusters, s.Registered, s.Unread = nil, false, []string{"the Secrets"}
	f := Assess(s)
	if !f.Healthy || len(f.Clusters) != 2 || f.Clusters[0].Removed || len(f.Unread) != 1 {
		t.Errorf("healthy %v, clusters %v, unread %v", f.Healthy, f.Clusters, f.Unread)
	}
}

// Who may not read Secrets knows clusters by their records, and by what replicas complain of.
func TestWithoutSecretsAClusterThatNobodyHoldsIsConcludedToBeGone(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*Snapshot)
		healthy bool
		want    string
	}{
		{"nobody complains", func(*Snapshot) {}, true,
			"held by nobody, and no replica complains, so probably not registered any more: west"},
		{"a replica complains", func(s *Snapshot) {
			s.Clusters = []Answer{{Cluster: "west", Since: now.Add(-time.Minute), Reason: clusterhealth.ReasonBadConfig,
				Note: "kubeconfig: x"}}
		}, false, "cluster west: BadKubeconfig: kubeconfig: x"},
		{"it had trouble before", func(s *Snapshot) {
			s.Clusters = []Answer{{Cluster: "west", Since: now.Add(-time.Minute), Reason: clusterhealth.ReasonUsable}}
		}, true, "held by nobody, and no replica complains, so probably not registered any more: west"},
		{"a part of it is held", func(s *Snapshot) { s.Records.Shards[7].Status.Holder = "r0-aaaaaa" }, false,
			"nobody holds 3 shards"},
		{"a replica keeps what it has of it", func(s *Snapshot) {
			s.Records.Leases[0].Annotations["tenure.dev/unfit"] = "west+"
		}, false, "nobody holds 4 shards"},
		{"no replica lives", func(s *Snapshot) { s.Records.Leases = nil }, false, "no replica is alive"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := healthy()
			s.Clusters, s.Registered = nil, false
			forget(&s, "west")
			c.change(&s)
			f := Assess(s)
			if text := strings.Join(said(f), "\n"); f.Healthy != c.healthy || !strings.Contains(text, c.want) {
				t.Errorf("healthy %v, want %v and %q:\n%s", f.Healthy, c.healthy, c.want, text)
			}
		})
	}
}

func TestTheJSONOfAFleetIsReadBackAsItWas(t *testing.T) {
	f := Assess(healthy())
	text, err := json.Marshal(f)
	must.Succeed(t, err)
	var back Fleet
	must.Succeed(t, json.Unmarshal(text, &back))
	expect.Equal(t, "written and read", f, back)
}

func TestAssessingTheLargestFleetTakesWellUnderASecond(t *testing.T) {
	s := large(100, 200, 6)
	before := machine.ProcessorTime() // not the clock's: other programs don't count
	f := Assess(s)
	if took := machine.ProcessorTime() - before; took > 5*time.Second { // 50 ms without the race detector
		t.Errorf("%d shards took %v of processor time", f.Totals.Shards, took)
	}
	if !f.Healthy || f.Totals.Held != 12800 {
		t.Errorf("healthy %v, held %d: %v", f.Healthy, f.Totals.Held, said(f))
	}
}

func TestInJSONNoneIsAnEmptyList(t *testing.T) {
	s := healthy()
	s.Clusters, s.Records.Shards = nil, nil
	empty, err := Foresee(s, Wish{})
	must.Succeed(t, err)
	for _, answer := range []any{Assess(Snapshot{Now: now}), Assess(s), empty} {
		if text, err := json.Marshal(answer); err != nil || strings.Contains(string(text), "null") {
			t.Errorf("%v: %s", err, text)
		}
	}
}

// Events are kept for an hour. A trouble that stays is told again long before that.
func TestATroubleThatIsNotToldAgainIsOver(t *testing.T) {
	var events []client.Object
	for _, e := range []struct {
		cluster, reason string
		ago             time.Duration
	}{
		{"removed", clusterhealth.ReasonUsable, 55 * time.Minute},
		{"removed", clusterhealth.ReasonUnreachable, 50 * time.Minute},
		{"away", clusterhealth.ReasonUnreachable, 10 * time.Minute}, {"back", clusterhealth.ReasonUsable, 50 * time.Minute},
		{"limited", clusterhealth.ReasonBadLimits, time.Minute},
		{"both", clusterhealth.ReasonRefused, 2 * time.Minute}, {"both", clusterhealth.ReasonBadLimits, time.Minute},
	} {
		events = append(events, event(e.cluster, "", e.reason, time.Now().Add(-e.ago)))
	}
	all, err := Reports(t.Context(), homeWith(events...), Snapshot{Namespace: "ns"})
	must.Succeed(t, err)
	got := map[keyspace.ClusterName]string{}
	for _, a := range all {
		got[a.Cluster] = a.Reason
	}
	want := map[keyspace.ClusterName]string{
		"away": clusterhealth.ReasonUnreachable, "back": clusterhealth.ReasonUsable, "both": clusterhealth.ReasonRefused,
	}
	expect.Equal(t, "troubles", want, got)
}

func TestTheOldestReplicaIsTheFirstThatIsAlive(t *testing.T) {
	s := healthy()
	for i, ago := range []time.Duration{time.Minute, time.Hour} {
		s.Records.Leases[i].CreationTimestamp.Time = now.Add(-ago)
	}
	if got := oldest(s); !got.Equal(now.Add(-time.Hour)) {
		t.Errorf("the oldest of two began %v ago", now.Sub(got))
	}
	s.Records.Leases[1].Spec.RenewTime.Time = now.Add(-time.Minute) // it is quiet
	if got := oldest(s); !got.Equal(now.Add(-time.Minute)) {
		t.Errorf("the only one that is alive began %v ago", now.Sub(got))
	}
	if got := oldest(Snapshot{Now: now}); !got.IsZero() {
		t.Errorf("without replicas, the oldest began at %v", got)
	}
}

// Whether replicas take a kubeconfig depends on their flags, which nobody else has.
func TestWhatReplicasRefuseOfASecretAsItIsNowIsBelieved(t *testing.T) {
	var events []client.Object
	secrets, want := []corev1.Secret{}, []keyspace.ClusterName{"allowed-only", "kept-on", "refused"}
	for _, c := range []struct {
		cluster, version string        // of the Secret that the events are about; it is at version 7 now
		ago              time.Duration // of the first event
		reasons          []string
	}{
		{"refused", "7", 9 * time.Second, []string{clusterhealth.ReasonBadConfig}},
		{"changed-since", "6", 9 * time.Second, []string{clusterhealth.ReasonBadConfig}},
		{"taken-since", "7", 9 * time.Second, []string{clusterhealth.ReasonBadConfig, clusterhealth.ReasonUsable}},
		{"answers-here", "7", 9 * time.Second, []string{clusterhealth.ReasonUnreachable}},
		{"kept-on", "7", 9 * time.Second, []string{clusterhealth.ReasonUnreachable}},
		{"refused-by-others", "7", time.Minute, []string{clusterhealth.ReasonBadConfig}},
		{"allowed-only", "6", 9 * time.Second, []string{clusterhealth.ReasonUnreachable}},
	} {
		var s corev1.Secret
		s.Name, s.UID, s.ResourceVersion = c.cluster, types.UID(c.cluster), "7"
		secrets = append(secrets, s)
		for i, reason := range c.reasons {
			e := event(c.cluster, s.UID, reason, time.Now().Add(time.Duration(i)*time.Second-c.ago))
			e.InvolvedObject.ResourceVersion = c.version
			if c.cluster == "kept-on" {
				e.Action = clusterhealth.ActionKeep
			}
			events = append(events, e)
		}
	}
	only := map[string]types.UID{"allowed-only": "allowed-only"}
	began := time.Now().Add(-30 * time.Second) // the oldest replica
	all, err := complaints(t.Context(), homeWith(events...), "ns", secrets, only, began, time.Now())
	must.Succeed(t, err)
	var got []keyspace.ClusterName
	for _, a := range all {
		got = append(got, a.Cluster)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("believed of %v, want %v", got, want)
	}
}

func TestAClusterThatThereWasNoTimeToAskIsNotCalledAway(t *testing.T) {
	var secrets []corev1.Secret
	for i := range 3 * asksAtOnce {
		secrets = append(secrets, secretOf(fmt.Sprint("c", i), `server: "https://127.0.0.1:1"`, "t"))
	}
	secrets[1].Data = nil
	over, end := context.WithCancel(t.Context())
	end()
	for _, c := range []struct {
		ctx     context.Context
		ask     bool
		unasked int
		reason  string
	}{
		{over, true, len(secrets) - 1, ""}, {t.Context(), true, 0, clusterhealth.ReasonUnreachable}, {over, false, 0, ""},
	} {
		var s Snapshot
		Gatherer{Ask: c.ask}.judge(c.ctx, homeWith(), secrets, &s)
		want := ""
		if c.unasked > 0 {
			want = fmt.Sprintf("there was no time to ask %d clusters whether they can be used", c.unasked)
		}
		if got := strings.Join(s.Unread, "; "); got != want || s.Clusters[0].Reason != c.reason {
			t.Errorf("%q, want %q; %+v, %+v", got, want, s.Clusters[0], s.Clusters[1])
		}
	}
}

func TestAKubeconfigThatNoReplicaCanUseIsToldWithoutAskingAnyCluster(t *testing.T) {
	for _, ask := range []bool{false, true} {
		s, secrets := healthy(), []corev1.Secret{secretOf("new", `server: "nowhere"`, "t")}
		Gatherer{Namespace: "ns", Ask: ask}.judge(t.Context(), homeWith(), secrets, &s)
		var got []string
		for _, x := range said(Assess(s)) {
			if strings.Contains(x, "new") {
				got = append(got, x)
			}
		}
		if len(got) != 1 || !strings.HasPrefix(got[0], "wrong: cluster new: BadKubeconfig: kubeconfig: ") {
			t.Errorf("clusters are asked: %v: %q", ask, got)
		}
	}
}

// A kubeconfig with a proxy is refused here, and used by replicas with --kubeconfig-allow=proxy.
func TestAClusterThatOnlyReplicasMayUseIsJudgedByWhatTheySay(t *testing.T) {
	secret := secretOf("west", `server: "https://h", proxy-url: "http://p:1"`, "t")
	secret.UID = "new"
	for name, c := range map[string]struct {
		uid    types.UID
		reason string
		ago    time.Duration
		want   string
	}{
		"nobody complains":        {},
		"a replica refuses it":    {"new", clusterhealth.ReasonBadConfig, time.Minute, clusterhealth.ReasonBadConfig},
		"it is over":              {"new", clusterhealth.ReasonUsable, time.Minute, ""},
		"it wasn't told again":    {"new", clusterhealth.ReasonBadConfig, 50 * time.Minute, ""},
		"that was another Secret": {"old", clusterhealth.ReasonBadConfig, time.Minute, ""},
		"that was a file's":       {"file:/clusters/west", clusterhealth.ReasonUnreachable, time.Minute, ""},
	} {
		t.Run(name, func(t *testing.T) {
			home := homeWith(event("west", c.uid, c.reason, now.Add(-c.ago)))
			s := healthy()
			s.Clusters = nil
			Gatherer{Namespace: "ns", Ask: true}.judge(t.Context(), home, []corev1.Secret{secret}, &s)
			if len(s.Clusters) != 1 || s.Clusters[0].Reason != c.want || (len(s.Unread) == 1) != (c.want == "") {
				t.Errorf("%+v, not read: %q; want reason %q", s.Clusters, s.Unread, c.want)
			}
			if f := Assess(s); f.Healthy != (c.want == "") {
				t.Errorf("healthy %v: %q", f.Healthy, said(f))
			}
		})
	}
}

// Records of a cluster that was removed stay for their epochs, held by nobody, and nothing is missing.
// The same goes for those of a name under which a cluster isn't served any more.
func TestWhatNeedsNoHolderIsNoPartOfTheTotals(t *testing.T) {
	for name, change := range map[string]func(*Snapshot){"removed": removeWest, "another name": renameWest} {
		s := healthy()
		change(&s)
		f := Assess(s)
		if f.Totals.Clusters != 1 || f.Totals.Shards != 4 || f.Totals.Held != 4 || len(f.Shards) != 8 {
			t.Errorf("%s: %+v of %d records, want one cluster whose 4 shards are all held", name, f.Totals, len(f.Shards))
		}
	}
}

func removeWest(s *Snapshot) {
	s.Clusters = s.Clusters[:1]
	forget(s, "west")
}

// renameWest makes west another name of east.
func renameWest(s *Snapshot) {
	named(s, "east", "e")
	s.Clusters[1].UID = "e"
	hold(s, "west", "")
}

func TestReplicasThatCanServeNothingAreFoundSoon(t *testing.T) {
	s := large(100, 1000, 3)
	for i := range 100 {
		s.Records.Leases[i].Annotations["tenure.dev/unfit"] = "!" // for all clusters
	}
	v := surveyOf(s)
	before := machine.ProcessorTime()
	found := v.findUnfit()
	if took := machine.ProcessorTime() - before; took > time.Second || len(found) != 1 {
		t.Errorf("%d findings took %v of processor time", len(found), took)
	}
}

// A screen shows a few findings, so hundreds of equal ones would hide the others.
func TestWhatIsSoOfManyClustersIsOneFindingAndWhatConcernsAllComesFirst(t *testing.T) {
	s := large(2, 100, 0)
	s.Records.Leases[1].Annotations["tenure.dev/unfit"] = "!c0" // r1 can serve c0 alone
	s.Records.Leases = s.Records.Leases[:2]
	for i := range 4 {
		name := keyspace.ClusterName(fmt.Sprint("new", i))
		s.Clusters = append(s.Clusters, Answer{Cluster: name, Since: now, Reason: clusterhealth.ReasonUsable})
	}
	expect.Equal(t, "findings", []string{
		"wrong: there is no coordinator",
		"wrong: 50 shards of 50 clusters are held by replicas that can't serve or watch them (r1-aaaaaa): c1, c11, c13 and " +
			"47 more",
		"note: new and not divided into shards yet: 4 clusters: new0, new1, new2 and 1 more",
		"note: 49 clusters: c10, c12, c14 and 46 more can't be served by some replicas (r1-aaaaaa); others serve them",
		"note: 4 clusters: new0, new1, new2 and 1 more can't be served by some replicas (r1-aaaaaa); nobody serves them",
		"note: the planner would move 51 shards",
	}, said(Assess(s)))
}

func TestATimeThatJSONCannotShowHidesNothingElse(t *testing.T) {
	s := healthy()
	s.Records.Shards[0].Status.LastMove = &tenurev1alpha1.ShardMove{Kind: string(protocol.Planned),
		Time: metav1.NewMicroTime(time.Date(10000, 1, 1, 12, 0, 0, 0, time.UTC))}
	q := question()
	q.At.Spec.Schedule = "9999-12-31T23:59:59-12:00"
	for _, answer := range []any{Assess(s), Explain(q)} {
		if _, err := json.Marshal(answer); err != nil {
			t.Error(err)
		}
	}
}

// Nothing is wrong yet, and a person has to act: the fleet renews its tokens before that, if it can.
func TestCredentialsThatExpireSoonAreToldWithTheWayOut(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		lived, left time.Duration
		reason      string
		want        string
	}{
		"the fleet renews it now":     {77 * day, 22 * day, "", ""},
		"a week of a year is left":    {358 * day, 7*day - time.Second, "", "note: credentials expire: west in 6d"},
		"more than a week of a year":  {357 * day, 7*day + time.Second, "", ""},
		"less than a fifth of a day":  {20 * time.Hour, 4 * time.Hour, "", "note: credentials expire: west in 4h00m"},
		"a quarter of a day":          {18 * time.Hour, 6 * time.Hour, "", ""},
		"none is left":                {day, -time.Hour, "", "wrong: credentials have expired: west"},
		"the cluster says so already": {day, -time.Hour, clusterhealth.ReasonRefused, ""},
	} {
		t.Run(name, func(t *testing.T) {
			claims := fmt.Sprintf(`{"iat":%d,"exp":%d}`, now.Add(-c.lived).Unix(), now.Add(c.left).Unix())
			token := "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
			s, secrets := healthy(), []corev1.Secret{secretOf("west", `server: "https://h"`, token)}
			Gatherer{Namespace: "ns"}.judge(t.Context(), homeWith(), secrets, &s)
			s.Clusters[0].Reason = c.reason
			got := ""
			for _, x := range Assess(s).Findings {
				if !strings.HasPrefix(x.What, "credentials") {
					continue
				}
				got += string(x.Severity) + ": " + x.What
				if !strings.Contains(x.Do, "tenure cluster rotate NAME") {
					t.Errorf("the way out is %q", x.Do)
				}
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// named has a layout say which cluster has a name.
func named(s *Snapshot, name, uid string) {
	s.Records.Layouts = append(s.Records.Layouts, tenurev1alpha1.Shard{
		ObjectMeta: metav1.ObjectMeta{Name: keyspace.LayoutName("", keyspace.ClusterName(name)), ResourceVersion: "9"},
		Spec: tenurev1alpha1.ShardSpec{Cluster: name, Generation: 1, Layout: &tenurev1alpha1.ShardLayout{Generation: 1,
			ClusterUID: uid, Prefixes: []string{"00", "01", "10", "11"}}}})
}

func TestShardsOfARemovedClusterCountWhileTheyAreHeld(t *testing.T) {
	s := healthy()
	s.Clusters = s.Clusters[:1]
	forget(&s, "west")
	s.Records.Shards[7].Status.Holder = "r0-aaaaaa"
	expect.Equal(t, "shards in the plan", 5, len(surveyOf(s).planShards()))
	expect.Equal(t, "shards in all", 5, Assess(s).Totals.Shards)
}

func TestCredentialsThatLeadToAnotherClusterAreToldWithItsNameAndTheWayOut(t *testing.T) {
	second := func(uid, recorded string) func(*Snapshot) {
		return func(s *Snapshot) {
			s.Clusters = append(s.Clusters, Answer{Cluster: "east2", Since: s.Now, Reason: clusterhealth.ReasonUsable, UID: uid,
				Recorded: recorded})
		}
	}
	const add, remove = "tenure cluster add west --kubeconfig FILE", "tenure cluster remove takes the wrong one"
	for name, c := range map[string]struct {
		change func(*Snapshot)
		reason string // of the last cluster
		says   []string
	}{
		"the right one":   {change: func(s *Snapshot) { s.Clusters[1].UID, s.Clusters[1].Recorded = "w", "w" }},
		"it wasn't asked": {change: func(s *Snapshot) { s.Clusters[1].Recorded = "w" }},
		"it can't be reached from here": {change: func(s *Snapshot) {
			westAway(s)
			s.Clusters[1].Recorded = "x"
		}, reason: ReasonAnother, says: []string{"UID w", "tenure.dev/cluster-uid of its Secret is x", add}},
		"it wasn't asked, and its layout is from before": {change: func(s *Snapshot) {
			s.Clusters[1].Recorded = "x"
			hold(s, "west", "")
		}},
		"nothing is recorded": {change: func(s *Snapshot) { s.Clusters[1].UID = "x" }},
		"served by its name": {change: func(s *Snapshot) {
			s.Clusters[1].UID, s.Clusters[1].Recorded = "x", "w"
			s.Records.Layouts[1].Spec.Layout.ClusterUID = "x"
		}, reason: ReasonAnother, says: []string{"cluster west: AnotherCluster: its credentials lead to", "UID x",
			"tenure.dev/cluster-uid of its Secret is w", add}},
		"not served by its name": {change: func(s *Snapshot) {
			s.Clusters[1].UID, s.Clusters[1].Recorded = "e", "w"
			hold(s, "west", "")
		}, reason: ReasonTwoNames, says: []string{"cluster west: ClusterHasTwoNames: ", "served as east,", add}},
		"another name":              {second("e", ""), ReasonTwoNames, []string{"cluster east2", "served as east,", remove}},
		"another name, with a copy": {second("e", "e"), ReasonTwoNames, []string{"cluster east2", "served as east,", remove}},
		"a new cluster":             {change: second("n", "n")},
		"one that was removed before": {change: func(s *Snapshot) {
			hold(s, "east", "")
			s.Clusters[0] = s.Clusters[1]
			second("e", "e")(s)
		}},
		"one that was removed while its holder was dead": {change: func(s *Snapshot) {
			hold(s, "east", "gone-aaaaaa")
			s.Clusters[0] = s.Clusters[1]
			second("e", "e")(s)
		}},
		"a second name whose holder is dead": {change: func(s *Snapshot) {
			hold(s, "west", "gone-aaaaaa")
			s.Clusters[1].UID = "e"
		}, reason: ReasonTwoNames, says: []string{"cluster west", "served as east,", remove}},
		"one whose holder doesn't renew": {change: func(s *Snapshot) {
			s.Records.Leases[0] = lease("r0", 15*time.Second)
			hold(s, "east", "r0-aaaaaa")
			second("e", "")(s)
		}, reason: ReasonTwoNames, says: []string{"cluster east2", "served as east,", remove}},
		"by the word of a coordinator": {change: func(s *Snapshot) {
			s.Registered, s.Clusters = false, []Answer{{Cluster: "east2", Reason: ReasonTwoNames, Note: "is cluster east"}}
		}, reason: ReasonTwoNames, says: []string{"cluster east2: ClusterHasTwoNames: is cluster east"}},
		"no more, by the word of a coordinator": {change: func(s *Snapshot) {
			s.Registered, s.Clusters = false, []Answer{{Cluster: "west", Reason: ReasonTwoNames, Note: "is cluster east"}}
		}},
	} {
		s := healthy()
		named(&s, "east", "e")
		named(&s, "west", "w")
		c.change(&s)
		f := Assess(s)
		last, text := f.Clusters[len(f.Clusters)-1], strings.Join(said(f), "\n")
		if i := slices.IndexFunc(f.Clusters, func(c Cluster) bool { return c.Name == "east2" }); i >= 0 {
			last = f.Clusters[i]
		}
		if f.Healthy && c.reason != "" || last.Astray() != (c.reason != "") || c.reason != "" && last.Reason != c.reason ||
			c.reason != "" && strings.Contains(text, "not divided into shards yet") ||
			c.reason == ReasonTwoNames && strings.Contains(text, "west/00") {
			t.Errorf("%s: %s, healthy %v:\n%s", name, last.Reason, f.Healthy, text)
		}
		for _, want := range c.says {
			if !strings.Contains(text, want) {
				t.Errorf("%s: it doesn't say %q:\n%s", name, want, text)
			}
		}
	}
}

func TestAClusterThatAnswersIsAskedWhichItIs(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"gitVersion":"v1","apiVersion":"v1","kind":"Namespace","metadata":{"uid":"w"}}`)
	}))
	defer server.Close()
	secret := secretOf("west", fmt.Sprintf("server: %q, certificate-authority-data: %s", server.URL,
		base64.StdEncoding.EncodeToString(certs.Of(server))), "t")
	secret.Annotations = map[string]string{kubeconfig.UIDAnnotation: "recorded"}
	all, only := registered([]corev1.Secret{secret})
	Gatherer{Ask: true}.ask(t.Context(), []corev1.Secret{secret}, all, only)
	if all[0].Reason != clusterhealth.ReasonUsable || all[0].UID != "w" || all[0].Recorded != "recorded" {
		t.Errorf("%+v", all[0])
	}
}

// Who may not read Secrets learns of a second name from the coordinator.
func TestASecondNameIsKnownByTheCoordinatorsEvent(t *testing.T) {
	told := func(cluster string, ago time.Duration, reason string) client.Object {
		e := event("east.layout", "", reason, time.Now().Add(-ago))
		e.InvolvedObject.Kind, e.Name = "Shard", cluster+e.Name
		e.Message = "cluster " + cluster + " is cluster east under another name, and is served under that"
		return e
	}
	all, err := Reports(t.Context(), homeWith(told("east2", time.Minute, ReasonTwoNames),
		told("orient", time.Hour, ReasonTwoNames), told("foreign", time.Minute, "ForeignRecord"),
		told("bad", time.Minute, ReasonTwoNames), // what replicas say of it is more
		event("bad", "1", clusterhealth.ReasonBadConfig, time.Now())), Snapshot{Namespace: "ns"})
	if err != nil || len(all) != 2 || all[1].Cluster != "east2" || all[1].Reason != ReasonTwoNames ||
		!strings.HasPrefix(all[1].Note, "cluster east2 is cluster east under another name") || !all[1].Reported {
		t.Errorf("%+v, %v", all, err)
	}
	if all[0].Cluster != "bad" || all[0].Reason != clusterhealth.ReasonBadConfig {
		t.Errorf("%+v", all[0])
	}
}

func TestAnAuthProviderIsRefusedWithTheWayOut(t *testing.T) {
	_, err := Connect(&rest.Config{Host: "https://h", AuthProvider: &clientcmdapi.AuthProviderConfig{Name: "oidc"}})
	if err == nil || !strings.Contains(err.Error(), "auth-provider isn't supported: use exec, or a token") {
		t.Error(err)
	}
}
