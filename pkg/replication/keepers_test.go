package replication

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// withoutEast finds all clusters but east, as where the rights to read Deployments are missing.
type withoutEast struct{ *bench }

func (w withoutEast) GetCluster(ctx context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	if name == "east" {
		return nil, multicluster.ErrClusterNotFound
	}
	return w.bench.GetCluster(ctx, name)
}

// eastIsForAts makes east a cluster in which the fleet has no rights to Deployments.
func (b *bench) eastIsForAts() {
	b.atsOnly = "east"
	b.restart(func(c *Config) { c.Clusters = withoutEast{b} })
}

func TestAllClustersAreThoseThatKeepCopies(t *testing.T) {
	b := newBench(t, divided(annotated(AnnotationClusters, "*")))
	b.eastIsForAts()
	b.live()
	b.wantReason("", ReasonReplicated)
	if west := b.get("west"); b.copies() != "west" || b.recorded() != "west" || *west.Spec.Replicas != 10 {
		t.Errorf("copies in %s, recorded in %s; west has %d replicas", b.copies(), b.recorded(), *west.Spec.Replicas)
	}
	b.edit("home", "kubectl", forgotten)
	b.live()
	if b.recorded() != "west" {
		t.Errorf("after the list was lost, copies are recorded in %s", b.recorded())
	}
	b.change(func(d *appsv1.Deployment) { forgotten(d); unlabelled(d) })
	if source := b.get("home"); b.copies() != "" || len(source.Finalizers) > 0 {
		t.Errorf("copies in %s; the source is kept by %v: %s", b.copies(), source.Finalizers, b.message())
	}
}

func TestAClusterThatIsNamedGetsACopyWhateverItIsFor(t *testing.T) {
	b := newBench(t, aSource(annotated(AnnotationClusters, "east")))
	b.atsOnly = "east"
	b.live()
	b.wantReason("", ReasonReplicated)
	b.eastIsForAts()
	for range 10 {
		b.mustReconcile()
		b.clock.Step(3 * time.Second)
	}
	b.wantReason("", ReasonAway)
	if !strings.Contains(b.message(), "may its Deployments be listed and watched?") {
		t.Errorf("the condition says %q", b.message())
	}
}

// What a cluster is for isn't known before it was looked at: a copy there is kept, and none is made.
func TestAClusterThatWasNotLookedAtYetIsATargetOnlyIfItMayHaveACopy(t *testing.T) {
	b := newBench(t, aSource(annotated(AnnotationClusters, "*")))
	b.unlooked = "east"
	b.live()
	if b.copies() != "west" || b.recorded() != "west" {
		t.Errorf("copies in %s, recorded in %s", b.copies(), b.recorded())
	}
	b.unlooked = ""
	b.live()
	b.unlooked = "east"
	b.edit("home", "kubectl", image("web:2"))
	b.live()
	b.wantReason("", ReasonReplicated)
	if b.copies() != "east,west" || b.get("east").Spec.Template.Spec.Containers[0].Image != "web:2" {
		t.Errorf("copies in %s: %s", b.copies(), b.message())
	}
}

func unlooked(b *bench) { b.unlooked = "east" }

