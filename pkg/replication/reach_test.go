package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
)

func TestACopyThatIsDeletedSoonAfterItWasMadeIsMadeAgainAtOnce(t *testing.T) {
	b := settled(t)
	for range 3 {
		b.delete("west")
		for range 2 { // of its deletion, and of its creation
			b.mustReconcile()
		}
		if b.get("west") == nil {
			t.Fatal("it waits for a cache that has shown all there is")
		}
	}
}

// A provider that replaces a cluster takes it off its list for a moment. A lookup right afterwards finds it.
func TestNothingIsDoneInAClusterThatIsListedOnlyAfterAReconcileHasBegun(t *testing.T) {
	t.Run("its copy stays though * doesn't stand for it", func(t *testing.T) {
		b := settled(t, annotated(AnnotationClusters, "*"))
		before := b.get("west")
		b.hidden, b.written = "west", nil
		b.comesBack(0, connectGrace)
		if diff := cmp.Diff(before, b.get("west")); diff != "" || slices.Contains(b.written, "delete west") {
			t.Errorf("written %v; the copy (-before +after):\n%s", b.written, diff)
		}
		b.hidden = ""
		b.live()
		b.wantReason("listed again", ReasonReplicated)
	})
	t.Run("no copy is made that isn't recorded", func(t *testing.T) {
		b := newBench(t, aSource(annotated(AnnotationClusters, "west")))
		b.hidden = "west"
		for range 3 {
			b.mustReconcile()
		}
		if copies, recorded := b.copies(), b.recorded(); copies+recorded != "" {
			t.Errorf("copies in %q, recorded %q, want neither", copies, recorded)
		}
		b.hidden = ""
		b.live()
		if copies, recorded := b.copies(), b.recorded(); copies != "west" || recorded != "west" {
			t.Errorf("listed: copies in %q, recorded %q", copies, recorded)
		}
	})
}

// ten are the targets of a source, the first of which is bad.
func ten(b *bench) (names []multicluster.ClusterName) {
	for i := range 10 {
		name := multicluster.ClusterName(fmt.Sprintf("t%d", i))
		b.clusters[name] = b.newCluster(name)
		b.namespace(name, open(TargetConfined))
		names = append(names, name)
	}
	return names
}

// TestNineTargetsConvergeBesideABadOneAsWithoutIt follows an edit of a source until its copies have it.
func TestNineTargetsConvergeBesideABadOneAsWithoutIt(t *testing.T) {
	gone := errors.New("it serves nothing")
	converge := func(t *testing.T, spoil func(b *bench)) (reconciles, writes int) {
		b := newBench(t, aSource(annotated(AnnotationClusters, "t0,t1,t2,t3,t4,t5,t6,t7,t8,t9")))
		names := ten(b)
		b.live()
		b.written = nil
		spoil(b)
		b.edit("home", "kubectl", image("web:2"))
		for reconciles = 1; reconciles < 20; reconciles++ {
			b.mustReconcile()
			if !slices.ContainsFunc(names[1:], func(name multicluster.ClusterName) bool { return b.image(name) != "web:2" }) {
				break
			}
		}
		return reconciles, b.wrote("apply t") - b.wrote("apply t0")
	}
	reconciles, writes := converge(t, func(*bench) {})
	if writes != 9 {
		t.Fatalf("%d writes in %d reconciles without a bad one, want 9", writes, reconciles)
	}
	for name, spoil := range map[string]func(b *bench){
		"put off": func(b *bench) {
			b.putOff = func(name multicluster.ClusterName) (time.Duration, bool) {
				if name == "t0" {
					return 5 * time.Second, false
				}
				return 0, false
			}
		},
		"throttling": func(b *bench) { b.clusters["t0"].refuses = apierrors.NewTooManyRequests("wait", 1) },
		"failing":    func(b *bench) { b.clusters["t0"].refuses = apierrors.NewInternalError(gone) },
		"forbidding": func(b *bench) {
			b.clusters["t0"].refuses = apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "web", gone)
		},
		"silent": func(b *bench) { b.clusters["t0"].refuses = fmt.Errorf("giving up: %w", context.DeadlineExceeded) },
	} {
		t.Run(name, func(t *testing.T) {
			gotReconciles, gotWrites := converge(t, spoil)
			if gotReconciles != reconciles || gotWrites != writes {
				t.Errorf("%d reconciles and %d writes, want %d and %d as without the bad one", gotReconciles, gotWrites,
					reconciles, writes)
			}
		})
	}
}

// TestATargetIsLeftAloneForAsLongAsItAsksFor has a target turn one request away, with a Retry-After.
func TestATargetIsLeftAloneForAsLongAsItAsksFor(t *testing.T) {
	for name, c := range map[string]struct {
		says        error
		asked, want time.Duration
	}{
		"busy":              {apierrors.NewTooManyRequests("later", 1), 40 * time.Second, 40 * time.Second},
		"busy for ages":     {apierrors.NewTooManyRequests("later", 1), time.Hour, longestDelay},
		"busy, and no more": {apierrors.NewTooManyRequests("later", 1), 0, firstDelay},
		"away for ages":     {apierrors.NewServiceUnavailable("later"), time.Hour, longestSilence}, // it may be back sooner
	} {
		b := settled(t)
		b.asked, b.clusters["west"].refuses = c.asked, c.says
		b.edit("home", "kubectl", image("web:2"))
		b.comesBack(c.want, c.want*5/4)
		b.clusters["west"].refuses = nil
		for _, step := range []struct {
			after time.Duration
			image string
		}{{c.want - firstDelay/2, "web:1"}, {firstDelay, "web:2"}} {
			b.clock.Step(step.after)
			b.mustReconcile()
			if got := b.image("west"); got != step.image {
				t.Errorf("%s: around %v its image is %s, want %s", name, c.want, got, step.image)
			}
		}
	}
}

