package record

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/bench/audit/audittest"
	"github.com/tenure-dev/tenure/bench/load"
	"github.com/tenure-dev/tenure/bench/load/feed"
	"github.com/tenure-dev/tenure/bench/machine"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

var t0 = time.Unix(1000, 0)

func at(seconds float64) time.Time { return t0.Add(time.Duration(seconds * float64(time.Second))) }

func arrival(name string, due float64) load.Arrival {
	return load.Arrival{Ref: load.Ref{Cluster: "west", Namespace: "ns", Name: name}, Intended: at(due),
		Due: at(due), Sent: at(due)}
}

func atEvent(name, phase string, seconds float64) feed.Event {
	e := feed.Event{Type: "MODIFIED", At: at(seconds)}
	e.Object.Metadata.Namespace, e.Object.Metadata.Name, e.Object.Status.Phase = "ns", name, phase
	return e
}

func podEvent(owner, uid string, seconds float64) feed.Event {
	e := feed.Event{Type: "ADDED", At: at(seconds)}
	e.Object.Metadata.Namespace, e.Object.Metadata.UID = "ns", uid
	e.Object.Metadata.OwnerReferences = append(e.Object.Metadata.OwnerReferences, struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	}{Name: owner})
	return e
}

func keyOf(r load.Ref) uint64 { return uint64(len(r.Name)) }

func TestALedgerTellsWhatWasLostEarlyAndDoubled(t *testing.T) {
	l := NewLedger()
	for _, name := range []string{"good", "lost", "early", "twice"} {
		l.Expect(arrival(name, 10))
	}
	l.At("west", atEvent("good", "RUNNING", 10.5))
	l.Pod("west", podEvent("good", "1", 10.6))
	l.Pod("west", podEvent("good", "1", 10.7)) // the same again: a watch that was taken up
	if done := l.At("west", atEvent("good", "DONE", 12)); !done {
		t.Error("DONE isn't done")
	}
	if done := l.At("west", atEvent("good", "DONE", 13)); done {
		t.Error("DONE twice")
	}
	l.At("west", atEvent("early", "RUNNING", 9.9))
	l.At("west", atEvent("early", "DONE", 11))
	l.Pod("west", podEvent("twice", "2", 10.1))
	l.Pod("west", podEvent("twice", "3", 10.2))
	l.At("west", atEvent("twice", "DONE", 14))
	l.At("west", atEvent("stranger", "DONE", 14))
	if l.Open() != 1 || l.Done() != 3 {
		t.Errorf("%d open, %d done; want 1, 3", l.Open(), l.Done())
	}
	s := l.Sum("ns", nil, keyOf)
	got := []int{s.Objects, s.Lost, s.Duplicates, s.Early}
	expect.Equal(t, "objects, lost, duplicates, early", []int{4, 1, 1, 1}, got)
	if q := s.Converge.Quantiles(); q.N != 3 || q.Max < 3998 || q.Max > 4003 {
		t.Errorf("converge %+v, want 3 with 4 s at most", q)
	}
	if !s.Last.Equal(at(14)) {
		t.Errorf("last at %v", s.Last)
	}
	none := l.Sum("ns", func(a load.Arrival) bool { return a.Name == "good" }, keyOf)
	if none.Objects != 1 || l.Sum("other", nil, keyOf).Objects != 0 {
		t.Error("the selection doesn't select")
	}
}

func shardEvent(prefix, assignee, holder string, epoch int64, seconds float64) feed.Event {
	e := feed.Event{Type: "MODIFIED", At: at(seconds)}
	e.Object.Spec.Cluster, e.Object.Spec.Prefix, e.Object.Spec.Assignee = "west", prefix, assignee
	e.Object.Status.Holder, e.Object.Status.Epoch = holder, epoch
	return e
}

