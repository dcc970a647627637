package at

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/expect"
)

// summary is a decision in words, so that a table of them can be read.
type summary struct {
	Look, Delete, MakePod bool
	After                 time.Duration
	// Status is "phase result blocked-reason restarts" of what is written, or empty.
	Status string
	Events string
}

func summarize(d decision) summary {
	s := summary{Look: d.Look, Delete: d.Delete, MakePod: d.MakePod, After: d.After}
	if d.Status != nil {
		s.Status = string(d.Status.Phase)
		if d.Status.Result != "" {
			s.Status += " " + string(d.Status.Result)
		}
		if reason := reasonOf(*d.Status, cnatv1alpha1.ConditionBlocked); reason != "" {
			s.Status += " blocked:" + reason
		}
		if d.Status.Restarts > 0 {
			s.Status += fmt.Sprintf(" restarts:%d", d.Status.Restarts)
		}
	}
	for _, event := range d.Events {
		s.Events += event.Reason
	}
	return s
}

type decideCase struct {
	name  string
	at    *cnatv1alpha1.At
	pod   *corev1.Pod
	fresh bool
	note  noteKind
	// late is the time of the decision, after due.
	late time.Duration
	want summary
}

func runDecideCases(t *testing.T, cases []decideCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			before := c.at.DeepCopy()
			view := view{At: c.at, Pod: c.pod, Fresh: c.fresh, Note: c.note, Now: due.Add(c.late)}
			got := decide(view)
			expect.Equal(t, "a cache that is trimmed makes a difference", got, decide(trimmedView(view)))
			expect.Equal(t, "decision", c.want, summarize(got))
			expect.Equal(t, "the decision changed its input", before, c.at)
		})
	}
}

