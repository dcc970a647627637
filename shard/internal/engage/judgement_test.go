package engage

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"
)

// at is so long after some time.
func at(d time.Duration) time.Time { return time.Unix(1000, 0).Add(d) }

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
	j.served(at(0), 0)
	for i := range 10 { // within the first second: a hiccup
		j.refused(at(time.Duration(i)*50*time.Millisecond), "shop", Unavailable, 0, 0)
	}
	if got := j.wait(at(600*time.Millisecond), "shop"); got != 0 {
		t.Errorf("put off for %v though it served something just now", got)
	}
	now := time.Second
	for _, pause := range []time.Duration{1, 2, 4, 5, 5} {
		j.refused(at(now), "shop", Unavailable, 0, 0)
		j.refused(at(now), "shop", Unavailable, 0, 0) // was under way, too
		if got := j.wait(at(now), "shop"); got != pause*time.Second {
			t.Fatalf("put off for %v, want %v", got, pause*time.Second)
		}
		if s, c := j.state(at(now)); s != StateOpen || c != Unavailable {
			t.Errorf("state %s %s", s, c)
		}
		now += pause * time.Second
		if j.wait(at(now), "shop") != 0 || j.wait(at(now), "shop") == 0 {
			t.Fatal("after the pause one is let through, and no second one")
		}
		if s, _ := j.state(at(now)); s != StateHalfOpen {
			t.Errorf("state %s while one tries", s)
		}
		now += 10 * time.Millisecond
	}
	j.served(at(now), 0)
	if j.wait(at(now), "shop") != 0 {
		t.Error("put off though the one that was let through was served")
	}
}

func TestObjectsThatAreRefusedAreNoTroubleOfTheirCluster(t *testing.T) {
	for cause, each := range map[Cause]int{Forbidding: 50, Failing: 50, Throttling: enoughRefusals - 1} {
		j := &judgement{}
		for i := range 20 {
			now := at(time.Duration(i) * 2 * time.Second)
			for range each {
				j.refused(now, "shop", cause, 0, 0)
			}
			if got := j.wait(now, "shop"); got != 0 {
				t.Fatalf("%s: put off for %v after %d refusals", cause, got, each)
			}
			if cause == Throttling {
				j.served(now, 0)
			}
		}
	}
}

func TestAProbeOfAnObjectThatIsRefusedFreesTheOthers(t *testing.T) {
	for _, cause := range []Cause{Forbidding, Failing} {
		j := &judgement{}
		for range enoughRefusals {
			j.refused(at(0), "shop", Throttling, 0, 0)
		}
		if now := at(FirstPause); j.wait(now, "shop") != 0 || j.wait(now, "shop") == 0 {
			t.Fatal("want one to be let through")
		}
		if j.refused(at(FirstPause), "shop", cause, 0, 0); j.wait(at(FirstPause), "shop") != 0 {
			t.Errorf("%s: still put off though the cluster has judged one object", cause)
		}
	}
}

func TestRetryAfterIsObeyed(t *testing.T) {
	j := &judgement{}
	for range enoughRefusals {
		j.refused(at(0), "shop", Throttling, 0, 30*time.Second)
	}
	if got := j.wait(at(0), "shop"); got != 30*time.Second {
		t.Errorf("put off for %v, want the 30s that the server asks for", got)
	}
	j = &judgement{}
	for range enoughRefusals {
		j.refused(at(0), "shop", Throttling, 0, 1000*time.Hour)
	}
	if got := j.wait(at(0), "shop"); got != mostRetryAfter {
		t.Errorf("put off for %v, want %v", got, mostRetryAfter)
	}
}

func TestANamespaceDoesNotSufferForAnother(t *testing.T) {
	j := &judgement{}
	for range 5 {
		j.refused(at(0), "bank", Unauthorized, 0, 0)
	}
	if j.wait(at(0), "bank") == 0 || j.wait(at(0), "shop") != 0 {
		t.Error("want the namespace to be put off that was refused, and no other")
	}
	j.refused(at(0), "shop", Unauthorized, 0, 0)
	if j.wait(at(0), "shop") == 0 {
		t.Error("the other was refused as well, and isn't put off")
	}
	for i := range 2 * mostNamespaces {
		j.refused(at(0), fmt.Sprint(i), Unauthorized, 0, 0)
	}
	if len(j.namespaces) > mostNamespaces || j.wait(at(0), "new") == 0 {
		t.Errorf("%d namespaces are told apart; a cluster that refuses so many refuses all", len(j.namespaces))
	}
}

func TestAClusterThatRefusesAPartOrIsLateIsLimited(t *testing.T) {
	half, late := &judgement{}, &judgement{}
	for i := range 20 {
		now := at(time.Duration(i) * 300 * time.Millisecond)
		late.served(now, 2500*time.Millisecond)
		half.served(now, time.Millisecond)
		half.refused(now, "shop", Throttling, time.Millisecond, time.Second)
	}
	now := at(6 * time.Second)
	if s, c := half.state(now); s != StateLimited || c != Throttling || half.wait(now, "shop") != 0 {
		t.Errorf("one that refuses half is %s %s", s, c)
	}
	if s, c := late.state(now); s != StateLimited || c != Late || late.wait(now, "shop") != 0 {
		t.Errorf("one that answers late is %s %s", s, c)
	}
	for i := range 200 {
		half.served(now.Add(time.Duration(i)*200*time.Millisecond), time.Millisecond)
	}
	if s, _ := half.state(now.Add(40 * time.Second)); s != StateClosed {
		t.Errorf("%s long after the last refusal", s)
	}
	if s, _ := late.state(now.Add(time.Minute)); s != StateClosed {
		t.Errorf("%s though nothing was asked for a minute", s)
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
			before := j.pause
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
			case wait > lastPause:
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
		j.refused(now, namespace, cause, 0, 0)
		return
	}
	j.served(now, 0)
}

// wait is for how long a key is put off.
func (j *judgement) wait(now time.Time, namespace string) time.Duration {
	wait, _ := j.putOff(now, namespace)
	return wait
}
