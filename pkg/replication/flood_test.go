package replication

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/text"
)

// invented are so many names of clusters that there aren't, of some length.
func invented(n, length int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("c%0*d", length-1, i)
	}
	return strings.Join(all, ",")
}

// told are the events so far, each one line.
func (b *bench) told() []string {
	return strings.Split(strings.TrimSuffix(b.events(), "\n"), "\n")
}

func TestInventedClustersCostNothing(t *testing.T) {
	b := settled(t, annotated(AnnotationClusters, "west,east,"+invented(maxListed-2, 200)))
	b.clock.Step(connectGrace)
	b.live()
	b.wantReason("", ReasonAway)
	if message := b.message(); !strings.HasPrefix(message, "generation 1: 2 of 500 clusters available; c000") ||
		!strings.Contains(message, "isn't known") || !strings.Contains(message, "more") || len(message) > text.Note {
		t.Errorf("%d bytes: %s", len(message), message)
	}
	if told := b.told(); len(told) != 1 || !strings.Contains(told[0], ReasonAway) {
		t.Errorf("events %q, want one", told)
	}
	if copies, recorded := b.copies(), b.recorded(); copies != "east,west" || recorded != copies {
		t.Errorf("copies in %s, recorded %s", copies, recorded)
	}
	if n, m := len(b.subject.notes.copies), len(b.subject.connections.missed); n > 2 || m > 0 {
		t.Errorf("remembered: %d copies, %d connections", n, m)
	}
	b.change(annotated(AnnotationClusters, "west,"+invented(3, 8)))
	if copies, recorded := b.copies(), b.recorded(); copies != "west" || recorded != copies {
		t.Errorf("without east: copies in %s, recorded %s", copies, recorded)
	}
}

func TestAProcessThatHasJustBegunDoesNotTellOfClustersItHasNotHeardOf(t *testing.T) {
	b := newBench(t, aSource(annotated(AnnotationClusters, "west,north")))
	for range 3 {
		b.mustReconcile()
	}
	if b.condition() != "" || b.events() != "" {
		t.Errorf("condition %q before it can know", b.condition())
	}
	b.clock.Step(connectGrace)
	b.live()
	b.wantReason("since north isn't known", ReasonAway)
}

func TestOnlyTheFirstComplaintsAreKept(t *testing.T) {
	images := make([]string, 20_000)
	for i := range images {
		images[i] = fmt.Sprintf(`"c%d":""`, i)
	}
	_, err := parseWish(aSource(annotated(AnnotationOverrides, `{"west":{"images":{`+strings.Join(images, ",")+`}}}`)),
		home)
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != maxComplaints {
		t.Errorf("%d bytes of complaints, want %d complaints", len(err.Error()), maxComplaints)
	}
}

func TestWhatAServerSaysIsShownInBoundedWords(t *testing.T) {
	b := newBench(t, aSource())
	b.namespace("west", open(TargetConfined))
	b.namespace("east", open(TargetConfined))
	b.fault = func(n int, commit func() error) error {
		if n != 2 && n != 3 { // the list of copies, and then the condition
			return commit()
		}
		return apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "web",
			errors.New("\x1b[2Jno\n"+strings.Repeat("very long ", 100_000)))
	}
	b.mustReconcile()
	b.wantReason("", ReasonRefused)
	if message := b.message(); len(message) > 2*maxText+200 || text.Line(message, text.Note) != message ||
		!strings.Contains(message, "[2Jno very long") {
		t.Errorf("%d bytes: %q", len(message), message)
	}
}

// TestATargetThatComesAndGoesCostsFewWrites has a target go and come back all the time, and then stay away.
func TestATargetThatComesAndGoesCostsFewWrites(t *testing.T) {
	b := settled(t)
	b.events()
	b.written = nil
	toggle := func() {
		if _, down := b.down["west"]; down {
			delete(b.down, "west")
		} else {
			b.down["west"] = b.clock.Now()
		}
	}
	toggle()
	b.mustReconcile()
	b.wantReason("at the first change", ReasonAway)
	const minutes = 30
	for range minutes * 6 {
		b.clock.Step(10 * time.Second)
		toggle()
		b.mustReconcile()
	}
	most := freeFlips + int(minutes*time.Minute/flipEvery)
	if n := b.wrote("status home"); n < minutes || n > most {
		t.Errorf("%d writes in %d minutes, want %d at most", n, minutes, most)
	}
	if n := len(b.told()); n < minutes/2 || n > 2*(eventBudget.Burst+minutes) { // of two reasons
		t.Errorf("%d events in %d minutes", n, minutes)
	}
	for _, want := range []string{ReasonAway, ReasonReplicated} { // whatever the last one is, it is written in the end
		if _, down := b.down["west"]; down != (want == ReasonAway) {
			b.clock.Step(time.Second)
			toggle()
		}
		b.comesBack(1, flipEvery)
		b.clock.Step(flipEvery)
		b.mustReconcile()
		b.wantReason("after a while", want)
	}
	b.change(image("web:2")) // an edit is news at once
	b.wantReason("rolled out", ReasonReplicated)
	if message := b.message(); !strings.HasPrefix(message, "generation 2: 2 of 2") {
		t.Error(message)
	}
}

func TestEventsOfOneReasonInANamespaceAreFew(t *testing.T) {
	b := settled(t)
	b.events()
	a := &actor{r: b.subject, home: b.clusters["home"], source: b.get("home"), key: key}
	for range 3 * eventBudget.Burst {
		a.sendEvent(nil, corev1.EventTypeWarning, ReasonAway, "one")
	}
	a.sendEvent(nil, corev1.EventTypeWarning, ReasonForeign, "another")
	b.clock.Step(eventBudget.Every)
	a.sendEvent(nil, corev1.EventTypeWarning, ReasonAway, strings.Repeat("long ", text.Note))
	told := b.told()
	if len(told) != eventBudget.Burst+2 || !strings.Contains(told[len(told)-2], ReasonForeign) {
		t.Fatalf("%d events: %q", len(told), told)
	}
	last := told[len(told)-1]
	if !strings.HasSuffix(last, "(and 20 more like this in the namespace: see the conditions of its Deployments)") ||
		len(last) > text.Note+len("Warning "+ReasonAway+" ") {
		t.Errorf("%d bytes: %s", len(last), last)
	}
}

func TestWhatIsMissingIsForgottenWhenNobodyAsks(t *testing.T) {
	var c connections
	for i := range 1000 {
		name := multicluster.ClusterName(fmt.Sprint("c", i))
		c.missing(connection{"home/01", name}, epoch)
	}
	left := c.missing(connection{"home/01", "c7"}, epoch.Add(noteLife))
	if n := len(c.missed); n != 1 || left != connectGrace {
		t.Errorf("remembered: %d connections, want that to c7, which has %v left, want a new grace", n, left)
	}
}

func TestTheWorstIsNamedWhereNotAllCanBe(t *testing.T) {
	var outcomes []outcome
	for i := range 30 {
		o := outcome{Cluster: multicluster.ClusterName(fmt.Sprintf("c%02d", i)), Wanted: true, State: stateAway,
			Text: strings.Repeat("x", maxText)}
		outcomes = append(outcomes, o)
	}
	outcomes[29].State, outcomes[29].Text = stateForeign, "taken"
	got := summarize(outcomes, 1).Message
	if len(got) > text.Note || !strings.Contains(got, "; c29: taken, c00: x") || !strings.HasSuffix(got, "and 27 more") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