// As one that was just added, when the list of copies is lost.
func TestAClusterThatWasNotLookedAtYetIsAskedForItsCopyOnceItWas(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*bench)
		change func(*appsv1.Deployment)
		never  bool
		copies string
	}{
		"the label is lost too": {unlooked, unlabelled, false, ""},
		"a target less":         {unlooked, annotated(AnnotationClusters, "west"), false, "west"},
		"it never is":           {unlooked, annotated(AnnotationClusters, "west"), true, "east,west"},
		"for the second time": {func(b *bench) {
			unlooked(b)
			b.edit("home", "kubectl", forgotten)
			b.mustReconcile()
			b.unlooked = ""
			b.live()
			unlooked(b)
		}, annotated(AnnotationClusters, "west"), false, "west"},
		"after a start it isn't listed": {func(b *bench) { b.restart(); b.hidden = "east" },
			annotated(AnnotationClusters, "west"), false, "west"},
	} {
		t.Run(name, func(t *testing.T) {
			b := settled(t)
			c.before(b)
			b.edit("home", "kubectl", func(d *appsv1.Deployment) { forgotten(d); c.change(d) })
			b.comesBack(connectGrace, connectGrace)
			b.clock.Step(connectGrace)
			if !c.never {
				b.unlooked, b.hidden = "", ""
			}
			b.live()
			if source := b.get("home"); b.copies() != c.copies || b.recorded() != strings.TrimPrefix(c.copies, "east,") {
				t.Errorf("copies in %s, want %s; the source has %v", b.copies(), c.copies, source.Annotations)
			}
		})
	}
}

// A source's own cluster may never be looked at.
func TestALostListIsMadeAgainWithoutAskingTheSourcesOwnCluster(t *testing.T) {
	b := settled(t)
	b.unlooked = "home"
	b.edit("home", "kubectl", forgotten)
	if b.mustReconcile(); b.recorded() != "east,west" {
		t.Errorf("copies are recorded in %q", b.recorded())
	}
}

// Its cache is never filled without rights, and each look into it waits.
func TestACacheOfAClusterThatKeepsNoCopiesIsNotLookedInto(t *testing.T) {
	b := newBench(t, aSource(annotated(AnnotationClusters, "*")))
	b.atsOnly = "east"
	looked := &counting{bench: b}
	b.restart(func(c *Config) { c.Clusters = looked })
	b.live()
	b.wantReason("", ReasonReplicated)
	if looked.east > 0 {
		t.Errorf("east was looked into %d times", looked.east)
	}
}

// counting counts how often east is asked for.
type counting struct {
	*bench
	east int
}

func (c *counting) GetCluster(ctx context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	if name == "east" {
		c.east++
	}
	return c.bench.GetCluster(ctx, name)
}

// A mistaken --role must cost no copies.
func TestACopyStaysWhereNoneAreKeptAnyMore(t *testing.T) {
	b := newBench(t, divided(annotated(AnnotationClusters, "*")))
	b.live()
	uid := b.get("east").UID
	b.atsOnly = "east"
	b.written = nil
	b.live()
	b.wantReason("", ReasonReplicated)
	if b.recorded() != "east,west" || !strings.Contains(b.message(), "east: "+copyStays) {
		t.Errorf("copies are recorded in %s; the condition says %q", b.recorded(), b.message())
	}
	b.clock.Step(6 * time.Minute)
	b.live()
	if got := *b.get("west").Spec.Replicas; got != 10 {
		t.Errorf("after the grace west has %d of 10 replicas", got)
	}
	b.atsOnly = ""
	b.live()
	if slices.Contains(b.written, "delete east") || b.get("east").UID != uid || *b.get("west").Spec.Replicas != 5 {
		t.Errorf("written %v; west has %d of 10 replicas", b.written, *b.get("west").Spec.Replicas)
	}
}

// Whether it has a copy can't be found out there.
func TestASourceSaysHowToLetGoOfAClusterThatKeepsNoCopies(t *testing.T) {
	b := settled(t)
	b.eastIsForAts()
	b.delete("home")
	for range 10 {
		b.mustReconcile()
		b.clock.Step(3 * time.Second)
	}
	b.wantReason("", ReasonCleaningUp)
	if b.recorded() != "east" || !strings.Contains(b.message(), goneOrNot) {
		t.Errorf("copies are recorded in %s; the condition says %q", b.recorded(), b.message())
	}
	b.edit("home", "kubectl", func(d *appsv1.Deployment) { d.Annotations[AnnotationCopies] = "" })
	b.live()
	if b.get("home") != nil {
		t.Errorf("the source is still there: %s", b.message())
	}
}
