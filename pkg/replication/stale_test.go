package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
)

func unlabelled(d *appsv1.Deployment) { delete(d.Labels, LabelReplicate) }

// wantQuiet reconciles and checks that nothing is committed.
func (b *bench) wantQuiet() {
	b.Helper()
	before := len(b.written)
	for range 3 {
		_, _ = b.reconcile()
	}
	if got := b.written[before:]; len(got) > 0 {
		b.Fatalf("written: %v", got)
	}
}

func TestWhatIsRememberedOfACopyIsVoidOnceItsClusterHasGoneBack(t *testing.T) {
	copy := func(version string) *appsv1.Deployment {
		d := &appsv1.Deployment{}
		d.ResourceVersion, d.UID, d.Generation, d.Labels = version, "uid", 7, map[string]string{labelSlot: "3"}
		return d
	}
	for _, c := range []struct {
		next *appsv1.Deployment
		kept bool
	}{{copy("90"), true}, {copy("101"), true}, {nil, true}, {copy("89"), false}} {
		n := copyNote{}
		n.seen(copy("90"))
		n.judge(copy("90"), nil)
		n.seen(c.next)
		if kept := n.JudgedGeneration == 7; kept != c.kept || n.Slot != "3" {
			t.Errorf("%+v: remembered is %v, want %v", c.next, n, c.kept)
		}
	}
}

func TestStoryANewHoldersCacheShowsWhatWasBefore(t *testing.T) {
	for name, c := range map[string]struct {
		cluster multicluster.ClusterName
		nothing bool // is shown
		change  func(*appsv1.Deployment)
	}{
		"a source that is done with": {"home", false, unlabelled},
		"an old image":               {"home", false, image("web:2")},
		"an old copy":                {"west", false, image("web:2")},
		"no copy":                    {"west", true, image("web:2")},
	} {
		t.Run(name, func(t *testing.T) {
			b := settled(t)
			cache, before := b.clusters[c.cluster], b.get(c.cluster)
			b.change(c.change)
			b.restart()
			if cache.stale = true; !c.nothing {
				cache.shown = before
			}
			copies := b.copies()
			if b.wantQuiet(); b.copies() != copies {
				t.Errorf("there were copies in %q, and there are in %q", copies, b.copies())
			}
		})
	}
}

// Lists may fail at a target that serves single requests.
func TestStoryACacheNeverShowsACopy(t *testing.T) {
	b := settled(t)
	b.clusters["west"].stale = true
	b.restart()
	b.sent = 0
	for end := b.clock.Now().Add(time.Hour); b.clock.Now().Before(end); {
		result := b.mustReconcile()
		if result.RequeueAfter == 0 {
			t.Fatalf("%+v: want a look at it later", result)
		}
		b.clock.Step(result.RequeueAfter)
	}
	if b.sent < 60 || b.sent > 240 {
		t.Errorf("%d writes in an hour, want a few a minute", b.sent)
	}
	b.clusters["west"].stale = false
	b.wantQuiet()
}

func TestStoryAClusterWhoseCacheIsNeverFilledHoldsUpNoEnd(t *testing.T) {
	b := settled(t)
	b.delete("home")
	b.live()
	away := b.newCluster("away")
	b.clusters["away"], away.unfilled = away, true
	if result := b.mustReconcile(); !result.IsZero() {
		t.Errorf("%+v: want the end", result)
	}
}

func TestOneFrozenClusterHoldsUpNeitherTheOthersNorTheNextReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // so that what the machine takes doesn't count
		b := settled(t)
		b.restart(func(c *Config) { c.FanOut, c.TargetTimeout = 8, 3*time.Second })
		b.clusters["west"].frozen.Store(true)
		b.edit("home", "kubectl", image("web:2"))
		began := time.Now()
		b.comesBack(firstDelay, firstDelay)
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("it took %s", took)
		}
		b.wantReason("", ReasonAway)
		if b.image("east") != "web:2" {
			t.Errorf("east has %s", b.image("east"))
		}
		b.edit("east", "kubectl", image("evil"))
		began = time.Now()
		b.mustReconcile()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it waited for the frozen cluster again: %s", took)
		}
		if b.image("east") != "web:2" {
			t.Error("east wasn't repaired")
		}
		b.clusters["west"].frozen.Store(false)
		b.live()
		b.wantReason("", ReasonReplicated)
	})
}

