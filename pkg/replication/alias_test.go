package replication

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// also gives west a second name, under which the same objects are found. known is whether it is known to be a second
// name.
func (b *bench) also(name multicluster.ClusterName, known bool) {
	b.clusters[name] = b.clusters["west"]
	if known {
		b.aliases = map[multicluster.ClusterName]multicluster.ClusterName{name: "west"}
	}
}

func TestAClusterOfTwoNamesIsOneTarget(t *testing.T) {
	for name, c := range map[string]struct {
		source *appsv1.Deployment
		copies string
		west   int32
		east   bool
	}{
		"all":               {divided(annotated(AnnotationClusters, "*")), "east,west", 5, true},
		"by its own name":   {divided(annotated(AnnotationClusters, "west")), "west", 10, false},
		"by its other name": {divided(annotated(AnnotationClusters, "also")), "also", 10, false},
		"by both":           {divided(annotated(AnnotationClusters, "also,west")), "west", 10, false},
		"weight by its other name": {divided(annotated(AnnotationClusters, "*"), annotated(AnnotationWeights, "also=4")),
			"east,west", 8, true},
		"weights by both names": {divided(annotated(AnnotationClusters, "*"), annotated(AnnotationWeights, "also=9,west=4")),
			"east,west", 8, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.source)
			b.also("also", true)
			b.live()
			if west := b.get("west"); west == nil || *west.Spec.Replicas != c.west || (b.get("east") != nil) != c.east {
				t.Errorf("west has %+v, east %+v", west, b.get("east"))
			}
			if got := b.recorded(); got != c.copies {
				t.Errorf("copies in %q, want %q", got, c.copies)
			}
			b.wantReason("", ReasonReplicated)
			b.edit("home", "user", unlabelled)
			b.live()
			if b.get("west") != nil || b.recorded() != "" {
				t.Errorf("afterwards there is a copy, or the record names %q", b.recorded())
			}
		})
	}
}

// A second Secret comes for a cluster that has a copy, or the first goes.
func TestACopyStaysWhenItsClusterGetsAnotherName(t *testing.T) {
	for _, wish := range []string{"*", "west", "also"} {
		t.Run(wish, func(t *testing.T) {
			b := newBench(t, aSource(annotated(AnnotationClusters, wish)))
			if wish == "also" { // west is the later one
				b.also("also", false)
				b.hidden = "west"
			}
			b.live()
			b.hidden = ""
			uid, written := b.get("west").UID, len(b.written)
			b.also("also", true)
			b.live()
			if west := b.get("west"); west == nil || west.UID != uid || slices.Contains(b.written[written:], "delete west") {
				t.Errorf("the copy is %v; written %v", west, b.written[written:])
			}
			if want := strings.Replace(wish, "*", "east,west", 1); b.recorded() != want {
				t.Errorf("the record has %s, want %s", b.recorded(), want)
			}
		})
	}
}

// As before the second name is identified, for a cluster that doesn't say which it is, and without sharding.
func TestACopyIsNotDeletedByANameThatNobodyKnowsToBeItsClusters(t *testing.T) {
	for name, lost := range map[string]func(*appsv1.Deployment){"": func(*appsv1.Deployment) {}, "no list": forgotten} {
		t.Run(name, func(t *testing.T) { testCopyOfTwoNames(t, lost) })
	}
}

