package at

import (
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
)

const (
	// cacheGrace is how long a new Pod may be missing from the cache before it is read from the API server.
	cacheGrace = 2 * time.Second
	// recheckAfter is when a Pod that the API server shows and the cache doesn't is read again. The cache may never
	// show it, for instance because somebody removed the label that the cache selects by.
	recheckAfter = 10 * time.Second
	// stuckAfter is how long a Pod may still be there after its grace period before its At shows that.
	stuckAfter = 2 * time.Minute
)

// noteKind is what this process remembers about its own last claim of an At. It saves reads and writes. Forgetting it
// never leads to a second Pod.
type noteKind int

const (
	// noteNone: nothing is remembered. Another process may have done anything.
	noteNone noteKind = iota
	// noteUnused: the claim in the At's status is ours, and no request for a Pod can have succeeded under it.
	noteUnused
	// noteMade: we made the Pod a moment ago.
	noteMade
	// noteUnsure: a Pod may have been made under the claim in the At's status.
	noteUnsure
)

// view is everything that a decision depends on.
type view struct {
	At *cnatv1alpha1.At
	// Pod is the Pod with the At's Pod name, whether or not it belongs to the At; nil if there is none.
	Pod *corev1.Pod
	// Fresh reports whether At and Pod were read from the API server, in that order. Otherwise they come from caches,
	// which may lag behind by different amounts.
	Fresh bool
	Note  noteKind
	Now   time.Time
}

// decision is what to do, in the order of the fields.
type decision struct {
	// Look asks for a fresh view and another decision; nothing else is set.
	Look bool
	// Delete deletes the At, if it is unchanged since the view.
	Delete bool
	// Status is the status to write if the At is unchanged since the view; nil for no write. The fields below apply
	// only after this write has succeeded.
	Status *cnatv1alpha1.AtStatus
	// MakePod makes the Pod.
	MakePod bool
	// Events are the events to send.
	Events []warning
	// After is when to decide again if no event comes first; 0: not needed.
	After time.Duration
}

// decide says what an At needs now. It is pure.
func decide(view view) decision {
	switch {
	case view.At.DeletionTimestamp != nil && view.At.Status.Phase != cnatv1alpha1.AtRunning:
		return decision{}
	case view.At.Status.Phase == cnatv1alpha1.AtDone:
		return decideDone(view)
	case view.At.Status.Phase == cnatv1alpha1.AtRunning:
		return decideRunning(view)
	default:
		return decidePending(view)
	}
}

func decidePending(view view) decision {
	e := editStatus(view)
	due, err := ParseSchedule(view.At.Spec.Schedule)
	if err != nil {
		// Trying again changes nothing; a corrected spec is an event of its own.
		return e.blocked(ReasonInvalidSchedule, "Parse", err.Error())
	}
	if view.At.Spec.Suspend {
		return e.suspended()
	}
	if wait := due.Sub(view.Now); wait > 0 {
		e.unblock()
		return decision{Status: e.changed(), After: wait}
	}
	if view.Pod != nil && !view.Fresh {
		// The Pod is made after the claim. So this is another owner's Pod, or the cache shows the At as it was before
		// the claim.
		return decision{Look: true}
	}
	ours := view.Pod != nil && isOurs(view.Pod, view.At)
	if tooLate(view) && !ours {
		return e.missed()
	}
	if view.Pod != nil && !ours {
		return e.foreign(view)
	}
	e.claim(due)
	return decision{Status: e.changed(), MakePod: view.Pod == nil}
}

// deadlineOf returns when an At is due, and the last moment at which it may start, if it has a deadline.
func deadlineOf(at *cnatv1alpha1.At) (due, deadline time.Time, has bool) {
	due, err := ParseSchedule(at.Spec.Schedule)
	if err != nil || at.Spec.StartingDeadlineSeconds == nil {
		return due, time.Time{}, false
	}
	// In seconds, since a Duration holds no more than 292 years.
	seconds := due.Unix() + min(*at.Spec.StartingDeadlineSeconds, math.MaxInt64/2)
	return due, time.Unix(seconds, int64(due.Nanosecond())).UTC(), true
}

// startBy returns the last moment at which an At may start, if there is one. There is none for an At that may have
// started, nor while it is suspended.
func startBy(view view) (deadline time.Time, has bool) {
	if view.At.Spec.Suspend || view.At.Status.Phase == cnatv1alpha1.AtRunning && !neverStarted(view) {
		return time.Time{}, false
	}
	_, deadline, has = deadlineOf(view.At)
	return deadline, has
}

// tooLate reports whether the deadline of an At that has never started has passed.
func tooLate(view view) bool {
	deadline, has := startBy(view)
	return has && view.Now.After(deadline)
}

// orDeadline shortens a wait that would outlast the deadline. At the deadline itself the At may still start.
func orDeadline(view view, wait time.Duration) time.Duration {
	if deadline, has := startBy(view); has {
		return min(wait, max(deadline.Add(1).Sub(view.Now), 1))
	}
	return wait
}

// backoff is how long a blocked At waits: as long again as it has been blocked, so that the waits double. The replica
// that wrote the condition may have a clock that is ahead of ours.
func backoff(conditions []metav1.Condition, now time.Time) time.Duration {
	shown := blockOf(conditions)
	return min(max(now.Sub(shown.LastTransitionTime.Time).Abs(), shortestBackoff), longestBackoff)
}

