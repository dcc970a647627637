package shard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

func TestALookTellsWhatIsUnservedAndWhatMovesAndSinceWhen(t *testing.T) {
	began := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	now := began.Add(time.Minute)
	id := func(text string) keyspace.ShardID {
		id, err := keyspace.ParseShardID(text)
		must.Succeed(t, err)
		return id
	}
	shard := func(text, assignee, holder string, phase tenurev1alpha1.ShardPhase) tenurev1alpha1.Shard {
		id := id(text)
		return tenurev1alpha1.Shard{
			ObjectMeta: metav1.ObjectMeta{Name: id.RecordName(""), ResourceVersion: "1"},
			Spec:       tenurev1alpha1.ShardSpec{Cluster: string(id.Cluster), Prefix: id.Prefix.String(), Assignee: assignee},
			Status:     tenurev1alpha1.ShardStatus{Holder: holder, Phase: phase},
		}
	}
	shards := []tenurev1alpha1.Shard{
		shard("west/00", "a", "a", tenurev1alpha1.ShardHeld),
		shard("west/01", "b", "a", tenurev1alpha1.ShardMoving),
		shard("west/10", "b", "", tenurev1alpha1.ShardPending),
		shard("west/11", "a", "dead", tenurev1alpha1.ShardHeld),
	}
	var all []*tenurev1alpha1.Shard
	for i := range shards {
		all = append(all, &shards[i])
	}
	orphans, moving := orphansAndMoving("", all,
		map[protocol.Incarnation]peer{"a": {alive: true}, "b": {alive: true}},
		map[keyspace.ShardID]time.Time{id("west/10"): began, id("west/00"): began}, nil, now)
	expect.Equal(t, "orphans", map[keyspace.ShardID]time.Time{id("west/10"): began, id("west/11"): now}, orphans)
	expect.Equal(t, "moving", map[keyspace.ShardID]time.Time{id("west/01"): now}, moving)
}

func TestAHolderCountsAsAliveWhileItsLeaseCanBeReadAndIsNotSealed(t *testing.T) {
	lease := func(name string, annotations map[string]string) coordinationv1.Lease {
		return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1", Annotations: annotations}}
	}
	duration := tenurev1alpha1.LeaseDurationAnnotation
	got := peersOf([]coordinationv1.Lease{
		lease("live", map[string]string{duration: "10s"}),
		lease("sealed", map[string]string{duration: "10s", tenurev1alpha1.SealedAnnotation: "now"}),
		lease("edited", map[string]string{duration: "ten"}), // a live owner's next renewal mends it
	})
	for id, p := range got {
		if p.alive != (id == "live") {
			t.Errorf("%s is alive: %v", id, p.alive)
		}
	}
	if len(got) != 3 {
		t.Errorf("%d peers, want 3", len(got))
	}
}

// The cluster west has another name, west2, which has records of its own: it was served under that name before.
func TestWhatIsUnservedHasNoRecordOrNoHolderInAClusterThatIsServedUnderItsName(t *testing.T) {
	var objects []client.Object
	for _, id := range []string{"west/0", "west2/0", "gone/0"} {
		id, err := keyspace.ParseShardID(id)
		must.Succeed(t, err)
		spec := tenurev1alpha1.ShardSpec{Cluster: string(id.Cluster), Generation: 1, Prefix: id.Prefix.String()}
		layout := tenurev1alpha1.ShardSpec{Cluster: string(id.Cluster), Generation: 1,
			Layout: &tenurev1alpha1.ShardLayout{Generation: 1, Prefixes: []string{"0", "1"}}}
		for name, spec := range map[string]tenurev1alpha1.ShardSpec{
			id.RecordName(""): spec, keyspace.LayoutName("", id.Cluster): layout,
		} {
			meta := metav1.ObjectMeta{Namespace: DefaultNamespace, Name: name}
			objects = append(objects, &tenurev1alpha1.Shard{ObjectMeta: meta, Spec: spec})
		}
	}
	cfg := Config{Replica: "a"}.withDefaults()
	records := fake.NewClientBuilder().WithScheme(recordScheme(t)).WithObjects(objects...).Build()
	s := &surveyor{}
	s.survey(t.Context(), records, cfg, withTwoNames("west", "west2", "west", "west2"),
		func(name keyspace.ClusterName) bool { return name != "gone" })
	var orphans []string
	for id := range s.orphans {
		orphans = append(orphans, id.String())
	}
	slices.Sort(orphans)
	expect.Equal(t, "orphans", []string{"west/0", "west/1"}, orphans)
}

