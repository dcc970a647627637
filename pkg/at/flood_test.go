package at

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/text"
	"github.com/tenure-dev/tenure/test/must"
)

// nasty is what a webhook, a kubelet or whoever plays one may answer: it would rub out a terminal's screen, add a line
// to a log, turn the reading direction, and be too long for a condition (32 KiB) and for an event (1 KiB).
var nasty = "no\x1b[2J\x1b]0;owned\x07\u009b31m\nfake line\u202egnp.exe\x00\xff" + strings.Repeat("long ", 10_000)

// isFit says what is wrong with a text that is shown to others.
func isFit(shown string) error {
	switch {
	case len(shown) > text.Note:
		return fmt.Errorf("%d bytes", len(shown))
	case strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("not printable: %q", shown[:min(len(shown), 100)])
	}
	return nil
}

func TestTextsOfOthersAreFitToBeShownInConditionsAndEvents(t *testing.T) {
	for name, c := range map[string]struct {
		objects   []client.Object
		refuse    bool
		condition string
	}{
		"an API server's refusal": {[]client.Object{anAt()}, true, cnatv1alpha1.ConditionBlocked},
		"a kubelet's message": {[]client.Object{anAt(running), aPod(ended(corev1.PodFailed, 1, due), func(pod *corev1.Pod) {
			pod.Status.Reason, pod.Status.Message = nasty, nasty
		})}, false, cnatv1alpha1.ConditionFailed},
		"a schedule": {[]client.Object{anAt(schedule(nasty))}, false, cnatv1alpha1.ConditionBlocked},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.objects...)
			if c.refuse {
				b.fault = refuseNastily
			}
			if _, err := b.reconcile(); (err != nil) != c.refuse {
				t.Fatal(err)
			}
			condition := meta.FindStatusCondition(b.at(t).Status.Conditions, c.condition)
			if condition == nil {
				t.Fatal("there is no such condition")
			}
			for where, shown := range map[string]string{"condition": condition.Message, "event": noteOf(<-b.recorder.Events)} {
				if err := isFit(shown); err != nil {
					t.Errorf("%s: %v", where, err)
				}
				if !strings.Contains(shown, "[2J") {
					t.Errorf("%s: says nothing of the cause: %q", where, shown[:min(len(shown), 100)])
				}
			}
		})
	}
}

// noteOf is the text of a recorded event, which begins with type and reason.
func noteOf(recorded string) string { return strings.SplitN(recorded, " ", 3)[2] }

var refuseNastily = refusePods(apierrors.NewForbidden(corev1.Resource("pods"), "example", errors.New(nasty)))

func TestAFloodOfRefusedPodsCostsTwoWritesAnAtAndFewEvents(t *testing.T) {
	const ats = 300
	b, requests := benchOf(t, ats)
	b.fault = refuseNastily
	told, tries, held := 0, 5, 0
	for range tries {
		for _, req := range requests {
			switch result, err := b.subject.Reconcile(context.Background(), req); {
			case err == nil && result.RequeueAfter < refusedPause:
				t.Fatal("a refusal isn't retried")
			case err == nil:
				held++
			}
			for len(b.recorder.Events) > 0 {
				<-b.recorder.Events
				told++
			}
		}
		b.clock.Step(time.Minute)
	}
	if want := 2 * ats; b.committed != want {
		t.Errorf("%d writes, want %d: the claim and what blocks it, once for each", b.committed, want)
	}
	if told != eventBudget.Burst {
		t.Errorf("%d events, want %d", told, eventBudget.Burst)
	}
	asked := b.tried["create"]
	if want := ats + (tries-1)*refusalBudget.Burst; asked != want {
		t.Errorf("%d Pods were asked for, want %d: one for each At, and a burst every minute", asked, want)
	}
	if asked+held != tries*ats {
		t.Errorf("%d reconciles neither asked nor waited", tries*ats-asked-held)
	}
	for _, req := range requests { // until the budget is spent
		if result, err := b.subject.Reconcile(context.Background(), req); err == nil && result.RequeueAfter < refusedPause {
			t.Fatal("a refusal isn't retried")
		}
	}
	elsewhere := requests[ats-1]
	elsewhere.ClusterName = "another"
	if result, err := b.subject.Reconcile(context.Background(), elsewhere); err == nil {
		t.Errorf("an At of the same namespace in another cluster is held back for %v", result.RequeueAfter)
	}
	b.clock.Step(time.Minute)
	b.fault = nil
	for _, req := range requests { // nothing holds them back any more, but that the budget has to recover first
		_, err := b.subject.Reconcile(context.Background(), req)
		must.Succeed(t, err)
	}
	if want := 3 * ats; b.committed != want {
		t.Errorf("%d writes once Pods are taken, want %d", b.committed, want)
	}
}

// benchOf is a bench with so many Ats of one namespace that are due, and the requests for them.
func benchOf(t *testing.T, ats int) (*bench, []mcreconcile.Request) {
	t.Helper()
	var all []client.Object
	var requests []mcreconcile.Request
	for i := range ats {
		at := anAt()
		at.Name, at.UID = fmt.Sprint("at-", i), types.UID(fmt.Sprint("uid-", i))
		all = append(all, at)
		req := testRequest
		req.Name = at.Name
		requests = append(requests, req)
	}
	return newBench(t, all...), requests
}

