package at

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
)

func list(pairs ...string) corev1.ResourceList {
	all := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		all[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return all
}

func TestDefaultResourcesNeverContradictTheAt(t *testing.T) {
	defaults := PodDefaults{Requests: list("cpu", "10m", "memory", "16Mi"), Limits: list("cpu", "1", "memory", "256Mi")}
	for name, c := range map[string]struct{ asked, want cnatv1alpha1.AtResources }{
		"nothing is said": {want: cnatv1alpha1.AtResources{Requests: defaults.Requests, Limits: defaults.Limits}},
		"a large request raises the limit": {
			asked: cnatv1alpha1.AtResources{Requests: list("memory", "1Gi")},
			want: cnatv1alpha1.AtResources{Requests: list("cpu", "10m", "memory", "1Gi"),
				Limits: list("cpu", "1", "memory", "1Gi")},
		},
		"a small limit lowers the request": {
			asked: cnatv1alpha1.AtResources{Limits: list("cpu", "5m")},
			want: cnatv1alpha1.AtResources{Requests: list("cpu", "5m", "memory", "16Mi"),
				Limits: list("cpu", "5m", "memory", "256Mi")},
		},
		"another resource is added": {
			asked: cnatv1alpha1.AtResources{Limits: list("nvidia.com/gpu", "1")},
			want: cnatv1alpha1.AtResources{Requests: defaults.Requests,
				Limits: list("cpu", "1", "memory", "256Mi", "nvidia.com/gpu", "1")},
		},
	} {
		got := defaults.resources(&cnatv1alpha1.AtSpec{Resources: &c.asked})
		want := corev1.ResourceRequirements{Requests: c.want.Requests, Limits: c.want.Limits}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := (PodDefaults{}).resources(&cnatv1alpha1.AtSpec{}); got.Requests != nil || got.Limits != nil {
		t.Errorf("without defaults: %v", got)
	}
}

func TestAnAtDecidesFieldByFieldOverItsPod(t *testing.T) {
	at := anAt(func(at *cnatv1alpha1.At) {
		at.Spec.ServiceAccountName, at.Spec.AutomountServiceAccountToken = "backup", true
		at.Spec.ActiveDeadlineSeconds = ptr.To(int64(5))
		at.Spec.SecurityContext = &cnatv1alpha1.AtSecurityContext{
			RunAsUser: ptr.To(int64(0)), RunAsNonRoot: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
			Capabilities: &cnatv1alpha1.AtCapabilities{Add: []string{"NET_BIND_SERVICE"}, Drop: []string{"ALL"}},
			SeccompProfile: &cnatv1alpha1.AtSeccompProfile{Type: corev1.SeccompProfileTypeLocalhost,
				LocalhostProfile: ptr.To("x.json")},
		}
	})
	defaults := RestrictedPods()
	defaults.ServiceAccountName, defaults.ActiveDeadline = "everyone", time.Minute
	spec := newPod(at, defaults).Spec
	if spec.ServiceAccountName != "backup" || !*spec.AutomountServiceAccountToken || *spec.ActiveDeadlineSeconds != 5 {
		t.Errorf("account %q, token %v, deadline %v", spec.ServiceAccountName, *spec.AutomountServiceAccountToken,
			*spec.ActiveDeadlineSeconds)
	}
	want := &corev1.SecurityContext{
		RunAsUser: ptr.To(int64(0)), RunAsGroup: ptr.To(int64(nobody)), RunAsNonRoot: ptr.To(false),
		ReadOnlyRootFilesystem: ptr.To(true), AllowPrivilegeEscalation: ptr.To(false),
		Capabilities:   &corev1.Capabilities{Add: []corev1.Capability{"NET_BIND_SERVICE"}, Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr.To("x.json")},
	}
	if diff := cmp.Diff(want, spec.Containers[0].SecurityContext); diff != "" {
		t.Errorf("security context (-want +got):\n%s", diff)
	}

	spec = newPod(anAt(), defaults).Spec
	if spec.ServiceAccountName != "everyone" || *spec.AutomountServiceAccountToken || *spec.ActiveDeadlineSeconds != 60 {
		t.Errorf("by default: account %q, token %v, deadline %v", spec.ServiceAccountName, *spec.AutomountServiceAccountToken,
			*spec.ActiveDeadlineSeconds)
	}
	if diff := cmp.Diff(RestrictedPods(), defaults, cmp.FilterPath(func(p cmp.Path) bool {
		return p.Last().String() == ".ServiceAccountName" || p.Last().String() == ".ActiveDeadline"
	}, cmp.Ignore())); diff != "" {
		t.Errorf("making Pods changed the defaults:\n%s", diff)
	}
}