func TestATargetWhoseWebhooksTakeLongGetsItsCopyAtTheSecondTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := settled(t)
		west := b.clusters["west"]
		west.webhook = 10 * time.Second // Kubernetes' default for one that doesn't answer
		b.edit("home", "kubectl", image("web:2"))
		for _, want := range []struct {
			image string
			took  time.Duration
		}{{"web:1", 5 * time.Second}, {"web:2", 10 * time.Second}} {
			began := time.Now()
			b.mustReconcile()
			if took := time.Since(began); took < want.took || took > want.took+time.Second {
				t.Errorf("it took %s, want %s", took, want.took)
			}
			b.rollOut("west")
			b.rollOut("east")
			b.clock.Step(firstDelay)
			if got := b.image("west"); got != want.image {
				t.Errorf("west has %s, want %s", got, want.image)
			}
			if want.image == "web:1" {
				b.wantReason("", ReasonAway)
			}
		}
		west.reads = 0
		for range 3 {
			b.mustReconcile()
		}
		if west.reads > 0 {
			t.Errorf("%d live reads where there was nothing to write", west.reads)
		}
		b.edit("home", "kubectl", image("web:3"))
		west.frozen.Store(true)
		began := time.Now()
		b.mustReconcile()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("a target that answers nothing was waited for: %s", took)
		}
		west.frozen.Store(false)
		b.clock.Step(longestSilence)
		west.webhook, west.refusesApply = 10*time.Second, apierrors.NewInternalError(errors.New("failed calling webhook"))
		b.mustReconcile()
		b.wantReason("since a webhook fails", ReasonRefused)
		west.webhook, west.refusesApply = time.Minute, nil
		b.clock.Step(longestSilence)
		b.mustReconcile()
		b.wantReason("since a webhook takes too long", ReasonRefused)
		if !strings.Contains(b.message(), "admission webhooks") {
			t.Error(b.message())
		}
	})
}

func TestSlowWritesThatConflictEachTimeHoldAWorkerForSoLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := settled(t)
		west := b.clusters["west"]
		west.webhook = 10 * time.Second
		b.edit("home", "kubectl", image("web:2"))
		b.mustReconcile() // it finds out that writes are slow
		west.refusesApply = apierrors.NewConflict(schema.GroupResource{Resource: "deployments"}, "web", errors.New("changed"))
		b.clock.Step(longestSilence)
		go func() {
			for range 2 * mostSlow {
				time.Sleep(west.webhook / 2)
				b.edit("west", "kubectl", func(*appsv1.Deployment) {})
			}
		}()
		began := time.Now()
		b.mustReconcile()
		if took := time.Since(began); took != mostSlow*west.webhook {
			t.Errorf("one reconcile waited for slow writes for %s, want %s", took, mostSlow*west.webhook)
		}
		if !strings.Contains(b.message(), errBusy.Error()) {
			t.Errorf("the condition says %q", b.message())
		}
	})
}

func TestAWaitForOurOwnLimitsIsNoSlowWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := settled(t)
		west := b.clusters["west"]
		west.webhook = 10 * time.Second // so that the time is over, too
		west.late = fmt.Errorf("a write: %w: %w", kubeconfig.ErrLimited, context.DeadlineExceeded)
		b.edit("home", "kubectl", image("web:2"))
		b.mustReconcile()
		if b.subject.notes.recall(copyID{b.get("home").UID, "west"}).Slow {
			t.Error("a wait for our own limits counts as a slow webhook")
		}
	})
}

