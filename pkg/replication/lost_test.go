package replication

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/test/must"
)

// divided has ten replicas, for all clusters together.
func divided(options ...func(*appsv1.Deployment)) *appsv1.Deployment {
	return aSource(append([]func(*appsv1.Deployment){annotated(AnnotationReplicas, "divide"),
		annotated(AnnotationTotal, "10")}, options...)...)
}

// Its Pods ran on all the time. What was decided without it is that others have its share.
func TestATargetThatComesBackDuringAReconcileIsNotEmptied(t *testing.T) {
	b := newBench(t, divided())
	b.live()
	b.down["west"] = b.clock.Now()
	b.clock.Step(6 * time.Minute)
	b.fault = func(_ int, commit func() error) error {
		delete(b.down, "west") // after it was looked at, and before anything is done
		return commit()
	}
	b.mustReconcile()
	if n := *b.get("west").Spec.Replicas; n != 5 {
		t.Errorf("it has %d replicas", n)
	}
	b.fault = nil
	b.live()
	b.wantShares("at last", 5, 5)
}

// A process that starts doesn't know all clusters yet, and one whose Secret changes is gone for a moment.
func TestAClusterThatIsNotKnownKeepsItsShareForTheGrace(t *testing.T) {
	b := newBench(t, divided(annotated(AnnotationClusters, "*")))
	b.live()
	b.restart()
	b.hidden = "west"
	step := func(what string, after time.Duration, want int32) {
		t.Helper()
		b.clock.Step(after)
		b.live()
		if n := *b.get("east").Spec.Replicas; n != want {
			t.Errorf("%s: east has %d, want %d", what, n, want)
		}
	}
	step("not known", time.Second, 5)
	step("after the grace", 6*time.Minute, 10)
	b.hidden = ""
	step("back", time.Second, 5)
}

// forgotten is a source after kubectl replace, which keeps the status, and takes away the annotations and finalizers
// that the file doesn't have.
func forgotten(d *appsv1.Deployment) {
	delete(d.Annotations, AnnotationCopies)
	d.Finalizers = nil
}

func TestCopiesOfASourceWhoseRecordWasLostAreFound(t *testing.T) {
	oneLess := func(d *appsv1.Deployment) { d.Annotations[AnnotationClusters] = "west" }
	mended := func(d *appsv1.Deployment) { delete(d.Annotations, AnnotationReplicas) }
	for name, c := range map[string]struct {
		broken bool // nothing was done when it was lost, since an annotation was invalid
		change func(*appsv1.Deployment)
		copies string
	}{
		"one target less":                {false, oneLess, "west"},
		"no label":                       {false, unlabelled, ""},
		"corrected, and one target less": {true, func(d *appsv1.Deployment) { mended(d); oneLess(d) }, "west"},
		"corrected, and no label":        {true, func(d *appsv1.Deployment) { mended(d); unlabelled(d) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := settled(t)
			if c.broken {
				b.change(annotated(AnnotationReplicas, "share"))
				b.restart()
				b.clock.Step(connectGrace)
			}
			b.change(func(d *appsv1.Deployment) { forgotten(d); c.change(d) })
			if copies := b.copies(); copies != c.copies {
				t.Errorf("copies in %q, want %q", copies, c.copies)
			}
			source := b.get("home")
			if held := len(source.Finalizers) > 0; held != (c.copies != "") || held && b.recorded() != c.copies {
				t.Errorf("finalizers %v, annotations %v", source.Finalizers, source.Annotations)
			}
		})
	}
}

