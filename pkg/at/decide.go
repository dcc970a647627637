package at

import (
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
)

const (
	// cacheGrace is how long a new Pod may be missing from the cache before it is read from the API server.
	cacheGrace = 2 * time.Second
	// recheckAfter is when a Pod that the API server shows and the cache doesn't is read again. The cache may never
	// show it, for instance because somebody removed the label that the cache selects by.
	recheckAfter = 10 * time.Second
)

// Note is what this process remembers about its own last claim of an At. It saves reads and writes. Forgetting it is
// always safe.
type Note int

const (
	// NoteNone: nothing is remembered. Another process may have done anything.
	NoteNone Note = iota
	// NoteUnused: the claim in the At's status is ours, and no request for a Pod can have succeeded under it.
	NoteUnused
	// NoteMade: we made the Pod a moment ago.
	NoteMade
)

// View is everything that a decision depends on.
type View struct {
	At *cnatv1alpha1.At
	// Pod is the Pod with the At's Pod name, whether or not it belongs to the At; nil if there is none.
	Pod *corev1.Pod
	// Fresh reports whether At and Pod were read from the API server, in that order. Otherwise they come from caches,
	// which may lag behind by different amounts.
	Fresh bool
	Note  Note
	Now   time.Time
}

// Decision is what to do, in the order of the fields.
type Decision struct {
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
	Events []Event
	// After is when to decide again if no event comes first; 0: not needed.
	After time.Duration
	// Backoff asks to decide again after a delay that grows each time.
	Backoff bool
}

// Decide says what an At needs now. It is pure.
func Decide(view View) Decision {
	switch {
	case view.At.DeletionTimestamp != nil && view.At.Status.Phase != cnatv1alpha1.AtRunning:
		return Decision{}
	case view.At.Status.Phase == cnatv1alpha1.AtDone:
		return decideDone(view)
	case view.At.Status.Phase == cnatv1alpha1.AtRunning:
		return decideRunning(view)
	default:
		return decidePending(view)
	}
}

func decidePending(view View) Decision {
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
		return Decision{Status: e.changed(), After: wait}
	}
	if view.Pod != nil && !view.Fresh {
		// The Pod is made after the claim. So this is another owner's Pod, or the cache shows the At as it was before
		// the claim.
		return Decision{Look: true}
	}
	ours := view.Pod != nil && isOurs(view.Pod, view.At)
	if deadline, late := missed(view, due); late && !ours {
		return e.missed(due, deadline)
	}
	if view.Pod != nil && !ours {
		return e.foreign(view)
	}
	e.claim(due)
	return Decision{Status: e.changed(), MakePod: view.Pod == nil}
}

// missed reports whether it is too late to start, and returns the deadline.
func missed(view View, due time.Time) (time.Duration, bool) {
	if view.At.Spec.StartingDeadlineSeconds == nil {
		return 0, false
	}
	// In seconds, since a Duration holds no more than 292 years.
	seconds := *view.At.Spec.StartingDeadlineSeconds
	late := view.Now.Unix() - due.Unix()
	const longest = int64(math.MaxInt64 / time.Second)
	deadline := time.Duration(min(seconds, longest)) * time.Second
	return deadline, late > seconds || late == seconds && view.Now.Nanosecond() > due.Nanosecond()
}

func decideRunning(view View) Decision {
	e := editStatus(view)
	ours := view.Pod != nil && isOurs(view.Pod, view.At)
	switch {
	case !ours && view.Fresh && view.At.DeletionTimestamp != nil:
		// Finalizers of others hold it. It gets the end of its Pod, but no other Pod.
		return Decision{}
	case view.Pod == nil && view.Fresh:
		return e.makePod(view)
	case view.Pod == nil && view.Note == NoteMade:
		return Decision{After: cacheGrace}
	case view.Pod == nil:
		return Decision{Look: true}
	case !ours:
		if !view.Fresh {
			return Decision{Look: true}
		}
		if decision, late := e.tooLate(view); late {
			return decision
		}
		return e.foreign(view)
	}
	if end, ended := endingOf(view.Pod); ended {
		if view.At.Status.Restarts > 0 && !view.Fresh {
			// A cache may still show the end of the Pod that was made again.
			return Decision{Look: true}
		}
		decision := Decision{}
		message := e.finish(view.Pod, end)
		if end.result == cnatv1alpha1.AtFailed {
			decision.Events = []Event{{ReasonPodFailed, "Run", message}}
		}
		decision.Status = e.changed()
		return decision
	}
	// The Pod is running, or is being deleted and must be gone before another is made.
	e.unblock()
	decision := Decision{Status: e.changed()}
	if view.Fresh {
		decision.After = recheckAfter
	}
	return decision
}

// makePod makes the Pod of a RUNNING At that certainly has none.
func (e *edit) makePod(view View) Decision {
	if view.At.Spec.Suspend {
		return e.suspended()
	}
	if decision, late := e.tooLate(view); late {
		return decision
	}
	if view.At.Status.StartTime == nil { // somebody has written the phase: no replica has claimed it
		if due, err := ParseSchedule(view.At.Spec.Schedule); err == nil && due.After(view.Now) {
			e.unblock()
			return Decision{Status: e.changed(), After: due.Sub(view.Now)}
		}
	}
	if view.Note == NoteUnused {
		return Decision{MakePod: true}
	}
	e.claimAgain()
	message := fmt.Sprintf("Pod %s isn't there: it was deleted before its end was seen, or never made; making it",
		PodName(view.At))
	return Decision{Status: e.changed(), MakePod: true, Events: []Event{{ReasonPodGone, "MakePod", message}}}
}

// tooLate ends a RUNNING At whose deadline has passed, if no Pod was ever there, nor will one come: it was refused, or
// never asked for. Suspension outlasts the deadline.
func (e *edit) tooLate(view View) (_ Decision, late bool) {
	if view.At.Spec.Suspend || view.Note != NoteUnused || view.At.Status.Restarts > 0 {
		return Decision{}, false
	}
	due, err := ParseSchedule(view.At.Spec.Schedule)
	deadline, late := missed(view, due)
	if err != nil || !late {
		return Decision{}, false
	}
	return e.missed(due, deadline), true
}

// suspended waits for an event. What else kept the At from its next step isn't looked at meanwhile, so it isn't shown
// either.
func (e *edit) suspended() Decision {
	e.unblock()
	return Decision{Status: e.changed()}
}

func (e *edit) foreign(view View) Decision {
	decision := e.blocked(ReasonForeignPod, "MakePod",
		fmt.Sprintf("Pod %s exists and doesn't belong to this At: it is left alone, and the At waits until it is deleted",
			view.Pod.Name))
	// When another owner's Pod goes away, this At gets no event.
	decision.Backoff = true
	return decision
}

// blocked shows what keeps the At from its next step, if that isn't shown yet.
func (e *edit) blocked(reason, action, message string) Decision {
	if shownBlock(e.at, reason) != nil {
		return Decision{}
	}
	return e.block(reason, action, message)
}

func (e *edit) block(reason, action, message string) Decision {
	e.condition(cnatv1alpha1.ConditionBlocked, reason, message)
	return Decision{Status: e.changed(), Events: []Event{{reason, action, message}}}
}

func decideDone(view View) Decision {
	ttl, finished := view.At.Spec.TTLSecondsAfterFinished, view.At.Status.FinishTime
	if ttl == nil || finished == nil {
		return Decision{}
	}
	if wait := finished.Add(time.Duration(*ttl) * time.Second).Sub(view.Now); wait > 0 {
		return Decision{After: wait}
	}
	return Decision{Delete: true}
}
