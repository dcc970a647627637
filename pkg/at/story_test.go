package at

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
)

func loseReply(_ string, commit func() error) error {
	_ = commit()
	return errTimeout
}

func wantWorld(t *testing.T, w *world, phase cnatv1alpha1.AtPhase, made int, restarts int32) {
	t.Helper()
	status := w.at().Status
	if status.Phase != phase || w.made != made || status.Restarts != restarts || len(w.broken) > 0 {
		t.Fatalf("%s, %d Pods, %d renewed claims, broken %v; want %s, %d, %d", status.Phase, w.made, status.Restarts,
			w.broken, phase, made, restarts)
	}
}

func TestStoryANewHolderSeesPendingButAllIsOver(t *testing.T) {
	w := newWorld(anAt())
	old, young := newReplica(w), newReplica(w)
	mustReconcile(t, old)
	w.finishPod(corev1.PodSucceeded)
	old.catchUp()
	mustReconcile(t, old)
	w.deletePod()
	wantWorld(t, w, cnatv1alpha1.AtDone, 1, 0)
	for at := range w.ats {
		for pod := range w.pods {
			young.atSeen, young.podSeen = at, pod
			_, _ = young.reconcile()
			wantWorld(t, w, cnatv1alpha1.AtDone, 1, 0)
		}
	}
}

func TestStoryWhatIsDoneIsTidiedUpAfterAllThatIsStillToBeDone(t *testing.T) {
	w := newWorld(anAt(ttl(90)))
	r := newReplica(w)
	result, err := r.reconcile()
	if err != nil || result.RequeueAfter == 0 || result.Priority != nil {
		t.Fatalf("while it runs: %+v, %v", result, err)
	}
	w.finishPod(corev1.PodSucceeded)
	r.catchUp()
	mustReconcile(t, r)
	r.catchUp()
	result, err = r.reconcile()
	if err != nil || result.RequeueAfter == 0 || result.Priority == nil || *result.Priority >= handler.LowPriority {
		t.Errorf("when it is DONE: %+v, %v", result, err)
	}
}

func TestStoryTheReplyToTheClaimIsLostAndItIsKnownAgain(t *testing.T) {
	w := newWorld(anAt())
	r := newReplica(w)
	r.write = loseReply
	mustFail(t, r)
	r.write = nil
	r.catchUp()
	mustReconcile(t, r)
	wantWorld(t, w, cnatv1alpha1.AtRunning, 1, 0)
}

// Found by TestI7NeverASecondPod, seed 1795286935709952675.
func TestStoryAllIsOverBetweenTheLookAtTheAtAndTheLookAtItsPod(t *testing.T) {
	w := newWorld(anAt())
	paused, other := newReplica(w), newReplica(w)
	paused.write = loseReply
	mustFail(t, paused)
	paused.write = nil
	paused.catchUp()
	reads := 0
	paused.before = func() {
		if reads++; reads != 2 {
			return
		}
		// It has seen its own claim and not yet asked for the Pod.
		for range 2 {
			other.catchUp()
			mustReconcile(t, other)
			w.finishPod(corev1.PodSucceeded)
		}
		w.deletePod()
		wantWorld(t, w, cnatv1alpha1.AtDone, 1, 1)
	}
	mustReconcile(t, paused)
	if reads < 2 {
		t.Fatalf("%d reads of the API server: it didn't look", reads)
	}
	wantWorld(t, w, cnatv1alpha1.AtDone, 1, 1)
}

func TestStoryThePodWhoseReplyWasLostIsGone(t *testing.T) {
	for name, lost := range map[string]error{
		"no answer":      errTimeout,
		"server timeout": apierrors.NewTimeoutError("slow", 1),
		"server error":   apierrors.NewInternalError(errTimeout),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(anAt())
			r := newReplica(w)
			r.write = func(kind string, commit func() error) error {
				err := commit()
				if kind == "create" {
					err = lost
				}
				return err
			}
			mustFail(t, r)
			w.deletePod()
			r.write = nil
			r.catchUp()
			mustReconcile(t, r)
			wantWorld(t, w, cnatv1alpha1.AtRunning, 2, 1)
		})
	}
}

func TestStoryTwoClaimantsAtTheSameInstant(t *testing.T) {
	w := newWorld(anAt())
	loser, winner := newReplica(w), newReplica(w)
	loser.write = func(_ string, commit func() error) error {
		mustReconcile(t, winner)
		return commit()
	}
	mustReconcile(t, loser)
	wantWorld(t, w, cnatv1alpha1.AtRunning, 1, 0)
	w.deletePod()
	// The claim looks just like the loser's own; it must not be taken for it.
	loser.write = nil
	loser.catchUp()
	mustReconcile(t, loser)
	wantWorld(t, w, cnatv1alpha1.AtRunning, 2, 1)
}

func TestStoryTheEndIsOnItsWayWhenThePodIsMissed(t *testing.T) {
	w := newWorld(anAt())
	old, young := newReplica(w), newReplica(w)
	mustReconcile(t, old)
	w.finishPod(corev1.PodSucceeded)
	old.catchUp()
	var end func() error
	old.write = func(_ string, commit func() error) error { end = commit; return errTimeout }
	_, _ = old.reconcile()
	w.deletePod()

	// Whichever comes first wins, and the other conflicts.
	young.catchUp()
	mustReconcile(t, young)
	wantWorld(t, w, cnatv1alpha1.AtRunning, 2, 1)
	if err := end(); !apierrors.IsConflict(err) {
		t.Errorf("the late end of the first Pod: %v, want a conflict", err)
	}
	wantWorld(t, w, cnatv1alpha1.AtRunning, 2, 1)
}