func TestDecidePending(t *testing.T) {
	claim := summary{Status: "RUNNING", MakePod: true}
	runDecideCases(t, []decideCase{
		{name: "an At that isn't due waits exactly until then", at: anAt(), late: -90 * time.Minute,
			want: summary{After: 90 * time.Minute}},
		{name: "a nanosecond before it is due nothing starts", at: anAt(), late: -1, want: summary{After: 1}},
		{name: "fractions of a second in the schedule count", at: anAt(schedule("2026-04-12T10:12:00.25Z")),
			want: summary{After: 250 * time.Millisecond}},
		{name: "another time zone is understood", at: anAt(schedule("2026-04-12T12:12:01+02:00")),
			want: summary{After: time.Second}},
		{name: "an At that is due is claimed, then its Pod made", at: anAt(), want: claim},
		{name: "an At that is long overdue is claimed", at: anAt(), late: 7 * 365 * 24 * time.Hour, want: claim},
		{name: "a phase that was never set counts as PENDING",
			at: anAt(func(at *cnatv1alpha1.At) { at.Status.Phase = "" }), want: claim},
		{name: "a suspended At waits for an event", at: anAt(suspended), late: time.Hour, want: summary{}},
		{name: "a suspended At that isn't due waits for an event", at: anAt(suspended), late: -time.Hour, want: summary{}},
		{name: "suspension outlasts the deadline", at: anAt(suspended, deadline(1)), late: time.Hour, want: summary{}},
		{name: "nothing outside blocks a suspended At", at: anAt(suspended, blockedBy(ReasonForeignPod)), late: time.Hour,
			want: summary{Status: "PENDING"}},
		{name: "at the deadline it still starts", at: anAt(deadline(60)), late: time.Minute, want: claim},
		{name: "after the deadline it is missed", at: anAt(deadline(60)), late: time.Minute + 1,
			want: summary{Status: "DONE Missed", Events: ReasonMissed}},
		{name: "a deadline of zero still starts on time", at: anAt(deadline(0)), want: claim},
		{name: "a deadline longer than a Duration never passes", at: anAt(deadline(math.MaxInt64)), late: time.Hour,
			want: claim},
		{name: "it never passes for a schedule of long ago",
			at: anAt(schedule("0001-01-01T00:00:00Z"), deadline(1<<62)), want: claim},
		{name: "a deadline of centuries hasn't passed before",
			at: anAt(schedule("1026-04-12T10:12:00Z"), deadline(1001*365*86400)), want: claim},
		{name: "a deadline of centuries passes", at: anAt(schedule("1026-04-12T10:12:00Z"), deadline(1000*365*86400)),
			want: summary{Status: "DONE Missed", Events: ReasonMissed}},
		{name: "fractions of a second count for the deadline", at: anAt(schedule("2026-04-12T10:11:59.5Z"), deadline(1)),
			late: 500 * time.Millisecond, want: claim},
		{name: "fractions of a second count after the deadline", at: anAt(schedule("2026-04-12T10:11:59.5Z"), deadline(1)),
			late: 500*time.Millisecond + 1, want: summary{Status: "DONE Missed", Events: ReasonMissed}},
		{name: "an invalid schedule is shown and not retried", at: anAt(schedule("tomorrow")),
			want: summary{Status: "PENDING blocked:InvalidSchedule", Events: ReasonInvalidSchedule}},
		{name: "an invalid schedule is shown once", at: anAt(schedule("tomorrow"), blockedBy(ReasonInvalidSchedule)),
			want: summary{}},
		{name: "an invalid schedule is shown again when the spec has changed",
			at:   anAt(schedule("tomorrow"), blockedBy(ReasonInvalidSchedule), func(at *cnatv1alpha1.At) { at.Generation = 2 }),
			want: summary{Status: "PENDING blocked:InvalidSchedule", Events: ReasonInvalidSchedule}},
		{name: "a corrected schedule unblocks while it waits", at: anAt(blockedBy(ReasonInvalidSchedule)), late: -time.Second,
			want: summary{Status: "PENDING", After: time.Second}},
		{name: "a corrected schedule that is due is claimed", at: anAt(blockedBy(ReasonInvalidSchedule)), want: claim},
		{name: "a Pod in the cache before the claim needs a look", at: anAt(), pod: aPod(), want: summary{Look: true}},
		{name: "a stranger's Pod in the cache needs a look", at: anAt(), pod: aPod(foreign), want: summary{Look: true}},
		{name: "a stranger's Pod blocks", at: anAt(), pod: aPod(foreign), fresh: true,
			want: summary{Status: "PENDING blocked:ForeignPod", Events: ReasonForeignPod, After: shortestBackoff}},
		{name: "another At's Pod blocks", at: anAt(), pod: aPod(ofAnotherAt), fresh: true,
			want: summary{Status: "PENDING blocked:ForeignPod", Events: ReasonForeignPod, After: shortestBackoff}},
		{name: "a stranger's Pod is told of once and retried", at: anAt(blockedBy(ReasonForeignPod)), pod: aPod(foreign),
			fresh: true, want: summary{After: shortestBackoff}},
		{name: "a stranger's Pod is looked at again after as long as it has been in the way", fresh: true,
			at: anAt(blockedBy(ReasonForeignPod)), pod: aPod(foreign), late: 40 * time.Second,
			want: summary{After: 40 * time.Second}},
		{name: "a stranger's Pod that stays is looked at every five minutes", at: anAt(blockedBy(ReasonForeignPod)),
			pod: aPod(foreign), fresh: true, late: time.Hour, want: summary{After: longestBackoff}},
		{name: "a stranger's Pod is looked at rarely if a clock ahead of ours says since when it is there", fresh: true,
			at: anAt(schedule("2026-04-12T08:00:00Z"), blockedBy(ReasonForeignPod)), pod: aPod(foreign), late: -time.Hour,
			want: summary{After: longestBackoff}},
		{name: "a deadline longer than a Duration shortens no wait", at: anAt(deadline(math.MaxInt64)), pod: aPod(foreign),
			fresh: true, want: summary{Status: "PENDING blocked:ForeignPod", Events: ReasonForeignPod, After: shortestBackoff}},
		{name: "a stranger's Pod is looked at again once the deadline has passed", fresh: true,
			at: anAt(deadline(60), blockedBy(ReasonForeignPod)), pod: aPod(foreign), late: 40 * time.Second,
			want: summary{After: 20*time.Second + 1}},
		{name: "behind a stranger's Pod the deadline passes", at: anAt(deadline(1)), pod: aPod(foreign), fresh: true,
			late: time.Minute, want: summary{Status: "DONE Missed", Events: ReasonMissed}},
		{name: "an At whose status was lost is claimed without another Pod", at: anAt(), pod: aPod(), fresh: true,
			want: summary{Status: "RUNNING"}},
		{name: "an At that is being deleted starts nothing", at: anAt(deleting), want: summary{}},
	})
}

