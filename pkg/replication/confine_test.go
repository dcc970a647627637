package replication

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/test/must"
)

func open(value string) map[string]string { return map[string]string{LabelTarget: value} }

func makesNoNamespace(c *Config) { c.CreateNamespaces = false }

func serviceAccount(name string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Template.Spec.ServiceAccountName = name }
}

func TestWhatATargetNamespaceLetsIn(t *testing.T) {
	pods := func(change func(*corev1.PodSpec)) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) { change(&d.Spec.Template.Spec) }
	}
	container := func(change func(*corev1.Container)) func(*appsv1.Deployment) {
		return pods(func(p *corev1.PodSpec) { change(&p.Containers[0]) })
	}
	volume := func(source corev1.VolumeSource) func(*appsv1.Deployment) {
		return pods(func(p *corev1.PodSpec) { p.Volumes = append(p.Volumes, corev1.Volume{Name: "v", VolumeSource: source}) })
	}
	security := func(s corev1.SecurityContext) func(*appsv1.Deployment) {
		return container(func(c *corev1.Container) { c.SecurityContext = &s })
	}
	for name, c := range map[string]struct {
		source func(*appsv1.Deployment)
		beyond string // what is named; "" where nothing is
	}{
		"a plain one":                 {func(*appsv1.Deployment) {}, ""},
		"the default service account": {serviceAccount("default"), ""},
		"another service account":     {serviceAccount("admin"), `service account "admin"`},
		"another, in the old field": {pods(func(p *corev1.PodSpec) { p.DeprecatedServiceAccount = "admin" }),
			`service account "admin"`},
		"the host's network": {pods(func(p *corev1.PodSpec) { p.HostNetwork = true }), "hostNetwork"},
		"the host's PIDs":    {pods(func(p *corev1.PodSpec) { p.HostPID = true }), "hostPID"},
		"the host's IPC":     {pods(func(p *corev1.PodSpec) { p.HostIPC = true }), "hostIPC"},
		"the host's files":   {volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}), "hostPath"},
		"an empty folder":    {volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}), ""},
		"privileged":         {security(corev1.SecurityContext{Privileged: new(true)}), "privileged"},
		"not privileged":     {security(corev1.SecurityContext{Privileged: new(false)}), ""},
		"a capability": {security(corev1.SecurityContext{
			Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}},
		}), "SYS_ADMIN"},
		"a usual capability": {security(corev1.SecurityContext{
			Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"CHOWN"}},
		}), ""},
		"another /proc": {security(corev1.SecurityContext{ProcMount: new(corev1.UnmaskedProcMount)}), "procMount"},
		"no seccomp": {security(corev1.SecurityContext{
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined},
		}), "seccompProfile"},
		"a sysctl": {pods(func(p *corev1.PodSpec) {
			p.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}}
		}), "sysctls"},
		"a port of the host": {container(func(c *corev1.Container) { c.Ports[0].HostPort = 80 }), "hostPort"},
		"an init container's": {pods(func(p *corev1.PodSpec) {
			p.InitContainers = []corev1.Container{{Name: "i",
				SecurityContext: &corev1.SecurityContext{Privileged: new(true)}}}
		}), "privileged"},
	} {
		t.Run(name, func(t *testing.T) {
			source := aSource(c.source)
			state, text := space{Label: TargetConfined}.refuses("shop", source)
			if c.beyond == "" && state != stateGone ||
				c.beyond != "" && (state != stateNotAllowed || !strings.Contains(text, c.beyond)) {
				t.Errorf("%v: %q, want it to name %q", state, text, c.beyond)
			}
			if state, text := (space{Label: TargetUnrestricted}).refuses("shop", source); state != stateGone {
				t.Errorf("an unrestricted namespace refuses it: %s", text)
			}
			for _, closed := range []space{{}, {Missing: true}, {Label: "yes"}} {
				if state, text := closed.refuses("shop", source); state != stateNotTarget || !strings.Contains(text, LabelTarget) {
					t.Errorf("%+v: %v %q, want one that names the label", closed, state, text)
				}
			}
		})
	}
}

func TestNothingIsWrittenWhereNobodyOpenedTheNamespace(t *testing.T) {
	for name, c := range map[string]struct {
		labels map[string]string // nil: there is no namespace
		want   string
	}{
		"none is there": {nil, "there is no namespace shop: make it there, with the label " +
			"tenure.dev/replication-target=true"},
		"it has no label": {map[string]string{},
			"namespace shop isn't a target: label it there tenure.dev/replication-target=true"},
		"its label says no": {open("false"),
			`namespace shop isn't a target: its label tenure.dev/replication-target is "false"`},
		"its label is something": {open("TRUE"),
			`namespace shop isn't a target: its label tenure.dev/replication-target is "TRUE", neither true nor unrestricted`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, aSource())
			b.restart(makesNoNamespace)
			b.namespace("east", open(TargetConfined))
			if c.labels != nil {
				b.namespace("west", c.labels)
			}
			b.live()
			b.wantReason("", ReasonNotTarget)
			if copies, message := b.copies(), b.message(); copies != "east" || !strings.Contains(message, "west: "+c.want) {
				t.Errorf("copies in %q, condition: %s", copies, message)
			}
			b.wantOneEvent(ReasonNotTarget)
			if strings.Contains(strings.Join(b.written, ", "), "west") {
				t.Errorf("written: %v", b.written)
			}
			b.namespace("west", open(TargetConfined))
			b.comesBack(0, spaceAgain)
			b.clock.Step(spaceAgain)
			b.live()
			b.wantReason("once it was labelled", ReasonReplicated)
		})
	}
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
	if diff := cmp.Diff(want, ns.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

func TestNoNamespaceIsMadeForPodsThatItWouldNotLetIn(t *testing.T) {
	b := settled(t, serviceAccount("admin"))
	b.wantReason("", ReasonNotAllowed)
	if strings.Contains(strings.Join(b.written, " "), "Namespace") {
		t.Errorf("written %v", b.written)
	}
}

func TestAnOverrideOpensNothing(t *testing.T) {
	b := settled(t, serviceAccount("admin"), annotated(AnnotationOverrides,
		`{"west":{"replicas":1,"images":{"web":"web:2"}}}`))
	b.wantReason("", ReasonNotAllowed)
	b.change(annotated(AnnotationOverrides, `{"west":{"serviceAccountName":"default"}}`))
	b.wantReason("", ReasonInvalidAnnotation)
	if copies := b.copies(); copies != "" {
		t.Errorf("copies in %s", copies)
	}
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
