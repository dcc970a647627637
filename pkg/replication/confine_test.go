package replication

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

func open(value string) map[string]string { return map[string]string{LabelTarget: value} }

func makesNoNamespace(c *Config) { c.CreateNamespaces = false }

func TestNothingIsWrittenUntilTheNamespaceIsOpen(t *testing.T) {
	b := newBench(t, aSource())
	b.restart(makesNoNamespace)
	b.namespace("east", open(TargetConfined))
	b.namespace("west", nil)
	b.live()
	b.wantReason("", ReasonNotTarget)
	if copies := b.copies(); copies != "east" {
		t.Errorf("copies in %q", copies)
	}
	b.wantOneEvent(ReasonNotTarget)
	b.namespace("west", open(TargetConfined))
	b.comesBack(0, spaceAgain)
	b.clock.Step(spaceAgain)
	b.live()
	b.wantReason("once it was labelled", ReasonReplicated)
}

func TestANamespaceThatIsClosedAgainKeepsItsCopyAsItIs(t *testing.T) {
	b := newBench(t, aSource())
	b.restart(makesNoNamespace)
	b.namespace("west", open(TargetConfined))
	b.namespace("east", open(TargetConfined))
	b.live()
	b.namespace("west", nil)
	b.clock.Step(spaceLife)
	before := b.get("west")
	b.change(image("web:2"))
	if diff := cmp.Diff(before, b.get("west")); diff != "" || b.image("east") != "web:2" {
		t.Errorf("the copy has changed, or the other hasn't (-before +after):\n%s", diff)
	}
	b.wantReason("", ReasonNotTarget)
	b.delete("home")
	b.live()
	if b.get("west") != nil || b.get("home") != nil {
		t.Errorf("the source was deleted: copy left %v, source left %v", b.get("west") != nil, b.get("home") != nil)
	}
}

func TestANamespaceIsMadeAsConfinedAsTheSources(t *testing.T) {
	b := settled(t)
	ns := &corev1.Namespace{}
	must.Succeed(t, b.clusters["west"].client.Get(t.Context(), client.ObjectKey{Name: key.Namespace}, ns))
	want := map[string]string{LabelTarget: TargetConfined, podSecurityPrefix + "enforce": "baseline"}
	expect.Equal(t, "labels", want, ns.Labels)
}

func TestNothingIsCopiedFromOrToAForbiddenNamespace(t *testing.T) {
	for name, patterns := range map[string][]string{"by name": {"tenure-system", "shop"}, "by its beginning": {"sh*"}} {
		t.Run(name, func(t *testing.T) {
			b := settled(t) // before it was forbidden
			b.restart(func(c *Config) { c.ForbiddenNamespaces = patterns })
			b.edit("home", "kubectl", image("web:2"))
			b.edit("west", "kubectl", image("evil"))
			b.written = nil
			b.live()
			b.wantReason("", ReasonForbidden)
			b.wantWritten("status home")
			b.wantOneEvent(ReasonForbidden)
			b.change(unlabelled)
			if b.copies() != "" || b.condition() != "" {
				t.Errorf("label removed: copies in %q, condition %s", b.copies(), b.condition())
			}
		})
	}
}

func TestForbiddenNamespaces(t *testing.T) {
	c := Config{ForbiddenNamespaces: []string{"tenure-system", "infra-*"}}.withDefaults()
	for namespace, want := range map[string]bool{
		"kube-system": true, "kube-public": true, "kube-": true, "kube": false, "kubernetes": false,
		"tenure-system": true, "tenure-system-2": false, "infra-net": true, "infra": false, "default": false,
	} {
		if got := forbids(c.ForbiddenNamespaces, namespace); got != want {
			t.Errorf("%s: %v, want %v", namespace, got, want)
		}
	}
	for _, good := range []string{"a", "a*", "a-*", "kube-system"} {
		if err := ValidateForbidden([]string{good}); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "A", "a.b", "*a", "a*b", "-*", "*", "a b", "a**"} {
		if err := ValidateForbidden([]string{bad}); err == nil || !strings.Contains(err.Error(), `"`+bad+`"`) {
			t.Errorf("%q: %v, want an error that names it", bad, err)
		}
	}
}

func TestWhatWasSeenOfNamespacesIsForgotten(t *testing.T) {
	var s spaces
	s.keep(spaceID{"west", nil, "shop"}, space{Label: TargetConfined}, epoch)
	there, known := s.recall(spaceID{"west", nil, "shop"}, epoch.Add(spaceLife-1))
	if !known || there.Label != TargetConfined {
		t.Errorf("%v %v, want what was kept", there, known)
	}
	for after, want := range map[time.Duration]time.Duration{0: spaceLife, 20 * time.Second: 20 * time.Second,
		time.Hour: spaceAgain} {
		if seen := s.keep(spaceID{"west", nil, "shop"}, space{Label: TargetConfined},
			epoch.Add(after)); seen.again(epoch.Add(after)) != want {
			t.Errorf("the same after %s: to be looked at again after %s, want %s", after, seen.again(epoch.Add(after)), want)
		}
	}
	s = spaces{}
	s.keep(spaceID{"west", nil, "shop"}, space{Label: TargetConfined}, epoch)
	if _, known := s.recall(spaceID{"west", nil, "shop"}, epoch.Add(spaceLife)); known {
		t.Errorf("it is believed for longer than %s", spaceLife)
	}
	for i := range 1000 {
		s.keep(spaceID{"west", nil, fmt.Sprint(i)}, space{}, epoch)
	}
	s.keep(spaceID{"west", nil, "shop"}, space{}, epoch.Add(noteLife))
	if n := len(s.known); n != 1 {
		t.Errorf("%d namespaces are remembered, want 1", n)
	}
}