// A create of an earlier holder may still be under way when its successor finds no copy, and lets the source go.
func TestALateCopyOfASourceThatWasReleasedHereIsDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(*bench)
		stays     bool
	}{
		"all is well":                   {func(*bench) {}, false},
		"its cluster is for Ats by now": {func(b *bench) { b.atsOnly = "west" }, false},
		"its cluster counts as away":    {func(b *bench) { b.down["west"] = b.clock.Now() }, false},
		"another cluster's cache is never filled": {func(b *bench) {
			b.down["east"], b.clusters["east"].unfilled = b.clock.Now(), true
		}, false},
		"another process released it": {func(b *bench) { b.restart() }, true},
		"it is of an earlier source of that name": {func(b *bench) {
			b.edit("west", "kubectl", annotated(AnnotationOwnerUID, "earlier"))
		}, true},
		"it is a source again": {func(b *bench) {
			again := aSource()
			again.UID = "again"
			must.Succeed(b, b.clusters["home"].client.Create(b.Context(), again))
			b.clusters["home"].freeze()
			b.clusters["home"].shown = nil // the cache doesn't show it yet
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := settled(t)
			late := b.get("west")
			b.delete("home")
			b.live()
			if b.get("west") != nil || b.get("home") != nil {
				t.Fatal("the source isn't gone, or its copy")
			}
			late.ResourceVersion = ""
			must.Succeed(t, b.clusters["west"].client.Create(t.Context(), late))
			c.meanwhile(b)
			b.mustReconcile()
			if stays := b.get("west") != nil; stays != c.stays {
				t.Errorf("the late copy stays: %v, want %v", stays, c.stays)
			}
		})
	}
}

func TestCachesThatAreNotFilledDelayTheSearchForLateCopiesForSoLongAltogether(t *testing.T) {
	for name, c := range map[string]struct {
		others int // clusters whose caches are never filled
		forAts bool
		want   time.Duration
	}{
		"one that is for Ats alone": {1, true, strayLook},
		"many":                      {99, false, 6 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := settled(t)
			late := b.get("west")
			b.delete("home")
			b.live()
			for i := range c.others {
				other := multicluster.ClusterName(fmt.Sprintf("a%02d", i))
				b.clusters[other] = b.newCluster(other)
				b.clusters[other].unfilled = true
				if c.forAts {
					b.atsOnly = other
				}
			}
			late.ResourceVersion = ""
			must.Succeed(t, b.clusters["west"].client.Create(t.Context(), late))
			began := time.Now()
			b.mustReconcile()
			if took := time.Since(began); took > c.want || b.get("west") != nil {
				t.Errorf("%s: it took %v; the late copy is %v", name, took, b.get("west"))
			}
		})
	}
}

// onlyWest is an export of an earlier day, with the list of copies of that day.
func onlyWest(d *appsv1.Deployment) {
	d.Annotations[AnnotationClusters], d.Annotations[AnnotationCopies] = "west", "west"
}

func TestACopyThatAnOldListDoesNotNameIsNotForgotten(t *testing.T) {
	for copies, change := range map[string]func(*appsv1.Deployment){
		"west": onlyWest,
		"":     func(d *appsv1.Deployment) { onlyWest(d); unlabelled(d) },
	} {
		b := settled(t)
		b.change(change)
		if got := b.copies(); got != copies {
			t.Errorf("copies in %q, want %q", got, copies)
		}
	}
}

func TestACacheThatIsNotFilledDelaysLittleAndHidesNoCopyElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := settled(t)
		away := b.newCluster("away") // the first that is looked at
		b.clusters["away"], away.unfilled = away, true
		b.edit("home", "kubectl", onlyWest)
		began := time.Now()
		b.live()
		if took := time.Since(began); b.get("east") != nil || took > 2*time.Second {
			t.Errorf("after %v the copy that the list doesn't name is %v", took, b.get("east"))
		}
	})
}

// What nobody can say yet is whether a target that can't be read is the same cluster, or what can't be deleted yet.
func TestACopyThatIsFoundAndStaysIsNotForgotten(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*appsv1.Deployment)
		refuses error
		copies  string
		says    string
	}{
		"in doubt": {func(d *appsv1.Deployment) { forgotten(d); d.Annotations[AnnotationClusters] = "west,future" }, nil,
			"?,east,west", "east (to be removed): isn't wanted, but future can't be read"},
		"in doubt though it was never listed": {func(d *appsv1.Deployment) {
			onlyWest(d)
			d.Annotations[AnnotationClusters] = "west,future"
		}, nil, "?,east,west", "east (to be removed): isn't wanted, but future can't be read"},
		"its deletion is refused": {onlyWest, apierrors.NewForbidden(appsv1.Resource("deployments"), "web", nil),
			"?,east,west", "east (to be removed): "},
		"its deletion is refused, and the label is off": {func(d *appsv1.Deployment) { onlyWest(d); unlabelled(d) },
			apierrors.NewForbidden(appsv1.Resource("deployments"), "web", nil), "?,east", "east (to be removed): "},
	} {
		t.Run(name, func(t *testing.T) {
			b := settled(t)
			b.clusters["east"].refusesDelete = c.refuses
			b.change(c.change)
			if b.recorded() != c.copies || !strings.Contains(b.message(), c.says) {
				t.Errorf("the list is %s, the condition says %s", b.recorded(), b.message())
			}
			b.down["east"] = b.clock.Now()
			b.delete("home")
			b.restart()
			b.live()
			delete(b.down, "east")
			b.clusters["east"].refusesDelete = nil
			b.clock.Step(longestDelay)
			b.live()
			if b.copies() != "" || b.get("home") != nil {
				t.Errorf("copies are left in %s; the source is there: %v", b.copies(), b.get("home") != nil)
			}
		})
	}
}

