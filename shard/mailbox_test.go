package shard

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/member"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

func TestUrgentMailIsTakenFirst(t *testing.T) {
	m := newMailbox[int]()
	m.put(1)
	m.putUrgent(2)
	m.put(3)
	<-m.ready
	if diff := cmp.Diff([]int{2, 1, 3}, m.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	m.put(4)
	m.putUrgent(5)
	<-m.ready
	if diff := cmp.Diff([]int{5}, m.takeUrgent()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{4}, m.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A loop that handles thousands of events for seconds would lapse if it came to the answer last.
func TestTheAnswerToARenewalIsUrgent(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build() // it refuses all
	h := &home{
		log: logr.Discard(), trouble: newTrouble(logr.Discard()), observer: NopObserver{}, mail: newMailbox[driver.Event](),
		spawn: func(f func()) { f() }, client: c, members: member.NewStore(c, "n", ""),
	}
	h.restart(t.Context())
	h.write(driver.Write{Number: 1, Effect: ownership.SealLease{ID: "b"}})
	h.write(driver.Write{Number: 2, Effect: ownership.WriteLease{Lease: ownership.Lease{ID: "a"}}})
	var got []uint64
	for _, e := range append(h.mail.takeUrgent(), h.mail.take()...) {
		got = append(got, e.(driver.Written).Number)
	}
	if diff := cmp.Diff([]uint64{2, 1}, got); diff != "" {
		t.Errorf("answers to (-want +got):\n%s", diff)
	}
}
