package engage

import (
	"net/http"
	"time"

	"github.com/tenure-dev/tenure/shard/protocol"
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

// causeOf returns what an answer says against its cluster; "" if the request was served, or refused for reasons of
// its own.
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

// ofObjects reports whether a cluster may refuse some objects for that cause and serve others: by a quota, an
// admission policy, a webhook. Other keys aren't put off for it: beside a thousand objects that are refused there may
// be one that isn't.
func (c Cause) ofObjects() bool { return c == Failing || c == Forbidding }

// unusable reports whether a cluster that answers so can't be used from here at all.
func (c Cause) unusable() bool { return c == Unavailable || c == Unauthorized }

const (
	// enoughRefusals is how many requests must have been refused, and none served, before keys are put off.
	enoughRefusals = 3
	// LongestAsked bounds the pause that a cluster asks for, by Retry-After.
	LongestAsked = 5 * time.Minute
	// nothingServed is how long a cluster must have served nothing before keys that it refused by 403 or 500 are put
	// off. If it refuses only some objects, it serves others now and then.
	nothingServed = 5 * time.Second
	// untriedFor is how long after its pause a cluster without a trial counts as closed. Keys that are put off come
	// back sooner. So no key waits any more, and no trial would ever close it.
	untriedFor = 20 * time.Second
	// mostNamespaces is how many namespaces are distinguished. A cluster that refuses this many counts as refusing
	// all.
	mostNamespaces = 64
	// lookBack is how long answers count for [protocol.ClusterLimited]; some count for up to twice as long.
	lookBack = 10 * time.Second
	// tooLate is the mean time of answers from which a cluster counts as late.
	tooLate = time.Second
	// fewAnswers is the number of answers from which on they say something about a cluster.
	fewAnswers = 5
)

// judgement is what is known of a cluster. It has no lock and no clock.
//
// A refusal can be about one namespace, for example by the API server's priority and fairness. So keys are put off
// only if nothing was served for a second, and only in namespaces with refusals. A key of another namespace is let
// through, and closes the breaker for all if it is served.
//
// A refusal can be about one object. If nothing at all was served for some seconds, the keys that were refused so are
// put off, and no others. So they don't back off for minutes, and are served soon after the cluster serves anything.
type judgement struct {
	lastAnswer time.Time // or when a part of one arrived
	lastUsable time.Time // the last that doesn't say that the cluster can't be used
	lastServed time.Time
	all        pauses // of all keys
	refused    pauses // of keys that were refused by 403 or 500
	now, past  answers
}

// answers of some seconds.
type answers struct {
	since          time.Time
	count, refused int
	judged         int // how many of these were judged; took is how long they took together
	took           time.Duration
	cause          Cause // of the last refusal
}

// putOff returns for how long a key of a namespace is put off, and whether it is let through on trial; again says
// that it was refused before.
func (j *judgement) putOff(now time.Time, namespace string, again bool) (wait time.Duration, trial bool) {
	if wait, trial = j.all.putOff(now, namespace); again && wait == 0 && !trial {
		wait, trial = j.refused.putOff(now, namespace)
	}
	return wait, trial
}

// left returns for how long the keys of a namespace are put off; open is false if they aren't.
func (j *judgement) left(now time.Time, namespace string) (wait time.Duration, open bool) {
	if wait, open = j.all.left(now, namespace); !open {
		wait, open = j.refused.left(now, namespace)
	}
	return wait, open
}

func (j *judgement) untried(now time.Time) {
	j.all.untried(now)
	j.refused.untried(now)
}

// speaks records a sign of life, which ends the silence of a cluster that was silent.
func (j *judgement) speaks(now time.Time, says Cause) {
	if j.lastAnswer = now; !says.unusable() {
		j.lastUsable = now
	}
	if j.all.cause == Silence {
		j.all.close()
	}
}

// serve records that a request was carried out, or refused for reasons of its own.
func (j *judgement) serve(now time.Time, took time.Duration) {
	j.lastAnswer, j.lastUsable, j.lastServed = now, now, now
	j.all.close()
	j.refused.close()
	j.judge(now, took, "")
}

// refuse records that a request was refused. retryAfter is how long the cluster asked to be left alone.
func (j *judgement) refuse(now time.Time, namespace string, cause Cause, took, retryAfter time.Duration) {
	j.speaks(now, cause)
	j.judge(now, took, cause)
	whose, after := &j.all, FirstPause
	if cause.ofObjects() {
		j.all.close() // it serves again, though not this object
		whose, after = &j.refused, nothingServed
	}
	whose.note(namespace)
	if whose.refusals >= enoughRefusals && now.Sub(j.lastServed) >= after {
		whose.open(now, cause, retryAfter)
	}
}

// unanswered records that a request got no answer. One lost connection is no outage: it opens nothing if the cluster
// has answered something just now.
func (j *judgement) unanswered(now time.Time) {
	j.count(now, Silence)
	if now.Sub(j.lastAnswer) >= FirstPause {
		j.all.open(now, Silence, 0)
	}
}

// judge records an answer, and how long it took.
func (j *judgement) judge(now time.Time, took time.Duration, cause Cause) {
	j.count(now, cause)
	j.now.judged++
	j.now.took += took
}

// count records an answer, or that there was none.
func (j *judgement) count(now time.Time, cause Cause) {
	if now.Sub(j.now.since) >= lookBack {
		j.past, j.now = j.now, answers{since: now}
	}
	j.now.count++
	if cause != "" {
		j.now.refused++
		j.now.cause = cause
	}
}

func (j *judgement) state(now time.Time) (protocol.ClusterState, Cause) {
	switch j.all.expire(now); {
	case !j.all.until.IsZero() && j.all.probing:
		return protocol.ClusterHalfOpen, j.all.cause
	case !j.all.until.IsZero():
		return protocol.ClusterOpen, j.all.cause
	}
	j.refused.expire(now)
	if !j.refused.until.IsZero() { // so little is tried then that its answers are few
		return protocol.ClusterLimited, j.refused.cause
	}
	var all answers
	for _, a := range []answers{j.past, j.now} {
		if now.Sub(a.since) < 2*lookBack {
			all.count, all.refused = all.count+a.count, all.refused+a.refused
			all.judged, all.took = all.judged+a.judged, all.took+a.took
			if a.cause != "" {
				all.cause = a.cause
			}
		}
	}
	switch {
	case all.count < fewAnswers:
		return protocol.ClusterClosed, ""
	case 10*all.refused > all.count:
		return protocol.ClusterLimited, all.cause
	case all.judged > 0 && all.took > time.Duration(all.judged)*tooLate:
		return protocol.ClusterLimited, Late
	}
	return protocol.ClusterClosed, ""
}
