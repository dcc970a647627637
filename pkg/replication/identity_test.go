package replication

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// beside is another fleet, whose home has the same name, a Deployment of the same name, and the same targets.
func (b *bench) beside() *bench {
	other := newBench(b.T, aSource(image("staging:1"), func(d *appsv1.Deployment) { d.UID = "uid-of-its-web" }))
	other.identify("uid-of-its-home")
	for _, name := range []multicluster.ClusterName{"west", "east"} {
		other.clusters[name] = b.clusters[name]
	}
	return other
}

func unidentified(d *appsv1.Deployment) { delete(d.Annotations, AnnotationSourceCluster) }

func TestTwoHomesOfOneNameLeaveEachOthersCopiesAlone(t *testing.T) {
	b := settled(t)
	before := b.get("west")
	other := b.beside()
	other.live()
	other.wantReason("", ReasonForeign)
	if message := other.message(); !strings.Contains(message, "copy of home/shop/web") ||
		!strings.Contains(message, string(homeUID)) || !strings.Contains(message, AnnotationSourceCluster) {
		t.Errorf("%s: want it to name the copy, its cluster and the way out", message)
	}
	other.wantOneEvent(ReasonForeign)
	other.delete("home")
	other.live()
	if other.get("home") != nil {
		t.Error("the other source isn't let go")
	}
	expect.Equal(t, "the other fleet has changed the copy", before, b.get("west"))
	sent := b.sent
	b.live()
	b.wantReason("as before", ReasonReplicated)
	if b.sent != sent {
		t.Errorf("%d writes, want none", b.sent-sent)
	}
}

func TestACopyIsHandedOverByRemovingTheAnnotationOfItsCluster(t *testing.T) {
	b := settled(t)
	other := b.beside()
	other.live()
	for _, name := range []multicluster.ClusterName{"west", "east"} {
		b.edit(name, "kubectl", unidentified)
	}
	other.live()
	other.wantReason("taken over", ReasonReplicated)
	b.live()
	b.wantReason("given away", ReasonForeign)
}

