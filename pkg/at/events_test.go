package at

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
)

// informed is a replica that reconciles when the events of its caches say so, and
// never because time has passed.
type informed struct {
	*replica
	choose     func(n int) int
	queued     bool
	reconciled int
}

// deliver lets a cache see the next change of the At or of the Pod, in their order.
func (i *informed) deliver() {
	w := i.world
	if i.choose(2) == 0 && i.atSeen < len(w.ats)-1 {
		i.atSeen++
		e := event.UpdateEvent{ObjectOld: w.ats[i.atSeen-1], ObjectNew: w.ats[i.atSeen]}
		i.queued = i.reconciler.AtEvents().Update(e) || i.queued
	} else if i.podSeen < len(w.pods)-1 {
		i.podSeen++
		i.queued = i.podEvent(w.pods[i.podSeen-1], w.pods[i.podSeen]) || i.queued
	}
}

func (i *informed) podEvent(old, pod *corev1.Pod) bool {
	switch {
	case old == nil:
		return PodEvents().Create(event.CreateEvent{Object: pod})
	case pod == nil:
		return PodEvents().Delete(event.DeleteEvent{Object: old})
	}
	return PodEvents().Update(event.UpdateEvent{ObjectOld: old, ObjectNew: pod})
}

// meanwhile is what may happen at any moment of a reconcile.
func (i *informed) meanwhile() {
	for i.choose(2) == 0 {
		if i.choose(3) == 0 {
			i.world.finishPod(corev1.PodSucceeded)
		}
		i.deliver()
	}
}

// live runs until nothing is left to be told.
func (i *informed) live(t *testing.T) {
	i.cached = i.meanwhile
	i.write = func(_ string, commit func() error) error {
		i.meanwhile()
		err := commit()
		i.meanwhile()
		return err
	}
	i.queued = i.reconciler.AtEvents().Create(event.CreateEvent{Object: i.world.at(), IsInInitialList: true})
	for range 1000 {
		if i.queued {
			i.queued = false
			i.reconciled++
			mustReconcile(t, i)
		}
		i.world.finishPod(corev1.PodSucceeded)
		i.deliver()
	}
}

// What the predicates keep back must not be what a reconcile waits for, in whatever
// order and at whatever moment the two caches learn of the writes.
func TestNoEventIsKeptBackThatAReconcileWaitsFor(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seeds from %d", seed)
	const lives = 5_000
	reconciled := 0
	for n := range uint64(lives) {
		random := rand.New(rand.NewPCG(seed, n))
		w := newWorld(anAt())
		i := &informed{replica: newReplica(w), choose: random.IntN}
		i.live(t)
		if w.at().Status.Phase != cnatv1alpha1.AtDone || w.writes != 3 || len(w.broken) > 0 {
			t.Fatalf("seed %d, %d: %s after %d writes, broken %v; want DONE after 3", seed, n, w.at().Status.Phase,
				w.writes, w.broken)
		}
		reconciled += i.reconciled
	}
	if mean := float64(reconciled) / lives; mean > 3 {
		t.Errorf("%.2f reconciles a life, want 2 and few more", mean)
	} else {
		t.Logf("%.2f reconciles a life", mean)
	}
}