// What a target asks for holds for all sources until it serves one of them, which may be soon.
func TestACopyThatIsPutOffLooksForTheTargetNowAndThen(t *testing.T) {
	b := settled(t)
	b.putOff = func(name multicluster.ClusterName) (time.Duration, bool) { return 5 * time.Minute, false }
	b.edit("home", "kubectl", image("web:2"))
	b.comesBack(0, longestSilence*5/4)
}

// TestOneCopyOnTrialFindsOutForAll has a target put off by what it answered. Its cache shows the copy as it should be,
// so only a live read can show whether it serves again.
func TestOneCopyOnTrialFindsOutForAll(t *testing.T) {
	b := settled(t)
	asked := 0
	b.putOff = func(name multicluster.ClusterName) (time.Duration, bool) { asked++; return 0, name == "west" }
	b.clusters["west"].refuses = fmt.Errorf("giving up: %w", context.DeadlineExceeded)
	b.mustReconcile()
	b.wantReason("since the trial finds that west doesn't answer", ReasonAway)
	if asked = 0; len(b.subject.notes.copies) == 0 {
		t.Fatal("nothing is noted")
	}
	if _, err := b.reconcile(); err != nil || asked != 1 { // east
		t.Errorf("asked %d times, %v: a copy that waits for itself must not take the trial from another's", asked, err)
	}
	b.clusters["west"].refuses = nil
	b.live()
	b.wantReason("", ReasonReplicated)
}

func TestWhatATargetFailsWithIsShownUntilItIsTriedAgain(t *testing.T) {
	b := settled(t)
	b.clusters["west"].refuses = apierrors.NewInternalError(errors.New(`failed calling webhook "gate.example.com"`))
	b.edit("home", "kubectl", image("web:2"))
	for range 3 { // the last of these don't ask
		b.mustReconcile()
		b.wantReason("", ReasonRefused)
		if message := b.message(); !strings.Contains(message, "failed calling webhook") {
			t.Error(message)
		}
	}
	b.clusters["west"].refuses = fmt.Errorf("giving up: %w", context.DeadlineExceeded)
	b.clock.Step(longestSilence)
	b.mustReconcile()
	b.wantReason("when it is silent", ReasonAway)
	b.clusters["west"].refuses = apierrors.NewTooManyRequests("later", 1)
	b.clock.Step(longestSilence)
	for i := range 3 {
		before := b.sent
		b.mustReconcile()
		b.wantReason("when it answers, if not what it is asked", ReasonProgressing)
		if b.sent != before && i > 0 {
			t.Error("each reconcile writes another condition")
		}
	}
	b.clock.Step(longestSilence)
	b.clusters["west"].refuses = nil
	b.live()
	b.wantReason("it serves again", ReasonReplicated)
}

// An older API server refuses what it doesn't know by an error of its own, and would each time.
func TestATargetThatDoesNotKnowAFieldIsAskedEverMoreSeldom(t *testing.T) {
	asked := func(refusal error) int {
		b := settled(t)
		b.edit("home", "kubectl", image("web:2"))
		before := b.refused
		b.clusters["west"].refusesApply = refusal
		for range 600 {
			b.clock.Step(time.Second)
			b.mustReconcile()
		}
		b.wantReason("", ReasonRefused)
		return b.refused - before
	}
	unknown := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500,
		Message: "failed to create typed patch object (shop/web; apps/v1, Kind=Deployment): .spec.later: field not declared"}}
	got, want := asked(unknown), asked(apierrors.NewForbidden(appsv1.Resource("deployments"), "web", errors.New("no")))
	if got != want || want == 0 {
		t.Errorf("asked %d times in ten minutes, and %d where it is forbidden", got, want)
	}
}

// TestATargetThatWaitsForOurOwnLimitIsNotAway has the client of a target say so, in the middle of an edit and of a
// removal.
func TestATargetThatWaitsForOurOwnLimitIsNotAway(t *testing.T) {
	b := settled(t)
	b.clusters["west"].refuses = fmt.Errorf("asking west: %w: %w", kubeconfig.ErrLimited, context.DeadlineExceeded)
	b.edit("home", "kubectl", image("web:2"))
	b.comesBack(0, limitedAgain)
	b.wantReason("", ReasonProgressing)
	if message := b.message(); !strings.Contains(message, "west: waits for its turn: "+kubeconfig.ErrLimited.Error()) {
		t.Error(message)
	}
	b.clusters["west"].refuses = nil
	if _, err := b.reconcile(); err != nil || b.image("west") != "web:2" {
		t.Errorf("%v: the copy is put off, as that in a silent cluster is", err)
	}
	b.clusters["west"].refuses = fmt.Errorf("asking west: %w: %w", kubeconfig.ErrLimited, context.DeadlineExceeded)
	b.edit("home", "kubectl", unlabelled)
	b.mustReconcile()
	if source := b.get("home"); len(source.Finalizers) == 0 {
		t.Error("the source is let go before its copies are gone")
	}
	b.clusters["west"].refuses = nil
	b.live()
	if b.get("west") != nil {
		t.Error("the copy is still there")
	}
}