// A queue forgets how often it tried a key that asks for a pause, so its own delays begin anew after each.
func TestAFloodOfRefusedPodsIsTriedLessAndLess(t *testing.T) {
	const ats, minutes = 400, 15
	b, requests := benchOf(t, ats)
	b.fault = refusePods(apierrors.NewForbidden(corev1.Resource("pods"), "example", errors.New("quota")))
	queue, limiter := map[int][]mcreconcile.Request{0: requests}, NewRateLimiter()
	var reconciles, creates int // in the last five minutes
	for second := range minutes * 60 {
		if second == (minutes-5)*60 {
			reconciles, creates = 0, b.tried["create"]
		}
		for _, req := range queue[second] {
			reconciles++
			result, err := b.subject.Reconcile(t.Context(), req)
			pause := result.RequeueAfter
			if err != nil {
				pause = limiter.When(req)
			} else {
				limiter.Forget(req)
			}
			again := second + max(1, int(pause.Seconds()))
			queue[again] = append(queue[again], req)
			for len(b.recorder.Events) > 0 {
				<-b.recorder.Events
			}
		}
		delete(queue, second)
		b.clock.Step(time.Second)
	}
	creates = b.tried["create"] - creates
	if creates < ats/2 || reconciles > 2*ats {
		t.Errorf("%d creates and %d reconciles within five minutes, want about one for each of %d Ats", creates,
			reconciles, ats)
	}
}

// Tenants over quota use up all tries of a cluster. Another one whose quota was raised mustn't wait for them.
func TestRefusedPodsOfOthersHoldNoNamespaceBackForLong(t *testing.T) {
	b := newBench(t, anAt())
	b.fault = refuseNastily
	mustFail(t, b)
	b.fault = nil
	refusals := b.subject.budgetsOf(string(testRequest.ClusterName)).refusals
	for range 2 * refusedPause / time.Second {
		b.clock.Step(time.Second)
		for i := range 100 * refusalBudget.PerSecond {
			refusals.Take(fmt.Sprint("tenant-", i%10), b.clock.Now())
		}
		if !refusals.Spent("tenant-0", b.clock.Now()) {
			t.Fatal("there are tries left")
		}
	}
	before := b.committed
	if result, err := b.reconcile(); err != nil || b.committed == before {
		t.Errorf("it waits for %v more: %v", result.RequeueAfter, err)
	}
}

func TestTheShardsOfAClusterShareItsBudgets(t *testing.T) {
	b := newBench(t, anAt())
	req := testRequest
	req.ClusterName = "team/west/01@2"
	_, err := b.subject.Reconcile(t.Context(), req)
	must.Succeed(t, err)
	if got := slices.Collect(maps.Keys(b.subject.budgets)); !slices.Equal(got, []string{"team/west"}) {
		t.Errorf("budgets of %q, want those of the cluster", got)
	}
}

func TestBudgetsOfClustersThatWentAreForgotten(t *testing.T) {
	b := newBench(t)
	for i := range 2 * mostBudgets {
		b.subject.budgetsOf(fmt.Sprint("pull-request-", i))
	}
	last := b.subject.budgetsOf("pull-request-1")
	if n := len(b.subject.budgets); n > mostBudgets || b.subject.budgetsOf("pull-request-1") != last {
		t.Errorf("%d clusters' budgets are kept, want %d at most, and the last of them", n, mostBudgets)
	}
}

func TestTheLatestEntryIsNeverDropped(t *testing.T) {
	entries := map[int]bool{}
	for i := range 1000 {
		entries[i] = true
	}
	bound(entries, 1, 500)
	if len(entries) != 1 || !entries[500] {
		t.Errorf("left: %v, want only 500", entries)
	}
}

func TestAnEventStandsForThoseThatWereLeftOut(t *testing.T) {
	b := newBench(t, anAt())
	a := &actor{cluster: b, budgets: b.subject.budgetsOf("west"), clock: b.clock}
	for range 500 {
		a.sendEvent(anAt(), warning{Reason: ReasonPodRefused, Action: "MakePod", Message: nasty})
	}
	b.clock.Step(eventBudget.Every)
	for len(b.recorder.Events) > 0 {
		<-b.recorder.Events
	}
	a.sendEvent(anAt(), warning{Reason: ReasonPodRefused, Action: "MakePod", Message: nasty})
	last := noteOf(<-b.recorder.Events)
	if !strings.Contains(last, "and 490 more") {
		t.Errorf("the next event says %q", last[max(0, len(last)-100):])
	}
	if err := isFit(last); err != nil {
		t.Error(err)
	}
}

func TestNamesThatComeAndGoLeaveNothingBehind(t *testing.T) {
	b := newBench(t)
	events := b.subject.AtEvents()
	most := 0
	for i := range 100_000 {
		at := anAt(running)
		at.UID = types.UID(fmt.Sprint("uid-", i))
		b.subject.notes.claims(at.UID, claimOf(&at.Status), noteUnused, b.clock.Now())
		if i%2 == 0 { // of the others nothing is ever heard again, as when their shard moved
			events.Delete(event.DeleteEvent{Object: at})
		}
		most = max(most, len(b.subject.notes.byUID))
	}
	if most > maxNotes {
		t.Errorf("%d notes at a time, want at most %d", most, maxNotes)
	}
	if n := len(b.subject.notes.byUID); n != 50_000 {
		t.Errorf("%d notes are left, want those of Ats that may be there", n)
	}
	b.clock.Step(2 * noteLife)
	b.subject.notes.unsure("another", b.clock.Now())
	if n := len(b.subject.notes.byUID); n != 1 {
		t.Errorf("%d notes are left after %v", n, 2*noteLife)
	}
	for i := range 2 * maxNotes {
		b.subject.notes.unsure(types.UID(fmt.Sprint("flood-", i)), b.clock.Now())
	}
	if n := len(b.subject.notes.byUID); n != maxNotes {
		t.Errorf("%d notes, want %d", n, maxNotes)
	}
}
