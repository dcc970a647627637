package member

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

const namespace = "tenure-system"

var now = time.Date(2026, 11, 23, 6, 0, 0, 0, time.UTC)

func newStore(t *testing.T) (*Store, client.Client) {
	t.Helper()
	c := fake.NewClientBuilder().Build()
	return NewStore(c, namespace, ""), c
}

// written makes a lease.
func written(t *testing.T, s *Store, lease ownership.Lease) ownership.Version {
	t.Helper()
	version, err := s.Write(t.Context(), 0, lease, now)
	must.Succeed(t, err)
	return version
}

func object(t *testing.T, c client.Client, name string) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{}
	must.Succeed(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, lease))
	return lease
}

func read(t *testing.T, s *Store, name string) ownership.Input {
	t.Helper()
	in, err := s.Read(t.Context(), name)
	must.Succeed(t, err)
	return in
}

var full = ownership.Lease{
	ID: "a-1", Replica: "a", Duration: 1500 * time.Millisecond, Weight: 3, Build: "v7", Protocol: 3,
	Kinds: "At.cnat.example,Pod", Container: "tenure-system/a/8d1f/manager", Unfit: "east,west+",
	Renewal: 9, Fresh: true, Leaving: true,
}

func TestNothingThatALeaseSaysIsLeftOutOfItsTests(t *testing.T) {
	all := reflect.ValueOf(full)
	for i := range all.NumField() {
		switch name := all.Type().Field(i).Name; name {
		case "Sealed", "Unreadable", "Version": // which its owner doesn't write
		default:
			if all.Field(i).IsZero() {
				t.Errorf("full says nothing of %s", name)
			}
		}
	}
}

func TestALeaseIsReadAsItWasWritten(t *testing.T) {
	for name, lease := range map[string]ownership.Lease{
		"all that can be said": full, "the least": {ID: "a-1", Replica: "a", Duration: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := newStore(t)
			lease.Version = written(t, s, lease)
			expect.Equal(t, "the Lease, written and read", ownership.Input(ownership.LeaseSeen{Lease: lease}), read(t, s, "a-1"))
			spec := object(t, c, "a-1").Spec
			seconds := int32((lease.Duration + time.Second - 1) / time.Second)
			if *spec.HolderIdentity != "a-1" || *spec.LeaseDurationSeconds != seconds || !spec.RenewTime.Time.Equal(now) {
				t.Errorf("other readers see %+v", spec)
			}
		})
	}
}

func TestEveryWriteOfALeaseReplacesTheVersionThatItNames(t *testing.T) {
	writes := map[string]func(*Store, ownership.Version) (ownership.Version, error){
		"renewal": func(s *Store, base ownership.Version) (ownership.Version, error) {
			return s.Write(t.Context(), base, full, now)
		},
		"seal": func(s *Store, base ownership.Version) (ownership.Version, error) {
			return s.Seal(t.Context(), base, "a-1", "b-1")
		},
	}
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			s, _ := newStore(t)
			if _, err := write(s, 7); !apierrors.IsNotFound(err) {
				t.Errorf("a version of a lease that isn't there is replaced: %v", err)
			}
			first, err := write(s, 0)
			must.Succeed(t, err)
			if _, err := write(s, 0); !apierrors.IsAlreadyExists(err) {
				t.Errorf("a lease that is there is created: %v", err)
			}
			second, err := s.Write(t.Context(), first, full, now)
			if err != nil || second <= first {
				t.Fatalf("version %d follows %d (%v)", second, first, err)
			}
			if _, err := write(s, first); !apierrors.IsConflict(err) {
				t.Errorf("a version that isn't the newest is replaced: %v", err)
			}
			if third, err := write(s, second); err != nil || third <= second {
				t.Errorf("the newest isn't replaced: %d after %d (%v)", third, second, err)
			}
		})
	}
}

// API servers create a Lease that isn't there on update, so a renewal must not be one.
func TestARenewalIsAPatchThatReplacesAllThatItsOwnerSays(t *testing.T) {
	_, plain := newStore(t)
	c := interceptor.NewClient(plain.(client.WithWatch), interceptor.Funcs{
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			return errors.New("an update may create")
		},
	})
	s := NewStore(c, namespace, "")
	base, least := written(t, s, full), ownership.Lease{ID: "a-1", Replica: "a", Duration: time.Second, Renewal: 10}
	var err error
	least.Version, err = s.Write(t.Context(), base, least, now.Add(time.Second))
	must.Succeed(t, err)
	expect.Equal(t, "the Lease, written and read", ownership.Input(ownership.LeaseSeen{Lease: least}), read(t, s, "a-1"))
	if renewed := object(t, c, "a-1").Spec.RenewTime; !renewed.Time.Equal(now.Add(time.Second)) {
		t.Errorf("other readers see a renewal at %v", renewed)
	}
	lead := ownership.Lead{Holder: "a-1", Floor: 128}
	if lead.Version, err = s.WriteLead(t.Context(), 0, lead, now); err == nil {
		_, err = s.WriteLead(t.Context(), lead.Version, lead, now)
	}
	if err != nil {
		t.Errorf("the lead record: %v", err)
	}
}