func TestDecideRunning(t *testing.T) {
	soon := due.Add(time.Second)
	remake := summary{Status: "RUNNING restarts:1", MakePod: true, Events: ReasonPodGone}
	succeeded := summary{Status: "DONE Succeeded"}
	failed := summary{Status: "DONE Failed", Events: ReasonPodFailed}
	leaving := summary{After: time.Second + 30*time.Second + stuckAfter}
	runDecideCases(t, []decideCase{
		{name: "a Pod that runs needs nothing", at: anAt(running), pod: aPod(), want: summary{}},
		{name: "a Pod whose node is lost needs nothing", at: anAt(running),
			pod: aPod(ended(corev1.PodUnknown, 0, soon)), want: summary{}},
		{name: "a Pod that only the API server shows is looked at again", at: anAt(running), pod: aPod(), fresh: true,
			want: summary{After: recheckAfter}},
		{name: "a Pod that runs unblocks", at: anAt(running, blockedBy(ReasonPodRefused)), pod: aPod(),
			want: summary{Status: "RUNNING"}},
		{name: "a Pod that succeeded ends the At", at: anAt(running),
			pod: aPod(ended(corev1.PodSucceeded, 0, soon)), want: succeeded},
		{name: "a Pod that failed ends the At, with an event", at: anAt(running),
			pod: aPod(ended(corev1.PodFailed, 3, soon)), want: failed},
		{name: "the end of a Pod that was made again isn't believed from the cache", at: anAt(restarted),
			pod: aPod(ended(corev1.PodSucceeded, 0, soon)), want: summary{Look: true}},
		{name: "the end of a Pod that was made again counts when it is fresh", at: anAt(restarted),
			pod: aPod(ended(corev1.PodSucceeded, 0, soon)), fresh: true, want: summary{Status: "DONE Succeeded restarts:1"}},
		{name: "a schedule that became unreadable doesn't matter any more", at: anAt(running, schedule("tomorrow")),
			pod: aPod(ended(corev1.PodSucceeded, 0, soon)), want: succeeded},
		{name: "suspending doesn't touch a Pod that runs", at: anAt(running, suspended), pod: aPod(), want: summary{}},
		{name: "a Pod missing from the cache is looked for", at: anAt(running), want: summary{Look: true}},
		{name: "a Pod just made may be missing from the cache for a moment", at: anAt(running), note: noteMade,
			want: summary{After: cacheGrace}},
		{name: "a phase that somebody wrote before the At is due starts nothing", at: anAt(running, unclaimed), fresh: true,
			late: -time.Second, want: summary{After: time.Second}},
		{name: "a phase that somebody wrote before the At is due unblocks while it waits", fresh: true, late: -time.Second,
			at: anAt(running, unclaimed, blockedBy(ReasonForeignPod)), want: summary{Status: "RUNNING", After: time.Second}},
		{name: "a phase that somebody wrote of an At that is due makes its Pod", at: anAt(running, unclaimed), fresh: true,
			want: remake},
		{name: "a claim by a clock ahead of ours holds", at: anAt(running), fresh: true, note: noteUnused,
			late: -time.Second, want: summary{MakePod: true}},
		{name: "our own unused claim doesn't spare the look", at: anAt(running), note: noteUnused, want: summary{Look: true}},
		{name: "a Pod that is gone is made again under a renewed claim", at: anAt(running), fresh: true, want: remake},
		{name: "a Pod just made that is gone is made again under a renewed claim", at: anAt(running), fresh: true,
			note: noteMade, want: remake},
		{name: "our own unused claim is used without another write", at: anAt(running), fresh: true, note: noteUnused,
			want: summary{MakePod: true}},
		{name: "after the deadline a refused Pod isn't made any more",
			at: anAt(running, deadline(60), blockedBy(ReasonPodRefused)), fresh: true, note: noteUnused,
			late: time.Minute + 1, want: summary{Status: "DONE Missed", Events: ReasonMissed}},
		{name: "after the deadline a refused Pod isn't looked for in the cache alone",
			at: anAt(running, deadline(60), blockedBy(ReasonPodRefused)), note: noteUnused,
			late: time.Minute + 1, want: summary{Look: true}},
		{name: "at the deadline a refused Pod is tried once more",
			at: anAt(running, deadline(60), blockedBy(ReasonPodRefused)), fresh: true, note: noteUnused,
			late: time.Minute, want: summary{MakePod: true}},
		{name: "after the deadline a Pod that an earlier holder was refused isn't made any more",
			at: anAt(running, deadline(60), blockedBy(ReasonPodRefused)), fresh: true, late: time.Minute + 1,
			want: summary{Status: "DONE Missed", Events: ReasonMissed}},
		{name: "after the deadline a Pod that was refused before the claim was renewed isn't made any more",
			at:    anAt(restarted, startedAt(due.Add(time.Second)), deadline(60), blockedBy(ReasonPodRefused)),
			fresh: true, late: time.Minute + 1, want: summary{Status: "DONE Missed restarts:1", Events: ReasonMissed}},
		{name: "a Pod that an earlier holder was refused is tried again, and nobody is told that it is gone",
			at: anAt(running, blockedBy(ReasonPodRefused)), fresh: true,
			want: summary{Status: "RUNNING blocked:PodRefused restarts:1", MakePod: true}},
		{name: "after the deadline a Pod that was refused after the claim was renewed is made again",
			at: anAt(restarted, deadline(60), blockedBy(ReasonPodRefused)), fresh: true, late: time.Minute + 1,
			want: summary{Status: "RUNNING blocked:PodRefused restarts:2", MakePod: true, Events: ReasonPodGone}},
		{name: "after the deadline a Pod that was refused, and may have been made since, is made again",
			at: anAt(running, deadline(60), blockedBy(ReasonPodRefused)), fresh: true, note: noteUnsure,
			late: time.Minute + 1,
			want: summary{Status: "RUNNING blocked:PodRefused restarts:1", MakePod: true, Events: ReasonPodGone}},
		{name: "after the deadline a Pod that was refused, and was made a moment ago, is made again",
			at: anAt(running, deadline(60), blockedBy(ReasonPodRefused)), fresh: true, note: noteMade, late: time.Minute + 1,
			want: summary{Status: "RUNNING blocked:PodRefused restarts:1", MakePod: true, Events: ReasonPodGone}},
		{name: "after the deadline a Pod that didn't go for long is made again",
			at: anAt(running, deadline(60), blockedBy(ReasonPodTerminating)), fresh: true, late: time.Hour, want: remake},
		{name: "after the deadline a Pod whose create was unanswered is made again",
			at: anAt(running, deadline(60)), fresh: true, late: time.Hour, want: remake},
		{name: "after the deadline a refused Pod that may have been there before is made again",
			at: anAt(restarted, deadline(60)), fresh: true, note: noteUnused, late: time.Hour, want: summary{MakePod: true}},
		{name: "while suspended a refused Pod outlasts the deadline", at: anAt(running, suspended, deadline(60)),
			fresh: true, note: noteUnused, late: time.Hour, want: summary{}},
		{name: "while suspended no Pod is made again", at: anAt(running, suspended), fresh: true, want: summary{}},
		{name: "while suspended it stays known that a refused Pod never ran", fresh: true, late: time.Hour,
			at: anAt(running, suspended, deadline(60), blockedBy(ReasonPodRefused)), want: summary{}},
		{name: "nothing outside blocks while suspended", at: anAt(running, suspended, blockedBy(ReasonPodRefused)),
			fresh: true, want: summary{Status: "RUNNING"}},
		{name: "while suspended a stranger's Pod outlasts the deadline", at: anAt(running, suspended, deadline(60)),
			pod: aPod(foreign), fresh: true, note: noteUnused, late: time.Hour,
			want: summary{Status: "RUNNING blocked:ForeignPod", Events: ReasonForeignPod, After: shortestBackoff}},
		{name: "after the deadline a stranger's Pod isn't waited for", at: anAt(running, deadline(60)),
			pod: aPod(foreign), fresh: true, note: noteUnused, late: time.Minute + 1,
			want: summary{Status: "DONE Missed", Events: ReasonMissed}},
		{name: "a stranger's Pod in the cache needs a look", at: anAt(running), pod: aPod(foreign),
			want: summary{Look: true}},
		{name: "a stranger's Pod blocks and is left alone", at: anAt(running), pod: aPod(foreign), fresh: true,
			want: summary{Status: "RUNNING blocked:ForeignPod", Events: ReasonForeignPod, After: shortestBackoff}},
		{name: "a stranger's finished Pod isn't ours either", at: anAt(running),
			pod: aPod(foreign, ended(corev1.PodSucceeded, 0, soon)), fresh: true,
			want: summary{Status: "RUNNING blocked:ForeignPod", Events: ReasonForeignPod, After: shortestBackoff}},
		{name: "a Pod on its way out is waited for", at: anAt(running), pod: aPod(podDeleted(soon)), want: leaving},
		{name: "a Pod that doesn't go is shown", at: anAt(running), pod: aPod(podDeleted(soon)), late: leaving.After,
			want: summary{Status: "RUNNING blocked:PodTerminating", Events: ReasonPodTerminating, After: stuckAfter}},
		{name: "a Pod that doesn't go is shown once", at: anAt(running, blockedBy(ReasonPodTerminating)),
			pod: aPod(podDeleted(soon)), late: time.Hour, want: summary{After: stuckAfter}},
		{name: "a Pod that doesn't go, which only the API server shows, is looked at again",
			at: anAt(running, blockedBy(ReasonPodTerminating)), pod: aPod(podDeleted(soon)), fresh: true, late: time.Hour,
			want: summary{After: recheckAfter}},
		{name: "a Pod that didn't go for long and has ended ends the At",
			at:  anAt(running, blockedBy(ReasonPodTerminating)),
			pod: aPod(podDeleted(soon), ended(corev1.PodSucceeded, 0, soon)), late: time.Hour, want: succeeded},
		{name: "a Pod killed by its deletion hasn't ended", at: anAt(running),
			pod: aPod(podDeleted(soon), ended(corev1.PodFailed, 137, soon.Add(time.Second))), want: leaving},
		{name: "a Pod that failed before its deletion has ended", at: anAt(running),
			pod: aPod(podDeleted(soon.Add(time.Second)), ended(corev1.PodFailed, 1, soon)), want: failed},
		{name: "a deleted Pod that succeeded has ended", at: anAt(running),
			pod: aPod(podDeleted(soon), ended(corev1.PodSucceeded, 0, soon)), want: succeeded},
		{name: "a Pod that lost its node hasn't ended", at: anAt(running), pod: aPod(disrupted("DeletionByPodGC")),
			want: summary{}},
		{name: "a Pod that its node evicted has ended", at: anAt(running), pod: aPod(disrupted("TerminationByKubelet")),
			want: failed},
		{name: "an At that is being deleted gets no Pod again", at: anAt(running, deleting), fresh: true, want: summary{}},
		{name: "an At that is being deleted gets no Pod under an unused claim either", at: anAt(running, deleting),
			fresh: true, note: noteUnused, want: summary{}},
		{name: "an At that is being deleted gets the end of its Pod", at: anAt(running, deleting),
			pod: aPod(ended(corev1.PodSucceeded, 0, soon)), want: succeeded},
		{name: "the Pod of an At that is being deleted may have ended before it was cached", at: anAt(running, deleting),
			want: summary{Look: true}},
		{name: "an At that is being deleted isn't blocked by a stranger's Pod", at: anAt(running, deleting),
			pod: aPod(foreign), fresh: true, want: summary{}},
	})
}