func decideRunning(view view) decision {
	e := editStatus(view)
	ours := view.Pod != nil && isOurs(view.Pod, view.At)
	switch {
	case !ours && view.Fresh && view.At.DeletionTimestamp != nil:
		// Finalizers of others hold it. It gets the end of its Pod, but no other Pod.
		return decision{}
	case view.Pod == nil && view.Fresh:
		return e.makePod(view)
	case view.Pod == nil && view.Note == noteMade:
		return decision{After: cacheGrace}
	case view.Pod == nil:
		return decision{Look: true}
	case !ours:
		if !view.Fresh {
			return decision{Look: true}
		}
		if tooLate(view) {
			return e.missed()
		}
		return e.foreign(view)
	}
	if end, ended := endingOf(view.Pod); ended {
		if view.At.Status.Restarts > 0 && !view.Fresh {
			// A cache may still show the end of the Pod that was made again.
			return decision{Look: true}
		}
		message := e.finish(view.Pod, end)
		next := decision{Status: e.changed()}
		if end.result == cnatv1alpha1.AtFailed {
			next.Events = []warning{{ReasonPodFailed, "Run", message}}
		}
		return next
	}
	next := e.waitForPod(view)
	if view.Fresh {
		next.After = recheckAfter
	}
	return next
}

// waitForPod waits for the end of a Pod that is running, or for one that is being deleted: it must be gone before
// another is made.
func (e *edit) waitForPod(view view) decision {
	wait := time.Duration(0)
	if deleted := view.Pod.DeletionTimestamp; deleted != nil {
		if wait = deleted.Add(stuckAfter).Sub(view.Now); wait <= 0 {
			next := e.blocked(ReasonPodTerminating, "Run", fmt.Sprintf("Pod %s should have been gone by %s and is still "+
				"there: its node doesn't answer, or a finalizer holds it; the At waits until it is gone", view.Pod.Name,
				deleted.UTC().Format(time.RFC3339)))
			next.After = stuckAfter // a cache drops a Pod that has ended, and tells nothing when that one goes
			return next
		}
	}
	e.unblock()
	return decision{Status: e.changed(), After: wait}
}

// makePod makes the Pod of a RUNNING At that certainly has none.
func (e *edit) makePod(view view) decision {
	switch {
	case view.At.Spec.Suspend && view.At.Spec.StartingDeadlineSeconds != nil &&
		blockWith(view.At, ReasonPodRefused) != nil && neverStarted(view):
		return decision{} // the condition stays: once resumed, it tells any replica that the command never ran
	case view.At.Spec.Suspend:
		return e.suspended()
	}
	if tooLate(view) {
		return e.missed()
	}
	if view.At.Status.StartTime == nil { // somebody has written the phase: no replica has claimed it
		if due, err := ParseSchedule(view.At.Spec.Schedule); err == nil && due.After(view.Now) {
			e.unblock()
			return decision{Status: e.changed(), After: due.Sub(view.Now)}
		}
	}
	if view.Note == noteUnused {
		return decision{MakePod: true}
	}
	never := neverStarted(view)
	e.claimAgain(never)
	next := decision{Status: e.changed(), MakePod: true}
	if !never { // otherwise the condition says why there is no Pod
		next.Events = []warning{{ReasonPodGone, "MakePod", fmt.Sprintf("Pod %s isn't there: it was deleted before its end "+
			"was seen, or never made; making it", PodName(view.At))}}
	}
	return next
}

// neverStarted reports whether a RUNNING At without a Pod never had one, and none will come: it was refused, its name
// was taken, or it wasn't asked for yet. The process that made the first claim may remember that. Any other process
// goes by the refusal that is shown. A refusal that began under the first claim shows that there was no Pod before, and
// under a later claim one can still see that it began then: it is older than that claim. Other refusals aren't, since
// [edit.claimAgain] makes them begin anew.
func neverStarted(view view) bool {
	status := &view.At.Status
	shown := blockWith(view.At, ReasonPodRefused)
	switch {
	case view.Note == noteUnused && status.Restarts == 0:
		return true
	case view.Note == noteMade, view.Note == noteUnsure, shown == nil:
		return false
	case status.Restarts == 0:
		return true
	}
	// Conditions have whole seconds.
	return status.StartTime != nil && shown.LastTransitionTime.Time.Before(status.StartTime.Truncate(time.Second))
}

// suspended waits for an event. What else kept the At from its next step isn't looked at meanwhile, so it isn't shown
// either.
func (e *edit) suspended() decision {
	e.unblock()
	return decision{Status: e.changed()}
}

func (e *edit) foreign(view view) decision {
	message := fmt.Sprintf("Pod %s exists and doesn't belong to this At: it is left alone, and the At's own is made only "+
		"once it is deleted", view.Pod.Name)
	if deadline, has := startBy(view); has {
		message += ", by the At's deadline at " + deadline.Format(time.RFC3339Nano)
	}
	next := e.blocked(ReasonForeignPod, "MakePod", message)
	wait := shortestBackoff // the condition may be as old as another cause
	if next.Status == nil {
		wait = backoff(e.next.Conditions, view.Now)
	}
	next.After = orDeadline(view, wait) // when another owner's Pod goes away, this At gets no event
	return next
}

// blocked shows what keeps the At from its next step, if that isn't shown yet.
func (e *edit) blocked(reason, action, message string) decision {
	if presentBlock(e.at, reason) != nil {
		return decision{}
	}
	return e.block(reason, action, message)
}

func (e *edit) block(reason, action, message string) decision {
	e.condition(cnatv1alpha1.ConditionBlocked, reason, message)
	return decision{Status: e.changed(), Events: []warning{{reason, action, message}}}
}

func decideDone(view view) decision {
	ttl, finished := view.At.Spec.TTLSecondsAfterFinished, view.At.Status.FinishTime
	if ttl == nil || finished == nil {
		return decision{}
	}
	if wait := finished.Add(time.Duration(*ttl) * time.Second).Sub(view.Now); wait > 0 {
		return decision{After: wait}
	}
	return decision{Delete: true}
}
