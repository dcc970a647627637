package at

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/expect"
)

func named(name string) func(*cnatv1alpha1.At) {
	return func(at *cnatv1alpha1.At) { at.Name = name }
}

func TestPodNamesStayThemselves(t *testing.T) {
	// The name is how a later version finds the Pod that an earlier one made.
	for name, want := range map[string]string{
		"example-at":                      "example-at-2a000cbbed",
		"a.b":                             "a-b-2a000cbbed",
		strings.Repeat("x", 253):          strings.Repeat("x", 52) + "-2a000cbbed",
		strings.Repeat("x", 51) + ".yyyy": strings.Repeat("x", 51) + "-2a000cbbed",
	} {
		if got := PodName(anAt(named(name))); got != want {
			t.Errorf("PodName(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestPodNameIsADNSLabelForEveryAtName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?){0,7}`).Draw(t,
			"name")
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			t.Fatalf("the generator made %q, which isn't an At's name", name)
		}
		pod := newPod(anAt(named(name)), RestrictedPods())
		if problems := validation.IsDNS1123Label(pod.Name); len(problems) > 0 {
			t.Errorf("Pod name %q of At %q: %v", pod.Name, name, problems)
		}
		if problems := validation.IsValidLabelValue(pod.Labels[LabelAt]); len(problems) > 0 {
			t.Errorf("label %q of At %q: %v", pod.Labels[LabelAt], name, problems)
		}
	})
}

func TestARecreatedAtHasAnotherPodName(t *testing.T) {
	again := anAt(func(at *cnatv1alpha1.At) { at.UID = otherUID })
	if PodName(anAt()) == PodName(again) {
		t.Errorf("both are called %s", PodName(again))
	}
	if isOurs(aPod(), again) {
		t.Error("the Pod of the old At counts as the new one's")
	}
	if !isOurs(aPod(), anAt()) {
		t.Error("a Pod doesn't belong to the At it was made for")
	}
}

func TestAnOwnerThatIsNotTheControllerDoesNotMakeThePodOurs(t *testing.T) {
	pod := aPod(func(pod *corev1.Pod) { pod.OwnerReferences[0].Controller = nil })
	if isOurs(pod, anAt()) {
		t.Error("a plain owner reference counts as ours")
	}
}

// A kubelet makes $$ one $, and replaces $(NAME) if the container has a variable of that name.
func TestAShellGetsTheCommandAsItStandsInTheAt(t *testing.T) {
	for command, want := range map[string]string{
		"f=/tmp/out.$$; mv $f /data": "f=/tmp/out.$$$$; mv $$f /data", "echo $(DB_PORT)": "echo $$(DB_PORT)", "ls $": "ls $$",
	} {
		pod := newPod(anAt(func(at *cnatv1alpha1.At) { at.Spec.Command = command }), RestrictedPods())
		if got := pod.Spec.Containers[0].Command[2]; got != want {
			t.Errorf("%s: the Pod has %s, want %s", command, got, want)
		}
	}
}

func TestThePodRunsTheCommandInAShellOnce(t *testing.T) {
	pod := newPod(anAt(func(at *cnatv1alpha1.At) {
		at.Labels = map[string]string{"team": "x", CopiedPrefix + "fail": "true"}
		at.Annotations = map[string]string{"note": "y", CopiedPrefix + "duration": "2s"}
	}), RestrictedPods())
	expect.Equal(t, "command", []string{"/bin/sh", "-c", "echo hello world!"}, pod.Spec.Containers[0].Command)
	if pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("restart policy = %s", pod.Spec.RestartPolicy)
	}
	expect.Equal(t, "labels", map[string]string{LabelAt: "example-at", CopiedPrefix + "fail": "true"}, pod.Labels)
	expect.Equal(t, "annotations", map[string]string{CopiedPrefix + "duration": "2s"}, pod.Annotations)
	owner := pod.OwnerReferences[0]
	if owner.UID != types.UID(testUID) || !*owner.Controller || *owner.BlockOwnerDeletion {
		t.Errorf("owner = %v", owner)
	}
}
