package engage

import (
	"net/http"
	"time"
)

// State of a cluster, as its requests show it.
type State string

// States.
const (
	StateClosed   State = "closed"    // its keys go through
	StateLimited  State = "limited"   // they do, but it refuses a part of the requests, or answers late
	StateOpen     State = "open"      // they are put off
	StateHalfOpen State = "half-open" // they are, and one was let through to see
)

// Cause is why a cluster isn't closed; "" where it is.
type Cause string

// Causes.
const (
	Silence      Cause = "silent"       // it doesn't answer, or can't be connected to
	Unavailable  Cause = "unavailable"  // it says that it can't serve anything now: 502 to 504
	Throttling   Cause = "throttling"   // it has too many requests: 429
	Unauthorized Cause = "unauthorized" // it doesn't accept who we are: 401
	Failing      Cause = "failing"      // it answers with errors of its own, or of a webhook: 500
	Forbidding   Cause = "forbidding"   // it doesn't let us do something: 403
	Late         Cause = "late"         // it takes long to answer
)

// causeOf is what an answer says of its cluster; "" where it did what it was asked, or says that this can't be done.
func causeOf(status int) Cause {
	switch {
	case status == http.StatusUnauthorized:
		return Unauthorized
	case status == http.StatusForbidden:
		return Forbidding
	case status == http.StatusTooManyRequests:
		return Throttling
	case status == http.StatusInternalServerError:
		return Failing
	case status > http.StatusInternalServerError:
		return Unavailable
	}
	return ""
}

// ofObjects reports whether a cluster may refuse for that cause some objects and serve others: by a quota, an admission
// policy, a webhook. Keys aren't put off for it. There may be a thousand that are refused, and one beside them that
// isn't.
func (c Cause) ofObjects() bool { return c == Failing || c == Forbidding }

const (
	// enoughRefusals is how many requests must have been refused, and none served, before keys are put off.
	enoughRefusals = 3
	// mostRetryAfter bounds for how long a cluster is left alone that asks for it.
	mostRetryAfter = 5 * time.Minute
	// mostNamespaces is how many namespaces are told apart. A cluster that refuses so many refuses all.
	mostNamespaces = 64
	// lookBack is how long answers count for [StateLimited], up to twice that.
	lookBack = 10 * time.Second
	// tooLate is the mean time of answers from which a cluster counts as late.
	tooLate = time.Second
	// fewAnswers say nothing about a cluster.
	fewAnswers = 5
)

// judgement is what is known of a cluster. It has no lock and no clock.
//
// A refusal can be about one namespace, such as by the API server's priority and fairness. So keys are put off only
// where nothing was served meanwhile, for a second, and only those of namespaces that were refused something: a
// namespace that nothing is known of tries for itself, and closes the breaker for all if it is served.
type judgement struct {
	lastAnswer time.Time // or a part of one
	lastServed time.Time
	openUntil  time.Time // zero while closed
	pause      time.Duration
	probing    bool // one was let through, of whom nothing was heard yet
	cause      Cause
	refusals   int             // since something was last served
	namespaces map[string]bool // that these were about
	now, past  answers
}

// answers of some seconds.
type answers struct {
	since          time.Time
	count, refused int
	took           time.Duration
	cause          Cause // of the last that was refused
}

// holds reports whether the keys of a namespace are put off.
func (j *judgement) holds(namespace string) bool {
	if j.openUntil.IsZero() {
		return false
	}
	return j.cause == Silence || j.namespaces[namespace] || len(j.namespaces) >= mostNamespaces
}

func (j *judgement) putOff(now time.Time, namespace string) (wait time.Duration, trial bool) {
	if !j.holds(namespace) {
		return 0, false
	}
	if wait := j.openUntil.Sub(now); wait > 0 {
		return wait, false
	}
	j.openUntil, j.probing = now.Add(j.pause), true
	return 0, true
}

// speaks notes any sign of life. One that was silent isn't any more.
func (j *judgement) speaks(now time.Time) {
	j.lastAnswer = now
	if j.cause == Silence {
		j.close()
	}
}

func (j *judgement) close() {
	j.openUntil, j.pause, j.probing, j.cause, j.refusals, j.namespaces = time.Time{}, 0, false, "", 0, nil
}

// served notes that a request was carried out, or couldn't be for reasons of its own.
func (j *judgement) served(now time.Time, took time.Duration) {
	j.lastAnswer, j.lastServed = now, now
	j.close()
	j.count(now, took, "")
}

// refused notes that a request was refused. The cluster is left alone for as long as it asks for.
func (j *judgement) refused(now time.Time, namespace string, cause Cause, took, retryAfter time.Duration) {
	j.speaks(now)
	j.count(now, took, cause)
	if cause.ofObjects() {
		j.close() // it serves again, if not this object
		return
	}
	j.refusals++
	if j.namespaces == nil {
		j.namespaces = map[string]bool{}
	}
	if len(j.namespaces) < mostNamespaces {
		j.namespaces[namespace] = true
	}
	if j.refusals >= enoughRefusals && now.Sub(j.lastServed) >= FirstPause {
		j.open(now, cause, retryAfter)
	}
}

// unanswered notes that a request got no answer. One lost connection is no outage: nothing comes of it where the
// cluster has answered something just now.
func (j *judgement) unanswered(now time.Time) {
	if now.Sub(j.lastAnswer) >= FirstPause {
		j.open(now, Silence, 0)
	}
}

// open begins a pause, unless there is one: requests that were under way together fail together and count once.
func (j *judgement) open(now time.Time, cause Cause, retryAfter time.Duration) {
	if now.Before(j.openUntil) && !j.probing {
		return
	}
	j.pause = min(max(2*j.pause, FirstPause), lastPause)
	j.openUntil, j.probing, j.cause = now.Add(max(j.pause, min(retryAfter, mostRetryAfter))), false, cause
}

// count enters an answer.
func (j *judgement) count(now time.Time, took time.Duration, cause Cause) {
	if now.Sub(j.now.since) >= lookBack {
		j.past, j.now = j.now, answers{since: now}
	}
	j.now.count++
	j.now.took += took
	if cause != "" {
		j.now.refused++
		j.now.cause = cause
	}
}

func (j *judgement) state(now time.Time) (State, Cause) {
	switch {
	case !j.openUntil.IsZero() && j.probing:
		return StateHalfOpen, j.cause
	case !j.openUntil.IsZero():
		return StateOpen, j.cause
	}
	var all answers
	for _, a := range []answers{j.past, j.now} {
		if now.Sub(a.since) < 2*lookBack {
			all.count, all.refused, all.took = all.count+a.count, all.refused+a.refused, all.took+a.took
			if a.cause != "" {
				all.cause = a.cause
			}
		}
	}
	switch {
	case all.count < fewAnswers:
		return StateClosed, ""
	case 10*all.refused > all.count:
		return StateLimited, all.cause
	case all.took > time.Duration(all.count)*tooLate:
		return StateLimited, Late
	}
	return StateClosed, ""
}
