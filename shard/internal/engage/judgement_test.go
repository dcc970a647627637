package engage

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/shard/protocol"
)

// at is so long after some time.
func at(d time.Duration) time.Time { return time.Unix(1000, 0).Add(d) }

// refusedAll is the judgement of a cluster that has just refused everything in a namespace.
func refusedAll(cause Cause, after time.Duration) *judgement {
	j := &judgement{}
	for range enoughRefusals {
		j.refuse(at(0), "shop", cause, 0, after)
	}
	return j
}

func TestACauseIsWhatTheServerAnswers(t *testing.T) {
	for status, want := range map[int]Cause{
		200: "", 201: "", 404: "", 409: "", 410: "", 422: "", 401: Unauthorized, 403: Forbidding, 429: Throttling,
		500: Failing, 503: Unavailable, 504: Unavailable,
	} {
		if got := causeOf(status); got != want {
			t.Errorf("%d: got %q, want %q", status, got, want)
		}
	}
}

func TestAClusterThatRefusesAllIsLeftAloneAndTriedWithRealWork(t *testing.T) {
	j := &judgement{}
	j.serve(at(0), 0)
	for i := range 10 { // within the first second: a hiccup
		j.refuse(at(time.Duration(i)*50*time.Millisecond), "shop", Unavailable, 0, 0)
	}
	if got := j.wait(at(600*time.Millisecond), "shop"); got != 0 {
		t.Errorf("put off for %v though it served something just now", got)
	}
	now := time.Second
	for _, pause := range []time.Duration{1, 2, 4, 4, 4} {
		j.refuse(at(now), "shop", Unavailable, 0, 0)
		j.refuse(at(now), "shop", Unavailable, 0, 0) // was under way, too
		if got := j.wait(at(now), "shop"); got != pause*time.Second {
			t.Fatalf("put off for %v, want %v", got, pause*time.Second)
		}
		if s, c := j.state(at(now)); s != protocol.ClusterOpen || c != Unavailable {
			t.Errorf("state %s %s", s, c)
		}
		now += pause * time.Second
		if j.wait(at(now), "shop") != 0 || j.wait(at(now), "shop") == 0 {
			t.Fatal("after the pause one is let through, and no second one")
		}
		if s, _ := j.state(at(now)); s != protocol.ClusterHalfOpen {
			t.Errorf("state %s while one tries", s)
		}
		now += 10 * time.Millisecond
	}
	j.serve(at(now), 0)
	if j.wait(at(now), "shop") != 0 {
		t.Error("put off though the one that was let through was served")
	}
}

// One request too many says little of those that come after it.
func TestTheThirdRefusalInARowPutsKeysOff(t *testing.T) {
	j := &judgement{}
	for n := 1; n <= 3; n++ {
		j.refuse(at(0), "shop", Throttling, 0, 0)
		if wait := j.wait(at(0), "shop"); (wait > 0) != (n == 3) {
			t.Errorf("put off for %v after %d refusals", wait, n)
		}
	}
}

func TestObjectsThatAreRefusedAreNoTroubleOfTheirCluster(t *testing.T) {
	for cause, each := range map[Cause]int{Forbidding: 50, Failing: 50, Throttling: enoughRefusals - 1} {
		j := &judgement{}
		for i := range 20 {
			now := at(time.Duration(i) * 2 * time.Second)
			for range each {
				j.refuse(now, "shop", cause, 0, 0)
			}
			if got := j.wait(now, "shop"); got != 0 {
				t.Fatalf("%s: put off for %v after %d refusals", cause, got, each)
			}
			if cause == Throttling {
				j.serve(now, 0)
			}
		}
	}
}

// A cluster that answers 500 to everything is no quota, but nobody knows until something is served.
func TestWhoIsRefusedWaitsOnlyWhereNothingIsServed(t *testing.T) {
	for _, cause := range []Cause{Forbidding, Failing} {
		j := &judgement{}
		j.serve(at(0), 0)
		var now time.Time
		for i := range 10 {
			now = at(time.Duration(i) * time.Second)
			j.refuse(now, "shop", cause, 0, 0)
			if _, open := j.left(now, "shop"); open != (now.Sub(at(0)) >= nothingServed) {
				t.Errorf("%s: put off after %v: %v", cause, now.Sub(at(0)), open)
			}
		}
		if wait, _ := j.putOff(now, "shop", false); wait != 0 {
			t.Errorf("%s: a key that wasn't refused is put off for %v", cause, wait)
		}
		if wait, _ := j.putOff(now, "bank", true); wait != 0 {
			t.Errorf("%s: another namespace is put off for %v", cause, wait)
		}
		if s, c := j.state(now); s != protocol.ClusterLimited || c != cause {
			t.Errorf("state %s %s, want limited: other keys go through", s, c)
		}
		now = now.Add(LastPause)
		if wait, trial := j.putOff(now, "shop", true); wait != 0 || !trial {
			t.Errorf("%s: nobody is let through after the pause", cause)
		}
		if wait, _ := j.putOff(now, "shop", true); wait == 0 {
			t.Errorf("%s: two are let through", cause)
		}
		if j.serve(now, 0); j.wait(now, "shop") != 0 {
			t.Errorf("%s: put off though something was served", cause)
		}
		if wait, _ := j.putOff(now, "shop", true); wait != 0 {
			t.Errorf("%s: who was refused is put off for %v though something was served", cause, wait)
		}
	}
}