func TestTheMessageAboutAStrangersPodSaysHowLongTheAtWaits(t *testing.T) {
	const once = "is made only once it is deleted"
	const until = once + ", by the At's deadline at 2026-04-12T10:13:00Z"
	for name, c := range map[string]struct {
		at   *cnatv1alpha1.At
		note noteKind
		want string
	}{
		"no deadline":            {at: anAt(), want: once},
		"a deadline":             {at: anAt(deadline(60)), want: until},
		"the first claim":        {anAt(running, deadline(60)), noteUnused, until},
		"it may have started":    {at: anAt(running, deadline(60)), want: once},
		"suspension outlasts it": {anAt(running, suspended, deadline(60)), noteUnused, once},
	} {
		next := decide(view{At: c.at, Pod: aPod(foreign), Fresh: true, Note: c.note, Now: due})
		if got := next.Status.Conditions[0].Message; !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: %q, want it to end with %q", name, got, c.want)
		}
	}
}

func TestAMissedAtSaysWhatKeptItAndThatNothingStarted(t *testing.T) {
	for name, c := range map[string]struct {
		at   *cnatv1alpha1.At
		note noteKind
		pod  *corev1.Pod
		want string
	}{
		"nothing":          {at: anAt(deadline(60)), want: "not started within 1m0s of 2026-04-12T10:12:00Z"},
		"a stranger's Pod": {anAt(running, deadline(60), blockedBy(ReasonForeignPod)), noteUnused, aPod(foreign), ": shown"},
		"a refusal":        {anAt(running, deadline(60), blockedBy(ReasonPodRefused)), noteUnused, nil, ": shown"},
		"something before the last edit": {at: anAt(deadline(60), blockedBy(ReasonInvalidSchedule),
			func(at *cnatv1alpha1.At) { at.Generation = 2 }), want: "10:12:00Z"},
	} {
		for i := range c.at.Status.Conditions {
			c.at.Status.Conditions[i].Message = "shown"
		}
		got := decide(view{At: c.at, Pod: c.pod, Fresh: true, Note: c.note, Now: due.Add(time.Hour)}).Status
		failed := meta.FindStatusCondition(got.Conditions, cnatv1alpha1.ConditionFailed)
		if got.Result != cnatv1alpha1.AtMissed || got.StartTime != nil || !strings.HasSuffix(failed.Message, c.want) {
			t.Errorf("%s: %+v, want Missed with %q, and no start time", name, got, c.want)
		}
	}
}

