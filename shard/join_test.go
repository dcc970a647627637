package shard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/member"
	"github.com/tenure-dev/tenure/shard/internal/record"
	"github.com/tenure-dev/tenure/test/bubble"
	"github.com/tenure-dev/tenure/test/must"
)

// leaseOfB is the Lease of replica b, with these annotations.
func leaseOfB(annotations map[string]string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: DefaultNamespace, Name: "b-1", UID: "u", Annotations: annotations,
		Labels: map[string]string{tenurev1alpha1.RoleLabel: tenurev1alpha1.RoleMember},
	}}
}

// entranceTo is that of replica a, which works on Pods, to the fleet of this home cluster.
func entranceTo(home client.Client) *entrance {
	cfg := Config{Replica: "a"}.withDefaults()
	return &entrance{
		members: member.NewStore(home, cfg.Namespace, ""), records: record.NewStore(home, cfg.Namespace, ""),
		kinds: "Pod", lease: cfg.LeaseDuration, log: logr.Discard(),
		warner: newWarner(home, cfg, logr.Discard(), func(f func()) { f() }),
	}
}

func TestAProcessWaitsOutsideAFleetThatItCannotWorkWithAndSaysSoOnce(t *testing.T) {
	scheme := recordScheme(t)
	synctest.Test(t, func(t *testing.T) {
		later := leaseOfB(map[string]string{tenurev1alpha1.LeaseDurationAnnotation: "10s",
			tenurev1alpha1.ProtocolAnnotation: "99"})
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(later).Build()
		joined := make(chan struct{})
		go func() { entranceTo(c).wait(t.Context()); close(joined) }()
		for range 10 { // it renews
			time.Sleep(entranceEvery)
			must.Succeed(t, c.Update(t.Context(), later))
		}
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
		must.Succeed(t, c.Delete(t.Context(), later))
		time.Sleep(entranceEvery)
		synctest.Wait()
		select {
		case <-joined:
		default:
			t.Error("it doesn't take part once it may")
		}
	})
}

// All of a fleet died, and nobody is left to seal its Leases.
func TestAProcessTakesPartOnceWhoIsInItsWayHasStoodStillForItsLease(t *testing.T) {
	const patience = 30 * time.Second // more than this process's own lease
	for _, c := range []struct {
		name     string
		duration string
		renewed  time.Duration // when; 0 for never
		away     time.Duration // when a check failed; 0 for never
		joins    time.Duration // after that; 0 for never
	}{
		{"it never renews", patience.String(), 0, 0, patience},
		{"its lease is shorter than our own", "1s", 0, 0, DefaultLeaseDuration},
		{"it renews once", patience.String(), 19 * time.Second, 0, 20*time.Second + patience},
		{"home is away in between", patience.String(), 0, 19 * time.Second, 22*time.Second + patience},
		{"nobody can read how long it may stand still", "soon", 0, 0, 0},
	} {
		bubble.Run(t, c.name, func(t *testing.T) {
			began := time.Now()
			other := leaseOfB(map[string]string{tenurev1alpha1.LeaseDurationAnnotation: c.duration,
				tenurev1alpha1.KindsAnnotation: "Job.batch"})
			home := interceptor.NewClient(fake.NewClientBuilder().WithScheme(recordScheme(t)).WithObjects(other).Build(),
				interceptor.Funcs{List: func(ctx context.Context, home client.WithWatch, list client.ObjectList,
					opts ...client.ListOption) error {
					if since := time.Since(began); c.away != 0 && since > c.away && since <= c.away+entranceEvery {
						return errors.New("away")
					}
					return home.List(ctx, list, opts...)
				}})
			if c.renewed != 0 {
				time.AfterFunc(c.renewed, func() { _ = home.Update(t.Context(), other) })
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			entranceTo(home).wait(ctx)
			if waited := time.Since(began); c.joins != 0 && waited != c.joins {
				t.Errorf("it takes part after %v, want %v", waited, c.joins)
			} else if c.joins == 0 && ctx.Err() == nil {
				t.Errorf("it takes part after %v, want never", waited)
			}
		})
	}
}

func TestWhyAProcessWaitsIsLoggedOnceThoughEachConnectionHasAPortOfItsOwn(t *testing.T) {
	e, lines := entranceTo(fake.NewClientBuilder().Build()), 0
	e.log = funcr.New(func(string, string) { lines++ }, funcr.Options{})
	lost := func(port int, why error) error {
		return fmt.Errorf("checking the CRD: %w", &net.OpError{Op: "read", Net: "tcp", Err: why,
			Source: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: port},
			Addr:   &net.TCPAddr{IP: net.IPv4(10, 9, 0, 1), Port: 443}})
	}
	unnamed := func(port int) error { // what dialing returns when the answer of the DNS is lost
		return &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Name: "home", Server: "10.0.0.53:53",
			Err: fmt.Sprintf("read udp 10.0.0.1:%d->10.0.0.53:53: i/o timeout", port)}}
	}
	for i, step := range []struct {
		err  error
		want int
	}{
		{lost(41001, syscall.ECONNRESET), 1}, {lost(41002, syscall.ECONNRESET), 1}, {lost(41002, syscall.EPIPE), 2},
		{unnamed(41003), 3}, {unnamed(41004), 3}, {errors.New("the CRD is too old"), 4},
	} {
		if e.report(t.Context(), nil, step.err); lines != step.want {
			t.Errorf("step %d: %d lines, want %d", i, lines, step.want)
		}
	}
}

func recordScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, tenurev1alpha1.AddToScheme} {
		must.Succeed(t, add(scheme))
	}
	return scheme
}

func TestLeasesNameTheKindsOfAProgramInOneOrder(t *testing.T) {
	scheme := runtime.NewScheme()
	must.Succeed(t, clientgoscheme.AddToScheme(scheme))
	got, err := kindsOf([]Kind{Owned(&corev1.Pod{}), Primary(&coordinationv1.Lease{}), Copies(&corev1.Pod{})}, scheme)
	if want := "Lease.coordination.k8s.io,Pod"; got != want || err != nil {
		t.Errorf("they are %q (%v), want %q", got, err, want)
	}
	if _, err := kindsOf([]Kind{Primary(&tenurev1alpha1.Shard{})}, scheme); err == nil {
		t.Error("a kind that nobody knows has a name")
	}
	metadata := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	if got, err := kindsOf([]Kind{Owned(&corev1.Pod{}), Owned(metadata)}, scheme); got != "Pod" || err != nil {
		t.Errorf("owned Pods and their metadata are %q (%v)", got, err)
	}
	if _, err := kindsOf([]Kind{Owned(&corev1.Pod{}), Primary(metadata)}, scheme); err == nil {
		t.Error("Pods are both primary and owned")
	}
}