func TestWhichEventsOfAnAtAreActedOn(t *testing.T) {
	r := newReplica(newWorld(anAt()))
	mustReconcile(t, r)
	pending, claimed := r.world.ats[0], r.world.at()
	with := func(at *cnatv1alpha1.At, change func(*cnatv1alpha1.At)) *cnatv1alpha1.At {
		at = at.DeepCopy()
		change(at)
		return at
	}
	done := func(at *cnatv1alpha1.At) { at.Status.Phase = cnatv1alpha1.AtDone }
	for name, c := range map[string]struct {
		old, at *cnatv1alpha1.At
		want    bool
	}{
		"an edit":       {pending, with(pending, func(at *cnatv1alpha1.At) { at.Generation++ }), true},
		"our own claim": {pending, claimed, false},
		"our own claim, in a backup": {with(with(claimed, done),
			func(at *cnatv1alpha1.At) { at.Spec.TTLSecondsAfterFinished = new(int32(1)) }), claimed, true},
		"a claim of another process": {pending, with(claimed,
			func(at *cnatv1alpha1.At) { at.Status.StartTime = micro(due.Add(time.Hour)) }), true},
		"our own claim with an edit": {pending, with(claimed, func(at *cnatv1alpha1.At) { at.Generation++ }), true},
		"our own claim with a deletion": {pending, with(claimed,
			func(at *cnatv1alpha1.At) { at.DeletionTimestamp = new(metav1.Now()) }), true},
		"an edit after the claim": {claimed, with(claimed,
			func(at *cnatv1alpha1.At) { at.Labels = map[string]string{"a": "b"} }), true},
		"the end": {claimed, with(claimed, done), false},
		"the end with a time to live": {claimed, with(with(claimed, done),
			func(at *cnatv1alpha1.At) { at.Spec.TTLSecondsAfterFinished = new(int32(1)) }), true},
	} {
		if got := r.reconciler.AtEvents().Update(event.UpdateEvent{ObjectOld: c.old, ObjectNew: c.at}); got != c.want {
			t.Errorf("%s: acted on is %v, want %v", name, got, c.want)
		}
		r = newReplica(r.world) // an end is forgotten
		r.atSeen = 0
		r.reconciler.notes.claims(claimed.UID, claimOf(&claimed.Status), noteMade, due)
	}
	if !r.reconciler.AtEvents().Delete(event.DeleteEvent{Object: pending}) {
		t.Error("a deletion isn't acted on: its timer stays in the queue")
	}
	if r.reconciler.AtEvents().Delete(event.DeleteEvent{Object: claimed}) {
		t.Error("an At that leaves the watch because it is over is looked at once more")
	}
	refused := with(claimed, func(at *cnatv1alpha1.At) {
		at.Status.Conditions = []metav1.Condition{{Type: cnatv1alpha1.ConditionBlocked, Reason: ReasonPodRefused}}
	})
	if !r.reconciler.AtEvents().Delete(event.DeleteEvent{Object: refused}) {
		t.Error("an At of the same name waits as long as the refused one would have")
	}
}

// The event of a renewed claim would bring its key back at once, whatever the delay after the failure.
func TestARenewedClaimDoesNotCutTheDelayAfterAFailureShort(t *testing.T) {
	w := newWorld(anAt())
	r := newReplica(w)
	r.write = refusePods(apierrors.NewInternalError(errors.New("a webhook fails")))
	acted := 0
	const tries = 20
	for range tries {
		seen := len(w.ats) - 1
		mustFail(t, r)
		r.atSeen = len(w.ats) - 1
		for ; seen < len(w.ats)-1; seen++ {
			e := event.UpdateEvent{ObjectOld: w.ats[seen], ObjectNew: w.ats[seen+1]}
			if r.reconciler.AtEvents().Update(e) {
				acted++
			}
		}
		w.clock.Step(time.Minute)
	}
	if got := w.at().Status.Restarts; got != tries-1 {
		t.Errorf("%d claims were renewed, want %d", got, tries-1)
	}
	if acted > 1 { // that of the condition that shows the cause
		t.Errorf("%d events bring the At back in %d tries", acted, tries)
	}
	other := newReplica(w) // has made no claim
	renewed := w.at().DeepCopy()
	renewed.Status.Restarts++
	if !other.reconciler.AtEvents().Update(event.UpdateEvent{ObjectOld: w.at(), ObjectNew: renewed}) {
		t.Error("a claim that another process renews isn't acted on")
	}
}

func TestWhichEventsOfAPodAreActedOn(t *testing.T) {
	for phase, want := range map[corev1.PodPhase]bool{
		corev1.PodPending: false, corev1.PodRunning: false, corev1.PodSucceeded: true, corev1.PodFailed: true,
	} {
		pod := aPod(func(p *corev1.Pod) { p.Status.Phase = phase })
		if PodEvents().Create(event.CreateEvent{Object: pod}) != want ||
			PodEvents().Update(event.UpdateEvent{ObjectOld: pod, ObjectNew: pod}) != want {
			t.Errorf("%s: want %v", phase, want)
		}
		if PodEvents().Create(event.CreateEvent{Object: pod, IsInInitialList: true}) {
			t.Errorf("%s: a Pod of the initial list is acted on, and its At too", phase)
		}
		orphan := pod.DeepCopy()
		if orphan.OwnerReferences = nil; !PodEvents().Update(event.UpdateEvent{ObjectOld: pod, ObjectNew: orphan}) {
			t.Errorf("%s: the loss of its At isn't acted on", phase)
		}
		pod.DeletionTimestamp = new(metav1.Now())
		if !PodEvents().Update(event.UpdateEvent{ObjectOld: pod, ObjectNew: pod}) ||
			!PodEvents().Delete(event.DeleteEvent{Object: pod}) {
			t.Errorf("%s: a deletion isn't acted on", phase)
		}
	}
}