func TestDecideDone(t *testing.T) {
	runDecideCases(t, []decideCase{
		{name: "an At that is DONE needs nothing", at: anAt(done), late: time.Hour, want: summary{}},
		{name: "an At that is DONE needs no Pod", at: anAt(done), fresh: true, late: time.Hour, want: summary{}},
		{name: "an At with a time to live is kept for it", at: anAt(done, ttl(60)), late: 11 * time.Second,
			want: summary{After: 50 * time.Second}},
		{name: "an At is deleted at the end of its time to live", at: anAt(done, ttl(60)), late: 61 * time.Second,
			want: summary{Delete: true}},
		{name: "a time to live of zero deletes at once", at: anAt(done, ttl(0)), late: time.Second,
			want: summary{Delete: true}},
		{name: "an At without a finish time is kept",
			at: anAt(done, ttl(0), func(at *cnatv1alpha1.At) { at.Status.FinishTime = nil }), late: time.Hour, want: summary{}},
		{name: "an At that is being deleted isn't deleted again", at: anAt(done, ttl(0), deleting),
			late: time.Hour, want: summary{}},
	})
}

func TestStatusOfANormalLife(t *testing.T) {
	now := due.Add(1500 * time.Nanosecond)
	claimed := decide(view{At: anAt(), Now: now}).Status
	want := cnatv1alpha1.AtStatus{
		Phase: cnatv1alpha1.AtRunning, PodName: PodName(anAt()),
		ScheduledTime: micro(due), StartTime: micro(due.Add(time.Microsecond)),
	}
	expect.Equal(t, "claim", want, *claimed)

	at := anAt()
	at.Status = *claimed
	end := due.Add(2 * time.Second)
	finished := decide(view{At: at, Pod: aPod(ended(corev1.PodFailed, 3, end)), Now: due.Add(time.Minute)}).Status
	if finished.ExitCode == nil || *finished.ExitCode != 3 {
		t.Errorf("exit code = %v, want 3", finished.ExitCode)
	}
	if !finished.FinishTime.Time.Equal(end) {
		t.Errorf("finish time = %v, want the container's %v", finished.FinishTime, end)
	}
	if !finished.Over {
		t.Error("it isn't over, though nothing is left to do")
	}
	ttl(60)(at)
	if decide(view{At: at, Pod: aPod(ended(corev1.PodFailed, 3, end)), Now: due.Add(time.Minute)}).Status.Over {
		t.Error("it is over before the end of its time to live: nobody will watch it, and it stays for ever")
	}
	if reason := reasonOf(*finished, cnatv1alpha1.ConditionFailed); reason != ReasonPodFailed {
		t.Errorf("condition Failed has reason %q, want %q", reason, ReasonPodFailed)
	}
}