func TestASealLeavesTheRestOfALeaseAsItIsAndTellsWhoseItIs(t *testing.T) {
	s, c := newStore(t)
	version, err := s.Seal(t.Context(), written(t, s, full), "a-1", "b-1")
	must.Succeed(t, err)
	want := full
	want.Sealed, want.Version = true, version
	expect.Equal(t, "the sealed Lease", ownership.Input(ownership.LeaseSeen{Lease: want}), read(t, s, "a-1"))
	if by := object(t, c, "a-1").Annotations[tenurev1alpha1.SealedAnnotation]; by != "b-1" {
		t.Errorf("sealed by %q", by)
	}
	_, err = s.Seal(t.Context(), 0, "c-1", "b-1") // one that is missing
	must.Succeed(t, err)
	lease := object(t, c, "c-1")
	if seen, err := Seen(lease); err != nil || !seen.(ownership.LeaseSeen).Lease.Sealed {
		t.Errorf("a lease made sealed is read as %+v (%v)", seen, err)
	}
	if role := lease.Labels[tenurev1alpha1.RoleLabel]; role != tenurev1alpha1.RoleMember {
		t.Errorf("its role is %q: the watch for members wouldn't show it", role)
	}
}

func TestTheCoordinatorsRecordIsReadAsItWasWritten(t *testing.T) {
	s, _ := newStore(t)
	lead := ownership.Lead{Holder: "a-1", Floor: 128}
	var err error
	lead.Version, err = s.WriteLead(t.Context(), 0, lead, now)
	must.Succeed(t, err)
	seen := read(t, s, tenurev1alpha1.CoordinatorName)
	expect.Equal(t, "the record, written and read", ownership.Input(ownership.LeadSeen{Lead: lead}), seen)
	if _, err := s.WriteLead(t.Context(), lead.Version+1, lead, now); !apierrors.IsConflict(err) {
		t.Errorf("another version than the newest is replaced: %v", err)
	}
}

func TestALeaseThatIsGoneIsToldAndDroppingItAgainIsNoError(t *testing.T) {
	s, _ := newStore(t)
	written(t, s, full)
	for range 2 {
		if err := s.Drop(t.Context(), "a-1"); err != nil {
			t.Error(err)
		}
		if got := read(t, s, "a-1"); got != (ownership.LeaseGone{ID: "a-1"}) {
			t.Errorf("it is read as %+v", got)
		}
	}
}

func TestALeaseThatMakesNoSenseIsRefusedOrSaidToBeUnreadable(t *testing.T) {
	lease := func(role string, annotations map[string]string) *coordinationv1.Lease {
		l := &coordinationv1.Lease{}
		l.Name, l.ResourceVersion, l.Annotations = "a-1", "5", annotations
		if role == tenurev1alpha1.RoleCoordinator {
			l.Name = tenurev1alpha1.CoordinatorName
		}
		l.Labels = map[string]string{tenurev1alpha1.RoleLabel: role}
		return l
	}
	odd := lease(tenurev1alpha1.RoleMember, map[string]string{
		tenurev1alpha1.LeaseDurationAnnotation: "soon", tenurev1alpha1.WeightAnnotation: "much",
		tenurev1alpha1.RenewalAnnotation: "-1",
	})
	unreadable := ownership.LeaseSeen{Lease: ownership.Lease{ID: "a-1", Unreadable: true, Version: 5}}
	if got, err := Seen(odd); err != nil || got != unreadable {
		t.Errorf("it is read as %+v (%v)", got, err)
	}
	for text, reads := range map[string]bool{"24h": true, "24h0m1s": false, "2562047h": false} {
		long := lease(tenurev1alpha1.RoleMember, map[string]string{tenurev1alpha1.LeaseDurationAnnotation: text})
		if got, err := Seen(long); err != nil || got.(ownership.LeaseSeen).Lease.Unreadable == reads {
			t.Errorf("a lease duration of %s is read as %+v (%v)", text, got, err)
		}
	}
	noVersion := lease(tenurev1alpha1.RoleMember, nil)
	noVersion.ResourceVersion = "v5"
	if got, err := Seen(noVersion); err == nil {
		t.Errorf("%+v is read as %+v", noVersion.ObjectMeta, got)
	}
	const floor = tenurev1alpha1.FloorAnnotation
	for _, says := range []map[string]string{nil, {floor: "high"}, {floor: "9223372036854775807"}, {floor: "-1"}} {
		noFloor := lease(tenurev1alpha1.RoleCoordinator, says) // it is written anew
		if got, err := Seen(noFloor); err != nil || got != (ownership.LeadSeen{Lead: ownership.Lead{Version: 5}}) {
			t.Errorf("a lead record that says %v is read as %+v (%v)", says, got, err)
		}
	}
	copied := lease(tenurev1alpha1.RoleCoordinator, nil)
	copied.Name = "before-my-edit"
	if got, err := Seen(copied); err == nil || !strings.Contains(err.Error(), "before-my-edit") {
		t.Errorf("a copy of the lead record is read as %+v (%v)", got, err)
	}
}