func TestACopyIsItsSourcesWhateverItsAnnotationSays(t *testing.T) {
	for what, happens := range map[string]func(*bench){
		"the source's cluster had another name": func(b *bench) {
			b.edit("west", FieldManager, func(d *appsv1.Deployment) {
				d.Annotations[AnnotationSource] = "frankfurt/shop/web"
				d.Annotations[AnnotationApplied] = "by that name"
			})
			b.restart()
		},
		"somebody has changed it": func(b *bench) {
			b.edit("west", "kubectl-edit", func(d *appsv1.Deployment) {
				d.Annotations[AnnotationSource] = "x"
				d.Spec.Template.Spec.Containers[0].Image = "web:evil"
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			b := settled(t)
			uid := b.get("west").UID
			happens(b)
			b.live()
			b.wantReason("", ReasonReplicated)
			if copy := b.get("west"); copy.UID != uid || copy.Annotations[AnnotationSource] != "home/shop/web" ||
				b.image("west") != "web:1" {
				t.Errorf("the copy is of %s and has %s", copy.Annotations[AnnotationSource], b.image("west"))
			}
			happens(b)
			b.change(unlabelled)
			if b.copies() != "" || b.recorded() != "" {
				t.Errorf("copies are left in %s, recorded in %s", b.copies(), b.recorded())
			}
		})
	}
}

// Whoever makes a Deployment of a copy's file may keep its annotations, and even its managed fields.
func TestADeploymentMadeOfACopysFileIsNobodysCopy(t *testing.T) {
	for what, differs := range map[string]func(*appsv1.Deployment){
		"that of another source": func(d *appsv1.Deployment) { d.Annotations[AnnotationOwnerUID] = "uid-of-another" },
		"without managed fields": func(d *appsv1.Deployment) { d.ManagedFields = nil },
		"that of another home":   func(d *appsv1.Deployment) { d.Annotations[AnnotationSourceCluster] = "uid-of-another" },
	} {
		b := settled(t)
		made := b.get("west")
		b.delete("west")
		made.ResourceVersion, made.UID, made.Annotations[AnnotationSource] = "", "uid-of-made", "home/shop/api"
		differs(made)
		must.Succeed(t, b.clusters["west"].client.Create(t.Context(), made))
		b.live()
		if b.condition() != "False "+ReasonForeign || b.get("west").Annotations[AnnotationSource] != "home/shop/api" {
			t.Errorf("%s: condition %q: %s", what, b.condition(), b.message())
		}
	}
}

// Earlier versions made copies that don't say of which cluster.
func TestACopyOfAnEarlierVersionGetsItsClusterInOneWrite(t *testing.T) {
	b := settled(t)
	before := b.get("west")
	for _, name := range []multicluster.ClusterName{"west", "east"} {
		b.edit(name, FieldManager, func(d *appsv1.Deployment) {
			unidentified(d)
			d.Annotations[AnnotationApplied] = "of an earlier version"
		})
	}
	b.events()
	b.written = nil
	b.restart()
	b.live()
	applies := b.wrote("apply ")
	if diff := cmp.Diff(sideOf(before), sideOf(b.get("west"))); diff != "" || applies != 2 {
		t.Errorf("%d applies, want one each; the copy (-want +got):\n%s", applies, diff)
	}
	if text := b.events(); strings.Contains(text, ReasonRepaired) {
		t.Errorf("events %q: nobody has changed a copy", text)
	}
}

func TestAClusterOfSourcesThatIsRebuiltIsAnotherOne(t *testing.T) {
	b := settled(t)
	b.identify("uid-of-the-new-one")
	b.clock.Step(identityLife)
	b.live()
	b.wantReason("", ReasonForeign)
}

// While it is being rebuilt it doesn't answer, and that isn't a reason to go on by what it was.
func TestAClusterOfSourcesThatWasAwayIsAskedSoonWhichItIs(t *testing.T) {
	b := settled(t)
	b.clusters["home"].refuses = errors.New("no route")
	b.clock.Step(identityLife)
	b.mustReconcile()
	b.clusters["home"].refuses = nil
	b.identify("uid-of-the-new-one")
	b.clock.Step(identityAgain)
	b.change(image("web:2"))
	b.wantReason("", ReasonForeign)
	if image := b.image("west"); image != "web:1" {
		t.Errorf("the copy of the old one has %s", image)
	}
}

// An ingress that reloads says 404 of everything.
func TestAClusterOfSourcesIsIdentifiedByNo404OfAnIngress(t *testing.T) {
	for when, begin := range map[string]func() *bench{
		"at first": func() *bench { return newBench(t, aSource()) },
		"later":    func() *bench { return settled(t) },
	} {
		b := begin()
		b.clusters["home"].refuses = apierrors.NewGenericServerResponse(http.StatusNotFound, "get",
			corev1.Resource("namespaces"), "kube-system", "404 page not found", 0, true)
		b.clock.Step(identityLife)
		_, _ = b.reconcile()
		b.clusters["home"].refuses = nil
		b.change(image("web:2"))
		b.wantReason(when, ReasonReplicated)
		if got := b.get("west").Annotations[AnnotationSourceCluster]; got != string(homeUID) {
			t.Errorf("%s: the copy is of cluster %q", when, got)
		}
	}
}

func TestWhichClusterItIsMustBeKnownOnceAndIsRememberedThen(t *testing.T) {
	b := newBench(t, aSource())
	b.clusters["home"].refuses = errors.New("no route")
	if _, err := b.reconcile(); err == nil || !strings.Contains(err.Error(), "kube-system") {
		t.Errorf("error %v, want it to name what can't be read", err)
	}
	if b.get("west") != nil {
		t.Error("a copy was made that doesn't say of which cluster")
	}
	b.clusters["home"].refuses = nil
	b.live()
	b.clusters["home"].refuses = errors.New("no route")
	b.clock.Step(identityLife)
	b.mustReconcile() // nothing is left to do, and nothing has to be asked
	b.wantReason("", ReasonReplicated)
}
