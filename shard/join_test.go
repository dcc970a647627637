package shard

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/member"
	"github.com/tenure-dev/tenure/shard/internal/record"
)

func TestAProcessWaitsOutsideAFleetThatItCannotWorkWithAndSaysSoOnce(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, tenurev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		later := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: DefaultNamespace, Name: "b-1", UID: "u",
			Labels: map[string]string{tenurev1alpha1.RoleLabel: tenurev1alpha1.RoleMember},
			Annotations: map[string]string{tenurev1alpha1.LeaseDurationAnnotation: "10s",
				tenurev1alpha1.ProtocolAnnotation: "99"},
		}}
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(later).Build()
		cfg := Config{Replica: "a"}.withDefaults()
		e := &entrance{
			members: member.NewStore(c, cfg.Namespace, ""), records: record.NewStore(c, cfg.Namespace, ""), log: logr.Discard(),
			teller: newTeller(c, cfg, logr.Discard(), func(f func()) { f() }),
		}
		joined := make(chan struct{})
		go func() { e.wait(t.Context()); close(joined) }()
		time.Sleep(10 * lookEvery)
		select {
		case <-joined:
			t.Fatal("it takes part")
		default:
		}
		events := &eventsv1.EventList{}
		if err := c.List(t.Context(), events); err != nil || len(events.Items) != 1 {
			t.Fatalf("%d events tell of it (%v), want one", len(events.Items), err)
		}
		told := events.Items[0]
		want := corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: DefaultNamespace,
			Name: "b-1", UID: "u"}
		if told.Regarding != want || told.Reason != joinRefused || told.Type != corev1.EventTypeWarning ||
			!strings.Contains(told.Note, "version 99") {
			t.Errorf("the event is %+v", told)
		}
		if err := c.Delete(t.Context(), later); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookEvery)
		synctest.Wait()
		select {
		case <-joined:
		default:
			t.Error("it doesn't take part once it may")
		}
	})
}

func TestLeasesNameTheKindsOfAProgramInOneOrder(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	got, err := kindsOf([]Kind{Owned(&corev1.Pod{}), Primary(&coordinationv1.Lease{}), Copies(&corev1.Pod{})}, scheme)
	if want := "Lease.coordination.k8s.io,Pod"; got != want || err != nil {
		t.Errorf("they are %q (%v), want %q", got, err, want)
	}
	if _, err := kindsOf([]Kind{Primary(&tenurev1alpha1.Shard{})}, scheme); err == nil {
		t.Error("a kind that nobody knows has a name")
	}
}