// withTwoNames is the driver of a process that knows one cluster under two names, which has layouts under these.
func withTwoNames(name, other keyspace.ClusterName, laid ...keyspace.ClusterName) *driver.Driver {
	d := driver.New(driver.Config{Protocol: ownership.DefaultConfig("", "a", DefaultLeaseDuration),
		Name: func() protocol.Incarnation { return "a-1" }})
	now := ownership.Instant{Mono: time.Hour, Wall: time.Hour}
	d.Handle(now, driver.Clusters{Bits: map[keyspace.ClusterName]int{name: 0, other: 0},
		UIDs: map[keyspace.ClusterName]string{name: "w", other: "w"}})
	d.Handle(now, driver.Start{})
	for i, c := range laid {
		d.Handle(now, driver.Seen{By: d.ID(), What: ownership.LayoutSeen{Layout: ownership.Layout{Cluster: c, Generation: 1,
			Prefixes: keyspace.Partition(0), UID: "w", Version: ownership.Version(i + 1)}}})
	}
	return d
}

func onlyWest(name keyspace.ClusterName) bool { return name == "west" }

func TestRecordsAreLookedThroughAgainOnlyAfterAChangeOrWhileSomethingIsWrong(t *testing.T) {
	id := keyspace.ShardID{Cluster: "west"}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: DefaultNamespace, Name: name}
	}
	layout := &tenurev1alpha1.Shard{ObjectMeta: meta(keyspace.LayoutName("", "west")), Spec: tenurev1alpha1.ShardSpec{
		Cluster: "west", Generation: 1, Layout: &tenurev1alpha1.ShardLayout{Generation: 1, Prefixes: []string{""}}}}
	shard := &tenurev1alpha1.Shard{ObjectMeta: meta(id.RecordName("")), Spec: tenurev1alpha1.ShardSpec{Cluster: "west",
		Generation: 1, Assignee: "a-1"}, Status: tenurev1alpha1.ShardStatus{Holder: "a-1", Phase: tenurev1alpha1.ShardHeld}}
	lease := &coordinationv1.Lease{ObjectMeta: meta("a-1")}
	lease.Labels = map[string]string{tenurev1alpha1.RoleLabel: tenurev1alpha1.RoleMember}
	lease.Annotations = map[string]string{tenurev1alpha1.LeaseDurationAnnotation: "10s"}

	reads := 0
	records := fake.NewClientBuilder().WithScheme(recordScheme(t)).WithObjects(layout, shard, lease).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, ok := list.(*tenurev1alpha1.ShardList); ok {
					reads++
				}
				return c.List(ctx, list, opts...)
			}}).Build()
	cfg := Config{Replica: "a"}.withDefaults()
	d := withTwoNames("west", "west2", "west")
	s := &surveyor{}
	look := func(after string, want int) {
		t.Helper()
		reads = 0
		for range 3 {
			s.survey(t.Context(), records, cfg, d, onlyWest)
		}
		if reads != want {
			t.Errorf("%s: 3 surveys read the records %d times, want %d: orphans %v, moving %v, odd %v", after, reads, want,
				s.orphans, s.moving, s.odd)
		}
	}
	look("at first", 1)
	s.touch()
	look("after a change", 1)
	lease.Annotations[tenurev1alpha1.RenewalAnnotation] = "7"
	must.Succeed(t, records.Update(t.Context(), lease))
	look("after a renewal", 0)
	d = driver.New(driver.Config{Protocol: ownership.DefaultConfig("", "a", cfg.LeaseDuration)})
	look("since the cluster has one name", 1)
	lease.Annotations[tenurev1alpha1.SealedAnnotation] = "b-1"
	must.Succeed(t, records.Update(t.Context(), lease))
	look("since its holder's Lease was sealed", 3)
	if _, orphan := s.orphans[id]; !orphan {
		t.Error("it isn't an orphan")
	}
}

func TestASurveyThatCannotReadTheLeasesFindsNothing(t *testing.T) {
	layout := &tenurev1alpha1.Shard{
		ObjectMeta: metav1.ObjectMeta{Namespace: DefaultNamespace, Name: keyspace.LayoutName("", "west")},
		Spec: tenurev1alpha1.ShardSpec{Cluster: "west", Generation: 1,
			Layout: &tenurev1alpha1.ShardLayout{Generation: 1, Prefixes: []string{""}}},
	}
	fails := true
	records := fake.NewClientBuilder().WithScheme(recordScheme(t)).WithObjects(layout).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, ok := list.(*coordinationv1.LeaseList); ok && fails {
					fails = false // the next read succeeds
					return errors.New("it can't be read")
				}
				return c.List(ctx, list, opts...)
			}}).Build()
	cfg := Config{Replica: "a"}.withDefaults()
	d := driver.New(driver.Config{Protocol: ownership.DefaultConfig("", "a", cfg.LeaseDuration)})
	s := &surveyor{led: d.Leads(), calm: true}
	s.survey(t.Context(), records, cfg, d, onlyWest)
	if len(s.orphans) > 0 {
		t.Errorf("without Leases %v count as orphans", s.orphans)
	}
	s.survey(t.Context(), records, cfg, d, onlyWest)
	if len(s.orphans) != 1 {
		t.Errorf("the next survey, whose reads succeed, finds %v", s.orphans)
	}
}

