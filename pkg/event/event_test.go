package event

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tenure-dev/tenure/pkg/text"
)

func TestTheNameOfAnEventIsAProperOneHoweverLongItsObjectsIs(t *testing.T) {
	for _, about := range []string{"west", strings.Repeat("a", 229) + "-b", strings.Repeat("a", 228) + ".-b",
		strings.Repeat("a", 253)} {
		e := Named(&eventsv1.Event{Regarding: corev1.ObjectReference{Name: about, Namespace: "n"},
			ReportingInstance: strings.Repeat("r", 200), Note: strings.Repeat("n", 2000)}, "", time.Minute, time.Now())
		if wrong := validation.IsDNS1123Subdomain(e.Name); len(wrong) > 0 || !strings.HasPrefix(e.Name, about[:4]) {
			t.Errorf("%s: %s: %v", about, e.Name, wrong)
		}
		if e.Namespace != "n" || len(e.ReportingInstance) > 128 || len(e.Note) > text.Note {
			t.Errorf("%s: an API server refuses %+v", about, e)
		}
	}
}

func TestPeriodsOfManyObjectsBeginAtDifferentTimes(t *testing.T) {
	now, begin := time.Now(), map[time.Time]bool{}
	for i := range 300 {
		began := Period(fmt.Sprint("west-", i), 20*time.Minute, now)
		if ago := now.Sub(began); ago < 0 || ago >= 20*time.Minute {
			t.Errorf("the period in which %v is began at %v", now, began)
		}
		begin[began.Truncate(time.Minute)] = true
	}
	if len(begin) < 20 {
		t.Errorf("300 periods of 20 minutes begin in %d of the minutes", len(begin))
	}
}

func TestOneCauseHasOneNameWithinAPeriodWhoeverFindsIt(t *testing.T) {
	const every = 20 * time.Minute
	began := Period("west", every, time.Now())
	name := func(uid types.UID, version, reason, cause string, after time.Duration, replica string) string {
		about := corev1.ObjectReference{Name: "west", UID: uid, ResourceVersion: version}
		return Named(&eventsv1.Event{Regarding: about, Reason: reason, ReportingInstance: replica, Note: replica}, cause,
			every, began.Add(after)).Name
	}
	first := name("u", "1", "Bad", "x", 0, "a")
	if another := name("u", "1", "Bad", "x", every-1, "b"); another != first {
		t.Errorf("another replica names it %s, not %s", another, first)
	}
	for what, other := range map[string]string{
		"object": name("v", "1", "Bad", "x", 0, "a"), "version": name("u", "2", "Bad", "x", 0, "a"),
		"reason": name("u", "1", "Worse", "x", 0, "a"), "cause": name("u", "1", "Bad", "y", 0, "a"),
		"period": name("u", "1", "Bad", "x", every, "a"),
	} {
		if other == first {
			t.Errorf("an event of another %s has the same name", what)
		}
	}
}