func TestStoryACacheShowsTheEndOfThePodBefore(t *testing.T) {
	w := newWorld(anAt())
	r := newReplica(w)
	mustReconcile(t, r)
	w.finishPod(corev1.PodSucceeded)
	ended := len(w.pods) - 1
	w.deletePod()
	w.clock.Step(cacheGrace)
	r.catchUp()
	mustReconcile(t, r)
	wantWorld(t, w, cnatv1alpha1.AtRunning, 2, 1)
	young := newReplica(w)
	young.catchUp()
	young.podSeen = ended
	mustReconcile(t, young)
	wantWorld(t, w, cnatv1alpha1.AtRunning, 2, 1)
}

// With sharding, caches select Pods by their slot, so a stranger's Pod shows in the answer to the create alone.
func TestStoryBehindAStrangersPodThatNoCacheShowsTheDeadlinePasses(t *testing.T) {
	w := newWorld(anAt(deadline(60)))
	w.pods = append(w.pods, aPod(foreign))
	r := newReplica(w) // podSeen 0: its cache never shows it
	mustReconcile(t, r)
	if got := reasonOf(w.at().Status, cnatv1alpha1.ConditionBlocked); got != ReasonForeignPod {
		t.Fatalf("blocked by %q", got)
	}
	w.clock.Step(time.Minute + 1)
	r.atSeen = len(w.ats) - 1
	mustReconcile(t, r)
	wantWorld(t, w, cnatv1alpha1.AtDone, 0, 0)
	if got := w.at().Status.Result; got != cnatv1alpha1.AtMissed {
		t.Errorf("result %q, want Missed", got)
	}
}

// A proxy, or client-go, may send a request again that was carried out. The Pod that is in the way is our own then.
func TestStoryTheRequestForThePodIsRepeatedAndThePodIsGone(t *testing.T) {
	w := newWorld(anAt())
	r := newReplica(w)
	reads := 0
	r.before = func() {
		if reads++; reads == 2 { // before the look at the Pod
			w.deletePod()
		}
	}
	r.write = func(kind string, commit func() error) error {
		err := commit()
		if kind == "create" && reads == 0 {
			err = commit()
		}
		return err
	}
	mustReconcile(t, r)
	wantWorld(t, w, cnatv1alpha1.AtRunning, 2, 1)
}

func TestStoryAStrangersPodThatGoesInTimeCostsNoRenewedClaim(t *testing.T) {
	w := newWorld(anAt(deadline(60)))
	w.pods = append(w.pods, aPod(foreign))
	r := newReplica(w)
	mustReconcile(t, r)
	w.pods = append(w.pods, nil)
	r.atSeen = len(w.ats) - 1
	mustReconcile(t, r)
	wantWorld(t, w, cnatv1alpha1.AtRunning, 1, 0)
}

// refuse has a replica try in vain to make the Pod.
func (r *replica) refuse(t *testing.T) {
	t.Helper()
	refused := 0
	r.write = func(kind string, commit func() error) error {
		if kind == "create" {
			refused++
			return apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New("exceeded quota"))
		}
		return commit()
	}
	r.catchUp()
	_, _ = r.reconcile()
	if refused != 1 {
		t.Fatalf("%d tries, want one", refused)
	}
}

func TestStoryEachHolderKnowsThatThePodWasRefusedInTime(t *testing.T) {
	w := newWorld(anAt(deadline(60)))
	for range 4 { // holders, one after the other
		newReplica(w).refuse(t)
		w.clock.Step(5 * time.Second)
	}
	wantWorld(t, w, cnatv1alpha1.AtRunning, 0, 3)
	w.clock.Step(time.Minute)
	last := newReplica(w)
	last.catchUp()
	mustReconcile(t, last)
	wantWorld(t, w, cnatv1alpha1.AtDone, 0, 3)
	if got := w.at().Status.Result; got != cnatv1alpha1.AtMissed {
		t.Errorf("result %q, want Missed", got)
	}
}

// The command may have run for hours before its Pod was lost.
func TestStoryAPodThatWasLostIsMadeAgainAfterTheDeadlineThoughItWasRefusedInBetween(t *testing.T) {
	w := newWorld(anAt(deadline(60)))
	mustReconcile(t, newReplica(w))
	w.deletePod()
	for range 3 { // holders, one after the other
		newReplica(w).refuse(t)
		w.clock.Step(5 * time.Second)
	}
	w.clock.Step(time.Minute)
	last := newReplica(w)
	last.catchUp()
	mustReconcile(t, last)
	wantWorld(t, w, cnatv1alpha1.AtRunning, 2, 4)
}

func TestStoryThePodIsLostBeforeItsRefusalIsTakenBack(t *testing.T) {
	for name, reply := range map[string]error{"its reply has come": nil, "its reply is lost": errTimeout} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(anAt(deadline(60)))
			r := newReplica(w)
			r.refuse(t)
			r.write = func(_ string, commit func() error) error { return errors.Join(commit(), reply) }
			r.catchUp()
			if _, err := r.reconcile(); !errors.Is(err, reply) {
				t.Fatal(err)
			}
			wantWorld(t, w, cnatv1alpha1.AtRunning, 1, 0)
			w.deletePod()
			w.clock.Step(time.Minute + 1)
			r.write = nil
			r.catchUp()
			mustReconcile(t, r)
			wantWorld(t, w, cnatv1alpha1.AtRunning, 2, 1)
		})
	}
}