func TestATimelineTellsWhoHeldWhatWhen(t *testing.T) {
	l := NewTimeline()
	if l.Settled(1) {
		t.Error("nothing is settled")
	}
	l.Record(shardEvent("0", "", "", 0, 0))
	l.Record(shardEvent("0", "r1-aaa", "r1-aaa", 1, 1))
	l.Record(shardEvent("1", "r1-aaa", "r1-aaa", 1, 1))
	if !l.Settled(2) || l.Settled(3) {
		t.Error("two shards are settled, and there is no third")
	}
	l.Record(shardEvent("1", "r2-bbb", "r1-aaa", 1, 4))
	if l.Settled(2) {
		t.Error("settled while one is to move")
	}
	l.Record(shardEvent("1", "r2-bbb", "r2-bbb", 2, 5))
	defer func() { // what comes after the load is not shown
		l.Record(shardEvent("1", "r3-ccc", "r3-ccc", 3, 11))
		for _, s := range l.Spans(at(2), at(10)) {
			if s.To > 8 || s.Holder == "r3" {
				t.Errorf("span %+v ends after the load", s)
			}
		}
	}()
	want := []Span{
		{"west/0", "r1", 1, -1, 8}, {"west/1", "r1", 1, -1, 3}, {"west/1", "r2", 2, 3, 8},
	}
	expect.Equal(t, "spans", want, l.Spans(at(2), at(10)))
	expect.Equal(t, "held", map[string]int{"r1-aaa": 1, "r2-bbb": 1}, l.Held())
	for replica, want := range map[string][]string{"r1": {"west/0", "west/1"}, "r2": nil} {
		expect.Equal(t, "held by "+replica+" before the move", want, l.HeldAt(replica, at(4)))
	}
	expect.Equal(t, "held by r2 after the move", []string{"west/1"}, l.HeldAt("r2", at(5)))
	if l.HeldAnew("r2", l.Held()) || !l.HeldAnew("r2", map[string]int{"r2-old": 3}) || l.HeldAnew("r3", nil) {
		t.Error("only an incarnation that wasn't there before is new")
	}
}

func TestAProcessIsReadWhileItWorks(t *testing.T) {
	before, err := UseOf(os.Getpid())
	must.Succeed(t, err)
	// Less than what /proc counts in, and by the processor's time: on a busy machine the clock says nothing.
	for began := machine.ProcessorTime(); machine.ProcessorTime()-began < 3*time.Millisecond; {
	}
	after, err := UseOf(os.Getpid())
	must.Succeed(t, err)
	all := machine.ProcessorTime()
	if spent := after.CPU - before.CPU; spent < time.Millisecond || after.CPU > all+time.Second ||
		after.CPU < all-time.Second {
		t.Errorf("spent %v of %v, by getrusage %v in all", spent, after.CPU, all)
	}
	if after.RSS < 1<<20 || after.Peak < after.RSS {
		t.Errorf("%d bytes of memory, %d at most", after.RSS, after.Peak)
	}
	if _, err := UseOf(1 << 22); err == nil { // beyond the largest pid that Linux gives
		t.Error("a process that isn't there was read")
	}
}

func TestCallsAreCountedByUserAndOutcome(t *testing.T) {
	line := func(user, verb, resource, sub string, code int) string {
		return audittest.Line(audit.Event{User: user, Verb: verb, Resource: resource, Subresource: sub, Code: code})
	}
	log := line("bench", "create", "ats", "", 201) + line("us", "update", "ats", "status", 200) +
		line("us", "create", "pods", "", 201) +
		line("us", "update", "ats", "status", 409) + line("us", "create", "pods", "", 500) +
		line("us", "update", "leases", "", 200) +
		line("bench", "patch", "pods", "status", 200) + line("us", "watch", "ats", "", 200) +
		audittest.Line(audit.Event{User: "us", Verb: "watch", Resource: "ats", Code: 200, Stage: "ResponseStarted"})
	file := filepath.Join(t.TempDir(), "audit.log")
	must.Succeed(t, os.WriteFile(file, []byte(log), 0o600))
	calls, err := CallsIn(file, "west", "us")
	must.Succeed(t, err)
	empty := filepath.Join(t.TempDir(), "audit.log")
	must.Succeed(t, os.WriteFile(empty, nil, 0o600))
	if none, err := CallsIn(empty, "west", "us"); err == nil {
		t.Errorf("an empty log has the calls %+v", none)
	}
	want := Calls{
		ByVerb:   map[string]int{"update ats/status": 1, "create pods": 1, "update leases": 1, "watch ats": 1},
		AtWrites: 2, Conflicts: 1, Created: 1, Served: map[load.Ref]bool{},
	}
	expect.Equal(t, "calls", want, calls)
}