func TestAProbeOfAnObjectThatIsRefusedFreesTheOthers(t *testing.T) {
	for _, cause := range []Cause{Forbidding, Failing} {
		j := refusedAll(Throttling, 0)
		if now := at(FirstPause); j.wait(now, "shop") != 0 || j.wait(now, "shop") == 0 {
			t.Fatal("want one to be let through")
		}
		if j.refuse(at(FirstPause), "shop", cause, 0, 0); j.wait(at(FirstPause), "shop") != 0 {
			t.Errorf("%s: still put off though the cluster has judged one object", cause)
		}
	}
}

func TestRetryAfterIsObeyed(t *testing.T) {
	j := refusedAll(Throttling, 30*time.Second)
	if got := j.wait(at(0), "shop"); got != 30*time.Second {
		t.Errorf("put off for %v, want the 30s that the server asks for", got)
	}
	j = refusedAll(Throttling, 1000*time.Hour)
	if got := j.wait(at(0), "shop"); got != LongestAsked {
		t.Errorf("put off for %v, want %v", got, LongestAsked)
	}
	j.refuse(at(0), "shop", Throttling, 0, time.Second)
	if got := j.wait(at(0), "shop"); got != LongestAsked {
		t.Errorf("put off for %v, want %v: somebody else was told to wait for less", got, LongestAsked)
	}
	j = refusedAll(Throttling, 0)
	j.refuse(at(0), "shop", Throttling, 0, time.Minute)
	if got := j.wait(at(0), "shop"); got != time.Minute {
		t.Errorf("put off for %v, want the minute that a later answer asks for", got)
	}
}

// Keys are only reconciled, and so only try, where there is something to do.
func TestAClusterThatNobodyTriesIsTakenForServingAgain(t *testing.T) {
	j := refusedAll(Unavailable, 0)
	if s, _ := j.state(at(FirstPause + untriedFor)); s != protocol.ClusterOpen {
		t.Errorf("state %s while somebody may still come back", s)
	}
	s, c := j.state(at(FirstPause + untriedFor + 1))
	if s == protocol.ClusterOpen || j.wait(at(time.Minute), "shop") != 0 {
		t.Errorf("state %s %s though nobody waits any more", s, c)
	}
}

func TestATrialThatAsksNothingIsAnothersTurn(t *testing.T) {
	j := refusedAll(Unavailable, 0)
	now := at(FirstPause)
	for range 10 {
		if wait, trial := j.putOff(now, "shop", false); wait != 0 || !trial {
			t.Fatalf("the next one is put off for %v", wait)
		}
		j.untried(now)
	}
	if j.wait(now, "shop"); j.wait(now, "shop") == 0 {
		t.Error("two are let through at once")
	}
	j.refuse(now, "shop", Unavailable, 0, 0)
	if j.untried(now); j.wait(now, "shop") == 0 {
		t.Error("one that was refused counts as if it had asked nothing")
	}
	j.serve(now, 0)
	if j.untried(now); j.wait(now, "shop") != 0 {
		t.Error("put off though something was served")
	}
}

func TestANamespaceDoesNotSufferForAnother(t *testing.T) {
	j := &judgement{}
	for range 5 {
		j.refuse(at(0), "bank", Unauthorized, 0, 0)
	}
	if j.wait(at(0), "bank") == 0 || j.wait(at(0), "shop") != 0 {
		t.Error("want the namespace to be put off that was refused, and no other")
	}
	j.refuse(at(0), "shop", Unauthorized, 0, 0)
	if j.wait(at(0), "shop") == 0 {
		t.Error("the other was refused as well, and isn't put off")
	}
	for i := range 2 * mostNamespaces {
		j.refuse(at(0), fmt.Sprint(i), Unauthorized, 0, 0)
	}
	if len(j.all.namespaces) > mostNamespaces || j.wait(at(0), "new") == 0 {
		t.Errorf("%d namespaces are told apart; a cluster that refuses so many refuses all", len(j.all.namespaces))
	}
}