func TestFewSlowWritesHoldUpOneTarget(t *testing.T) {
	slow := &turns{}
	for i := range slowWrites + 1 {
		if got := slow.enter("west"); got != (i < slowWrites) {
			t.Errorf("the write %d may begin: %v", i+1, got)
		}
	}
	if !slow.enter("east") {
		t.Error("another target waits")
	}
	slow.leave("west")
	if !slow.enter("west") {
		t.Error("the next write waits for ever")
	}
}

// The time that home takes to confirm a source isn't that of a target.
func TestATargetDoesNotPayForASlowHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // so that what the machine takes doesn't count
		b := settled(t)
		b.restart(func(c *Config) { c.TargetTimeout = 2 * time.Second })
		b.clusters["home"].slow = 2100 * time.Millisecond
		b.subject.identities.keep("home", identity{homeUID, b.clock.Now()})
		b.edit("home", "kubectl", image("web:2"))
		b.mustReconcile()
		for _, name := range []multicluster.ClusterName{"west", "east"} {
			if got := b.image(name); got != "web:2" {
				t.Errorf("%s has %s; condition %q", name, got, b.condition())
			}
		}
	})
}

func TestAWebhookThatChangesWhatWeApplyCostsEverFewerWrites(t *testing.T) {
	for name, mutate := range map[string]func(*appsv1.Deployment){
		"an image":             image("mirror/web:1"),
		"the digest of it":     func(d *appsv1.Deployment) { d.Annotations[AnnotationApplied] = "0" },
		"what it doesn't know": func(d *appsv1.Deployment) { delete(d.Annotations, AnnotationApplied) },
	} {
		t.Run(name, func(t *testing.T) { contest(t, mutate) })
	}
}

// contest has a webhook in west change what is applied there, for a while.
func contest(t *testing.T, mutate func(*appsv1.Deployment)) {
	b := newBench(t, aSource())
	b.clusters["west"].mutate = mutate
	for range 400 { // 20 min
		b.mustReconcile()
		b.clock.Step(3 * time.Second)
		b.rollOut("east")
	}
	applies := b.wrote("apply west")
	if applies < 5 || applies > 14 {
		t.Errorf("%d applies in 20 min", applies)
	}
	b.wantReason("", ReasonContested)
	if text := b.events(); strings.Count(text, ReasonContested) != 1 || strings.Contains(text, ReasonRepaired) {
		t.Errorf("events: %q", text)
	}
	if statuses := b.wrote("status home"); statuses > 4 {
		t.Errorf("%d statuses written", statuses)
	}
	b.clusters["west"].mutate = nil
	b.recovers("without the webhook")
}

func TestRepairsInSeveralClustersAreToldOfEach(t *testing.T) {
	b := settled(t)
	want := []types.UID{b.get("east").UID, b.get("west").UID}
	for _, name := range []multicluster.ClusterName{"west", "east"} {
		b.edit(name, "kubectl", scaled(9))
	}
	b.live()
	slices.Sort(want)
	if got := slices.Sorted(slices.Values(b.recorder.copies)); !slices.Equal(got, want) {
		t.Errorf("events are about the copies %q, want %q", got, want)
	}
}

func TestDriftIsRepairedAndWhatAnAutoscalerSetsIsLeft(t *testing.T) {
	b := settled(t)
	b.edit("west", "kubectl", scaled(9))
	b.edit("east", "kube-controller-manager", scaled(9))
	b.live()
	b.wantShares("repaired, with what the autoscaler set", 3, 9)
	b.change(image("web:2"))
	if east := b.get("east"); *east.Spec.Replicas != 9 || east.Spec.Template.Spec.Containers[0].Image != "web:2" {
		t.Errorf("east: %d of %s", *east.Spec.Replicas, east.Spec.Template.Spec.Containers[0].Image)
	}
	b.wantOneEvent(ReasonRepaired)
	before := b.sent
	b.restart()
	b.live()
	if b.sent != before {
		t.Error("a new process writes though nothing has changed")
	}
}