// kubectl wait ignores conditions that are about an earlier generation, and the time to live of a DONE At may change.
func TestOnlyAConditionAboutTheSpecHasItsGeneration(t *testing.T) {
	end := due.Add(time.Second)
	for name, c := range map[string]struct {
		view view
		kind string
		want int64
	}{
		"Complete": {view{At: anAt(running), Pod: aPod(ended(corev1.PodSucceeded, 0, end)), Now: end},
			cnatv1alpha1.ConditionComplete, 0},
		"Failed": {view{At: anAt(running), Pod: aPod(ended(corev1.PodFailed, 1, end)), Now: end},
			cnatv1alpha1.ConditionFailed, 0},
		"Failed by its deadline": {view{At: anAt(deadline(1)), Now: due.Add(time.Minute)}, cnatv1alpha1.ConditionFailed, 0},
		"Blocked":                {view{At: anAt(schedule("tomorrow")), Now: due}, cnatv1alpha1.ConditionBlocked, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got := meta.FindStatusCondition(decide(c.view).Status.Conditions, c.kind)
			if got == nil || got.ObservedGeneration != c.want {
				t.Errorf("%+v, want %s with generation %d", got, c.kind, c.want)
			}
		})
	}
}

func TestFinishTimeOfAnImplausibleNodeClockIsOurs(t *testing.T) {
	now := due.Add(time.Minute)
	for name, end := range map[string]time.Time{
		"before the start": due.Add(-time.Hour), "in the future": now.Add(time.Hour), "unknown": {},
	} {
		t.Run(name, func(t *testing.T) {
			status := decide(view{At: anAt(running), Pod: aPod(ended(corev1.PodSucceeded, 0, end)), Now: now}).Status
			if !status.FinishTime.Time.Equal(now) {
				t.Errorf("finish time = %v, want %v", status.FinishTime, now)
			}
		})
	}
}
