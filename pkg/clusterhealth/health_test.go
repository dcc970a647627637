package clusterhealth

import (
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
)

// Each replica finds the same trouble. It is one event, told anew only after a while.
func TestOneCauseIsOneEventWhoeverFindsIt(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "west", UID: "u"}, Data: map[string][]byte{kubeconfig.Key: []byte("current-context: x")},
	}
	home := fake.NewClientBuilder().WithObjects(secret).Build()
	events := func() []eventsv1.Event {
		t.Helper()
		list := &eventsv1.EventList{}
		if err := home.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	request := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "n", Name: "west"}}
	var all []*Health
	for _, replica := range []string{"r1", "r2", "r3"} {
		h := New(Config{Namespace: "n", Replica: replica})
		h.client, h.log = home, logr.Discard()
		all = append(all, h)
	}
	for range 3 {
		for _, h := range all {
			result, err := h.Reconcile(t.Context(), request)
			if err != nil || result.RequeueAfter != eventEvery {
				t.Fatalf("%v, %v; want to be asked again after %v, to tell it anew", result, err, eventEvery)
			}
		}
	}
	told := events()
	if len(told) < 1 || len(told) > 2 { // two where the time of one ended in between
		t.Fatalf("%d events: %v", len(told), told)
	}
	if e := told[0]; e.Reason != ReasonBadConfig || e.Type != corev1.EventTypeWarning || e.Regarding.Name != "west" ||
		!strings.Contains(e.Note, "cluster west: kubeconfig: current-context must name one of contexts") {
		t.Errorf("the event: %v", e)
	}
	// Later, it is another one: events are kept for an hour only.
	first, later := event(secret, "r1", ReasonBadConfig, "", time.Now()), event(secret, "r2", ReasonBadConfig, "", time.Now().Add(eventEvery))
	if first.Name == later.Name {
		t.Errorf("after %v it has the same name", eventEvery)
	}
	h := all[0]
	was := h.states["west"]
	was.told = was.told.Add(-eventEvery)
	h.states["west"] = was
	if _, err := h.Reconcile(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if time.Since(h.states["west"].told) > time.Minute || h.states["west"].since != was.since {
		t.Errorf("it isn't told again, or counts as new: %v, was %v", h.states["west"], was)
	}
	// What is wrong is another thing now, and so another event.
	secret.Data[kubeconfig.Key] = []byte("[")
	if err := home.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	before := len(events())
	if _, err := h.Reconcile(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if n := len(events()); n != before+1 {
		t.Errorf("%d events after another mistake, %d before", n, before)
	}
}