// testCopyOfTwoNames changes the source meanwhile, in a reconcile that leaves the second name out.
func testCopyOfTwoNames(t *testing.T, meanwhile func(source *appsv1.Deployment)) {
	for what, first := range map[string]func(*bench){ // what becomes of the first name, at which it is wanted
		"nothing":     func(*bench) {},
		"its cache":   func(b *bench) { b.clusters["west"].freeze() },
		"its Secret":  func(b *bench) { b.down["west"] = b.clock.Now() },
		"it is awful": func(b *bench) { b.clusters["west"].frozen.Store(true) },
		"its name":    func(b *bench) { delete(b.clusters, "west") },
		"another target can't be read": func(b *bench) {
			b.edit("home", "kubectl", annotated(AnnotationClusters, "future,west"))
		},
	} {
		b := newBench(t, aSource(annotated(AnnotationClusters, "west")))
		west := b.clusters["west"]
		if what == "its cache" {
			first(b) // it shows nothing yet
		} else {
			b.live()
			first(b)
		}
		b.clusters["also"] = b.newCluster("also")
		b.clusters["also"].client = west.client
		for i := range 10 {
			b.putOff = nil
			if i == 4 { // after connectGrace
				b.edit("home", "kubectl", meanwhile)
				b.putOff = func(name multicluster.ClusterName) (time.Duration, bool) {
					return map[multicluster.ClusterName]time.Duration{"also": time.Second}[name], false
				}
			}
			_, _ = b.reconcile()
			b.clock.Step(3 * time.Second)
		}
		if b.get("also") == nil || slices.Contains(b.written, "delete west") {
			t.Errorf("%s: the copy is gone; written %v", what, b.written)
		}
		if got := b.recorded(); strings.Contains(got, string(guess)) != (what == "its name") { // then west can't be read
			t.Errorf("%s: the list is %s", what, got)
		}
	}
}

// West's cache is of before the copy was made at its other name, which nobody knows to be of the same cluster.
func TestAnOldCacheLetsNoStrayBeDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		down, older bool
		list        string
	}{
		"down, and the cache is empty": {true, false, "?,also,west"},
		"down, and the cache is older": {true, true, "?,also,west"},
		"the cache is older":           {false, true, "west"},
	} {
		t.Run(name, func(t *testing.T) {
			b, west := copiedToWestAsAlso(t)
			uid := b.get("also").UID
			if west.stale = true; c.older {
				west.freeze()
				west.shown.UID = "older"
			}
			if c.down {
				b.down["west"] = b.clock.Now()
			}
			b.change(func(d *appsv1.Deployment) { forgotten(d); d.Annotations[AnnotationClusters] = "west" })
			if copy := b.get("also"); copy == nil || copy.UID != uid || b.recorded() != c.list {
				t.Errorf("the copy is %v, the list %s, want %s; written %v", copy, b.recorded(), c.list, b.written)
			}
			delete(b.down, "west")
			west.stale = false
			b.clock.Step(unknownAgain)
			b.live()
			if b.get("also").UID != uid || b.recorded() != "west" {
				t.Errorf("west can be read again: the list is %s; written %v", b.recorded(), b.written)
			}
		})
	}
}

// A replica that starts is connected to the cluster by one of its names only, and somebody replaces that by the other.
func TestACopyIsNotDeletedWhileTheNameAtWhichItIsWantedMayStillConnect(t *testing.T) {
	b := newBench(t, aSource(annotated(AnnotationClusters, "also")))
	b.also("also", true)
	b.live()
	uid, west, aliases := b.get("also").UID, b.clusters["west"], b.aliases
	b.restart()
	delete(b.clusters, "west")
	b.aliases = nil
	b.edit("home", "kubectl", annotated(AnnotationClusters, "west"))
	b.comesBack(time.Second, connectGrace)
	b.wantReason("nothing is shown of the start", ReasonReplicated)
	b.clusters["west"], b.aliases = west, aliases
	b.live()
	if copy := b.get("west"); copy == nil || copy.UID != uid || b.recorded() != "west" {
		t.Errorf("the copy is %v, the list %s; written %v", copy, b.recorded(), b.written)
	}
}

func TestAnOldCacheLetsNoCopyBeDeletedWhileClustersMayStillConnect(t *testing.T) {
	b, west := copiedToWestAsAlso(t)
	uid := b.get("also").UID
	west.stale, b.down["west"] = true, b.clock.Now()
	b.restart()
	b.edit("home", "kubectl", annotated(AnnotationClusters, "west"))
	b.comesBack(time.Second, connectGrace)
	if copy := b.get("also"); copy == nil || copy.UID != uid {
		t.Errorf("the copy is %v; written %v", copy, b.written)
	}
}