func TestADoneObjectWithoutItsWriteInTheAuditLogIsCounted(t *testing.T) {
	write := func(name, phase string, code int) string {
		return audittest.Line(audit.Event{User: "us", Verb: "update", Group: audit.AtGroup, Resource: "ats",
			Subresource: "status", Namespace: "ns", Name: name, Code: code, Body: &audit.Body{Phase: phase}})
	}
	copied := audittest.Line(audit.Event{User: "us", Verb: "create", Group: audit.AppsGroup, Resource: "deployments",
		Namespace: "ns", Name: "web", Code: 201})
	file := filepath.Join(t.TempDir(), "audit.log")
	must.Succeed(t, os.WriteFile(file, []byte(write("logged", "DONE", 200)+write("timed-out", "DONE", 504)+
		write("begun", "RUNNING", 200)+write("refused", "DONE", 409)+copied), 0o600))
	calls, err := CallsIn(file, "west", "us")
	must.Succeed(t, err)
	web := load.Ref{Cluster: "home", Namespace: "ns", Name: "web"}
	for _, c := range []struct {
		name string
		want int
	}{{"logged", 0}, {"timed-out", 0}, {"begun", 1}, {"refused", 1}, {"no line at all", 1}} {
		l := NewLedger()
		l.Expect(arrival(c.name, 10))
		l.Expect(arrival("open", 10)) // no log need have that
		l.At("west", atEvent(c.name, "DONE", 12))
		if got := l.Unlogged("ns", calls.Served); got != c.want || l.Unlogged("other", calls.Served) != 0 {
			t.Errorf("%s: %d objects are not in the log, want %d", c.name, got, c.want)
		}
	}
	for clusters, want := range map[int]int{1: 0, 2: 1} { // the log is that of west alone
		l := NewLedger()
		l.Expect(load.Arrival{Ref: web})
		for _, cluster := range []string{"west", "east"}[:clusters] {
			e := feed.Event{At: at(1)}
			e.Object.Metadata.Namespace, e.Object.Metadata.Name, e.Object.Spec.Replicas = "ns", "web", load.Replicas
			l.Copy("home", cluster, clusters, e)
		}
		if got := l.Unlogged("ns", calls.Served); got != want {
			t.Errorf("copies in %d clusters: %d are not in the log, want %d", clusters, got, want)
		}
	}
}

func TestADeploymentHasConvergedWithItsLastCopyAndADriftEndsWhenItIsUndone(t *testing.T) {
	l, start := NewLedger(), time.Now()
	ref := load.Ref{Cluster: "home", Namespace: "ns", Name: "web"}
	l.Expect(load.Arrival{Ref: ref, Intended: start})
	seen := func(cluster string, replicas, ms int) {
		e := feed.Event{Type: "MODIFIED", At: start.Add(time.Duration(ms) * time.Millisecond)}
		e.Object.Metadata.Namespace, e.Object.Metadata.Name, e.Object.Spec.Replicas = ref.Namespace, ref.Name, replicas
		l.Copy("home", cluster, 2, e)
	}
	seen("west", load.Replicas, 10)
	if l.Open() != 1 || len(l.Complete("ns")) != 0 {
		t.Fatal("one copy of two is enough")
	}
	seen("east", load.Replicas, 30)
	if l.Open() != 0 || len(l.Complete("ns")) != 1 {
		t.Fatal("both copies are there and it isn't complete")
	}
	l.Drift(ref, "west", start.Add(100*time.Millisecond))
	seen("west", load.Replicas, 105) // of before the change
	if l.Open() != 1 {
		t.Error("a change that wasn't seen yet counts as undone")
	}
	seen("west", 7, 110)
	seen("west", load.Replicas, 125)
	if l.Open() != 0 {
		t.Error("the change is undone, and it is waited for")
	}
	l.Drift(ref, "east", start.Add(200*time.Millisecond)) // never undone
	s := l.Sum("ns", nil, func(load.Ref) uint64 { return 1 })
	if s.Objects != 1 || s.Copies != 2 || s.Drifts != 2 || s.Lost != 1 {
		t.Errorf("%d objects, %d copies, %d drifts, %d lost; want 1, 2, 2, 1", s.Objects, s.Copies, s.Drifts, s.Lost)
	}
	if converge, repair := s.Converge.Quantiles(),
		s.Repair.Quantiles(); converge.Max < 29.9 || converge.Max > 30.2 || repair.N != 1 || repair.Max < 24.9 ||
		repair.Max > 25.2 {
		t.Errorf("converged in %v ms, repaired in %v ms; want 30 and 25", converge, repair)
	}
}