// A copy from another source is none of ours, whatever its name.
func TestACopyOfAnotherOwnerIsNotTakenForAStray(t *testing.T) {
	b := settled(t)
	b.edit("east", "kubectl", func(d *appsv1.Deployment) { d.Annotations[AnnotationOwnerUID] = "uid-of-another" })
	b.change(onlyWest)
	if b.get("east") == nil {
		t.Error("it was deleted")
	}
}

// Two that change other fields each, in turn, are as endless as one.
func TestRepairsOfEverOtherFieldsAreHeldBackToo(t *testing.T) {
	b := settled(t)
	b.written = nil
	for range 30 {
		for _, change := range []func(*appsv1.Deployment){scaled(9), image("evil")} {
			b.edit("west", fmt.Sprintf("bot-%p", change), change)
			b.mustReconcile()
			b.clock.Step(time.Second)
		}
	}
	applied := b.wrote("apply west")
	if applied < freeRepairsOfAny || applied > 20 || !strings.Contains(b.condition(), ReasonContested) {
		t.Errorf("%d repairs of 60 changes in a minute; condition %q", applied, b.condition())
	}
}

// Somebody's cleaner deletes what it doesn't know, as soon as it sees it, or once an autoscaler has scaled it.
func TestACopyThatIsDeletedEachTimeIsMadeEverMoreSeldom(t *testing.T) {
	for name, scaledFirst := range map[string]bool{"as it was made": false, "scaled by an autoscaler": true} {
		t.Run(name, func(t *testing.T) {
			b := settled(t)
			b.written = nil
			step := func() {
				t.Helper()
				b.clock.Step(time.Second)
				b.mustReconcile()
			}
			made := 0
			for range 60 {
				if b.get("west") != nil {
					if scaledFirst {
						b.edit("west", "kube-controller-manager", scaled(9))
						step()
					}
					b.delete("west")
				}
				if step(); b.get("west") != nil {
					made++
				}
			}
			if made < freeRepairs || made > 10 || !strings.Contains(b.condition(), ReasonContested) {
				t.Errorf("made %d times of 60; condition %q", made, b.condition())
			}
			b.recovers("left in peace")
		})
	}
}

// A copy that goes and comes back as its owner asks wasn't deleted by a stranger.
func TestACopyThatItsOwnerTakesAwayAndWantsAgainIsNoDrift(t *testing.T) {
	b := settled(t)
	b.change(annotated(AnnotationClusters, "east"))
	b.change(annotated(AnnotationClusters, "east,west"))
	if text := b.events(); b.get("west") == nil || strings.Contains(text, ReasonRepaired) {
		t.Errorf("copy %v, events %q", b.get("west") != nil, text)
	}
}

// API servers take two entries of one key in a create, and in no apply.
func TestASourceThatCannotBeAppliedSaysSoAndIsNotSent(t *testing.T) {
	twice := func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}}
	}
	base, err := newTemplate(aSource(twice), "home", homeUID)
	if err != nil || !strings.Contains(base.unfit, "duplicate") || !strings.Contains(base.unfit, "env") {
		t.Errorf("%q doesn't say what is wrong (%v)", base.unfit, err)
	}
	if base, err = newTemplate(aSource(), "home", homeUID); err != nil || base.unfit != "" {
		t.Errorf("a sound source: %s (%v)", base.unfit, err)
	}
	b := newBench(t, aSource(twice))
	_, _ = b.reconcile() // the fake home, unlike a real one, takes no status of such an object
	if sent := strings.Join(b.written, ", "); strings.Contains(sent, "west") || b.get("west") != nil {
		t.Errorf("it was sent: %s", sent)
	}
}