func TestAFleetReadsItsOwnLeasesOnly(t *testing.T) {
	_, c := newStore(t)
	blue := NewStore(c, namespace, "blue")
	written(t, blue, full)
	_, err := blue.WriteLead(t.Context(), 0, ownership.Lead{Holder: "a-1"}, now)
	must.Succeed(t, err)
	for _, name := range []string{"a-1", "tenure-coordinator.blue"} {
		if _, shown := object(t, c, name).Labels[tenurev1alpha1.RoleLabel]; shown {
			t.Errorf("replicas of version 1, which know no fleets, take lease %s for one of theirs", name)
		}
	}
	for fleet, want := range map[keyspace.Fleet]int{"": 0, "blue": 1, "green": 0} {
		s := NewStore(c, namespace, fleet)
		leases, lead, err := s.List(t.Context())
		if err != nil || len(leases) != want || (lead.Holder == "a-1") != (want == 1) {
			t.Errorf("fleet %q lists %+v, led by %+v (%v)", fleet, leases, lead, err)
		}
		// A record that names another fleet's incarnation must not have it judged: it isn't watched, and would look dead.
		if in, err := s.Read(t.Context(), "a-1"); (err == nil) != (want == 1) || (in != nil) != (want == 1) {
			t.Errorf("fleet %q reads the lease as %+v (%v)", fleet, in, err)
		}
	}
	if in := Gone("blue", "tenure-coordinator.blue"); in != (ownership.LeadGone{}) {
		t.Errorf("that the coordinator's Lease was deleted is read as %+v", in)
	}
	if in := Gone("", "tenure-coordinator.blue"); in != (ownership.LeaseGone{ID: "tenure-coordinator.blue"}) {
		t.Errorf("that a Lease was deleted which isn't the coordinator's is read as %+v", in)
	}
}

// A record may name the Lease of another program by mistake. It must count for nothing: neither alive nor dead, and no
// replica of an old version.
func TestALeaseOfAnotherProgramIsNotRead(t *testing.T) {
	s, c := newStore(t)
	other := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kube-scheduler"}}
	must.Succeed(t, c.Create(t.Context(), other))
	if in, err := s.Read(t.Context(), "kube-scheduler"); err == nil || in != nil ||
		!strings.Contains(err.Error(), "kube-scheduler") {
		t.Errorf("it is read as %+v (%v)", in, err)
	}
	unlabel := func(name string) {
		lease := object(t, c, name)
		lease.Labels = nil
		must.Succeed(t, c.Update(t.Context(), lease))
	}
	written(t, s, full)
	unlabel("a-1")
	if in := read(t, s, "a-1"); in.(ownership.LeaseSeen).Lease.Duration != full.Duration {
		t.Errorf("a Lease of a replica that lost its labels is read as %+v", in)
	}
	_, err := s.Seal(t.Context(), 0, "c-1", "b-1")
	must.Succeed(t, err)
	unlabel("c-1")
	if in := read(t, s, "c-1"); !in.(ownership.LeaseSeen).Lease.Sealed {
		t.Errorf("a sealed Lease that lost its labels is read as %+v", in)
	}
}

func TestAReadThatFailsSaysNothingOfTheLease(t *testing.T) {
	s := NewStore(fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build(), namespace, "") // knows no Leases
	if in, err := s.Read(t.Context(), "a-1"); err == nil || in != nil {
		t.Errorf("it is read as %+v", in)
	}
}

func TestWhatIsSaidOfClustersGoesWithTheLeaseAndIsTakenBack(t *testing.T) {
	s, c := newStore(t)
	said := `[{"cluster":"west","state":"open"}]`
	s.Say = func() string { return said }
	version := written(t, s, full)
	for _, want := range []string{said, "", said} {
		said = want
		var err error
		version, err = s.Write(t.Context(), version, full, now)
		must.Succeed(t, err)
		if got, there := object(t, c, "a-1").Annotations[tenurev1alpha1.TroubleAnnotation]; got != want ||
			there != (want != "") {
			t.Errorf("the Lease says %q, want %q", got, want)
		}
	}
}

// A load balancer that reloads answers 404 to everything. That isn't the API server's word.
func TestA404ThatTheAPIServerDidNotGiveSaysNothingOfALease(t *testing.T) {
	answers := map[string]string{ // by content type
		"text/plain": "default backend - 404",
		"application/json": `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,` +
			`"message":"leases.coordination.k8s.io \"a-1\" not found"}`,
	}
	for kind, body := range answers {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(body))
		}))
		defer server.Close()
		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
		c, err := client.New(&rest.Config{Host: server.URL}, client.Options{Mapper: mapper})
		must.Succeed(t, err)
		s := NewStore(c, namespace, "")
		its := kind == "application/json"
		if in, err := s.Read(t.Context(), "a-1"); (err == nil) != its || (in == ownership.LeaseGone{ID: "a-1"}) != its {
			t.Errorf("by %q the lease is read as %+v (%v)", body, in, err)
		}
		if err := s.Drop(t.Context(), "a-1"); (err == nil) != its {
			t.Errorf("by %q the lease is dropped: %v", body, err)
		}
	}
}