// Two Secrets lead to one cluster, and somebody removes one of them.
func TestACopyIsNotDeletedWhenOneOfItsClustersNamesGoes(t *testing.T) {
	b := newBench(t, aSource(annotated(AnnotationClusters, "west")))
	b.clusters["also"] = b.clusters["west"]
	b.aliases = map[multicluster.ClusterName]multicluster.ClusterName{"west": "also"}
	b.live()
	b.aliases = nil
	delete(b.clusters, "west")
	b.live()
	if b.get("also") == nil || slices.Contains(b.written, "delete west") {
		t.Errorf("the copy is gone; written %v", b.written)
	}
	b.change(unlabelled)
	if b.get("also") != nil || b.recorded() != "?,west" {
		t.Errorf("not wanted any more: copies in %s, recorded in %s", b.copies(), b.recorded())
	}
}

func TestACopyIsTakenOverWhenItsSourceNamesItsClusterAnew(t *testing.T) {
	b := newBench(t, aSource(annotated(AnnotationClusters, "west")))
	b.live()
	b.clusters["frankfurt"] = b.newCluster("frankfurt")
	b.clusters["frankfurt"].client = b.clusters["west"].client
	delete(b.clusters, "west")
	uid := b.get("frankfurt").UID
	b.live()
	b.change(annotated(AnnotationClusters, "frankfurt"))
	b.live()
	if copy := b.get("frankfurt"); copy == nil || copy.UID != uid {
		t.Errorf("the copy is %v, want the one of before (%s); written %v", copy, uid, b.written)
	}
	if !strings.Contains(b.recorded(), "frankfurt") {
		t.Errorf("the record has %q", b.recorded())
	}
}

// A second Secret leads to the source's own cluster. It is found out only when that is in the record.
func TestASourcesOwnClusterIsNoTargetUnderAnotherName(t *testing.T) {
	b := newBench(t, aSource(annotated(AnnotationClusters, "*")))
	b.clusters["also"] = b.clusters["home"]
	b.live()
	if b.recorded() != "also,east,west" {
		t.Fatalf("the record is %q", b.recorded())
	}
	b.aliases = map[multicluster.ClusterName]multicluster.ClusterName{"also": "home"}
	b.live()
	b.wantReason("", ReasonReplicated)
	if got := b.recorded(); got != "east,west" {
		t.Errorf("copies in %q", got)
	}
	b.delete("home")
	b.live()
	if source := b.get("home"); source != nil {
		t.Errorf("the source is kept by %v, copies in %q", source.Finalizers, source.Annotations[AnnotationCopies])
	}
}

func TestWhatIsSaidOfAClusterByItsOwnNameTakesPrecedence(t *testing.T) {
	aliases := map[multicluster.ClusterName]multicluster.ClusterName{"b": "a", "c": "a"}
	for _, c := range []struct {
		said, want map[multicluster.ClusterName]int64
	}{
		{nil, nil},
		{map[multicluster.ClusterName]int64{"d": 1}, map[multicluster.ClusterName]int64{"d": 1}},
		{map[multicluster.ClusterName]int64{"c": 3, "b": 2}, map[multicluster.ClusterName]int64{"a": 2}},
		{map[multicluster.ClusterName]int64{"c": 3, "b": 2, "a": 1}, map[multicluster.ClusterName]int64{"a": 1}},
	} {
		if got := renameKeys(c.said, aliases); !maps.Equal(got, c.want) {
			t.Errorf("%v: got %v, want %v", c.said, got, c.want)
		}
	}
}

// copiedToWestAsAlso returns a bench whose source is copied to west, by another name of that.
func copiedToWestAsAlso(t *testing.T) (*bench, *fakeCluster) {
	t.Helper()
	b := newBench(t, aSource(annotated(AnnotationClusters, "also")))
	b.clusters["also"] = b.newCluster("also")
	b.clusters["also"].client = b.clusters["west"].client
	b.live()
	return b, b.clusters["west"]
}