func TestAClusterThatRefusesAPartOrIsLateIsLimited(t *testing.T) {
	half, late, lossy := &judgement{}, &judgement{}, &judgement{}
	for i := range 20 {
		now := at(time.Duration(i) * 300 * time.Millisecond)
		late.serve(now, 2500*time.Millisecond)
		half.serve(now, time.Millisecond)
		half.refuse(now, "shop", Throttling, time.Millisecond, time.Second)
		lossy.serve(now, time.Millisecond)
		lossy.unanswered(now)
	}
	now := at(6 * time.Second)
	if s, c := half.state(now); s != protocol.ClusterLimited || c != Throttling || half.wait(now, "shop") != 0 {
		t.Errorf("one that refuses half is %s %s", s, c)
	}
	if s, c := lossy.state(now); s != protocol.ClusterLimited || c != Silence || lossy.wait(now, "shop") != 0 {
		t.Errorf("one that loses half of all requests is %s %s", s, c)
	}
	if s, c := late.state(now); s != protocol.ClusterLimited || c != Late || late.wait(now, "shop") != 0 {
		t.Errorf("one that answers late is %s %s", s, c)
	}
	for i := range 200 {
		half.serve(now.Add(time.Duration(i)*200*time.Millisecond), time.Millisecond)
	}
	if s, _ := half.state(now.Add(40 * time.Second)); s != protocol.ClusterClosed {
		t.Errorf("%s long after the last refusal", s)
	}
	if s, _ := late.state(now.Add(time.Minute)); s != protocol.ClusterClosed {
		t.Errorf("%s though nothing was asked for a minute", s)
	}
}

// While all who were refused wait for the one on trial, there are hardly any answers.
func TestAClusterThatRefusesEverythingIsLimitedForAsLong(t *testing.T) {
	j := refusedAll(Forbidding, 0)
	for s := 6.0; s < 120; s += 4.2 {
		now := at(time.Duration(s * float64(time.Second)))
		j.refuse(now, "shop", Forbidding, 0, 0)
		now = now.Add(4 * time.Second)
		if state, cause := j.state(now); state != protocol.ClusterLimited || cause != Forbidding {
			t.Fatalf("after %v it is %s %s", now.Sub(at(0)), state, cause)
		}
	}
}

// TestRandomAnswersAgainstAnOracle holds the judgement against plain statements over all answers ever given.
func TestRandomAnswersAgainstAnOracle(t *testing.T) {
	type answer struct {
		at     time.Time
		served bool
		about  string
	}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 18))
		j, now, through := &judgement{}, at(0), at(-time.Hour)
		var all []answer
		bad := r.IntN(10)
		for step := range 400 {
			now = now.Add(time.Duration(r.IntN(400)) * time.Millisecond)
			namespace := fmt.Sprint(r.IntN(3))
			before := j.all.pause
			wait := j.wait(now, namespace)
			refusals, last, about := 0, time.Time{}, map[string]bool{}
			for _, a := range all { // since something was last served
				if refusals++; a.served {
					refusals, last, about = 0, a.at, map[string]bool{}
					continue
				}
				about[a.about] = true
			}
			when := fmt.Sprintf("seed %d, step %d", seed, step)
			switch {
			case wait > LastPause:
				t.Fatalf("%s: put off for %v", when, wait)
			case wait > 0 && (refusals < enoughRefusals || !about[namespace] || now.Sub(last) < FirstPause):
				t.Fatalf("%s: put off after %d refusals, %v after the cluster served something", when, refusals, now.Sub(last))
			case wait > 0:
				continue
			case before > 0 && about[namespace]: // one that is let through to see
				if now.Sub(through) < FirstPause {
					t.Fatalf("%s: a second one is let through %v after the first", when, now.Sub(through))
				}
				through = now
			}
			a := answer{now, r.IntN(10) >= bad, namespace}
			if r.IntN(40) == 0 {
				bad = r.IntN(11)
			}
			if all = append(all, a); a.served {
				j.judgeFor(now, namespace, http.StatusOK)
				through = at(-time.Hour)
			} else {
				j.judgeFor(now, namespace, http.StatusServiceUnavailable)
			}
		}
	}
}

func (j *judgement) judgeFor(now time.Time, namespace string, status int) {
	if cause := causeOf(status); cause != "" {
		j.refuse(now, namespace, cause, 0, 0)
		return
	}
	j.serve(now, 0)
}

// wait is for how long a key is put off.
func (j *judgement) wait(now time.Time, namespace string) time.Duration {
	wait, _ := j.putOff(now, namespace, false)
	return wait
}