func TestReplicasThatKnowNoLayoutsAreToldOfWhereTheyCannotServeACluster(t *testing.T) {
	layout := func(generation int64) inspect.Records {
		s := tenurev1alpha1.Shard{Spec: tenurev1alpha1.ShardSpec{Cluster: "west",
			Layout: &tenurev1alpha1.ShardLayout{Generation: generation}}}
		return inspect.Records{Layouts: []tenurev1alpha1.Shard{s}}
	}
	for _, c := range []struct {
		name    string
		records inspect.Records
		says    map[string]string // of the Lease
		told    bool
	}{
		{"version 1 beside a second layout", layout(2), nil, true},
		{"version 2 beside a second layout", layout(2), map[string]string{tenurev1alpha1.ProtocolAnnotation: "2"}, true},
		{"version 3 beside a second layout", layout(2), map[string]string{tenurev1alpha1.ProtocolAnnotation: "3"}, false},
		{"version 1 beside a first layout", layout(1), nil, false},
		{"version 1 that is dead", layout(2), map[string]string{tenurev1alpha1.SealedAnnotation: "b"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a-1", ResourceVersion: "5",
				Annotations: map[string]string{
					tenurev1alpha1.LeaseDurationAnnotation: "10s",
				}}}
			for name, value := range c.says {
				lease.Annotations[name] = value
			}
			c.records.Leases = append(c.records.Leases, lease)
			got := tooOld(c.records, peersOf(c.records.Leases))
			if (len(got) == 1 && got[0].Lease == "a-1") != c.told || len(got) > 1 {
				t.Errorf("of a-1 it is told: %+v", got)
			}
		})
	}
}

func TestRecordsThatAreOddAlikeAreToldOfByAFewEvents(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(recordScheme(t)).Build()
	warner := newWarner(c, Config{Replica: "a"}.withDefaults(), logr.Discard(), func(f func()) { f() })
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	odd := []inspect.Odd{{Record: "east.layout", Reason: inspect.Unreadable, Note: "it can't be read"}}
	for i := range 10_000 {
		odd = append(odd, inspect.Odd{Record: fmt.Sprintf("west.p%04d", i), Reason: "RecordDeleted", Note: "it was deleted"})
	}
	for _, name := range []string{"b", "c"} {
		odd = append(odd, inspect.Odd{Record: "west.layout", Reason: "ClusterHasTwoNames", Note: name, Cause: name})
	}
	for range 3 { // surveys, which find them in any order
		rand.Shuffle(len(odd), func(i, j int) { odd[i], odd[j] = odd[j], odd[i] })
		warner.warnAll(t.Context(), slices.Clone(odd), now)
		now = now.Add(5 * time.Second)
	}
	events := &eventsv1.EventList{}
	if err := c.List(t.Context(), events); err != nil || len(events.Items) != warnAtOnce+3 {
		t.Fatalf("%d events tell of it (%v), want %d", len(events.Items), err, warnAtOnce+3)
	}
	rest := slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
		return e.Note == "it was deleted; 9980 more records are like it"
	})
	if !rest {
		t.Error("none tells how many more there are")
	}
}

func TestAnEventAboutARecordIsOneThatAPIServersTake(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(recordScheme(t)).Build()
	warner := newWarner(c, Config{Replica: "a"}.withDefaults(), logr.Discard(), func(f func()) { f() })
	warner.warn(t.Context(), inspect.Odd{Record: strings.Repeat("a", 229) + "-" + strings.Repeat("b", 10),
		Reason: inspect.Unreadable, Note: "\x1b[2J" + strings.Repeat("я", 1000)}, time.Now())
	events := &eventsv1.EventList{}
	if err := c.List(t.Context(), events); err != nil || len(events.Items) != 1 {
		t.Fatalf("%d events, %v", len(events.Items), err)
	}
	e := events.Items[0]
	if wrong := validation.IsDNS1123Subdomain(e.Name); len(wrong) > 0 || len(e.Note) > 1024 ||
		strings.Contains(e.Note, "\x1b") {
		t.Errorf("%v, %d bytes: %.20q", wrong, len(e.Note), e.Note)
	}
}
