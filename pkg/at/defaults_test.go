package at

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/expect"
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
		"a large request raises the limit": {asked: cnatv1alpha1.AtResources{Requests: list("memory", "1Gi")},
			want: cnatv1alpha1.AtResources{Requests: list("cpu", "10m", "memory", "1Gi"),
				Limits: list("cpu", "1", "memory", "1Gi")}},
		"a small limit lowers the request": {asked: cnatv1alpha1.AtResources{Limits: list("cpu", "5m")},
			want: cnatv1alpha1.AtResources{Requests: list("cpu", "5m", "memory", "16Mi"),
				Limits: list("cpu", "5m", "memory", "256Mi")}},
		"another resource is added": {asked: cnatv1alpha1.AtResources{Limits: list("nvidia.com/gpu", "1")},
			want: cnatv1alpha1.AtResources{Requests: defaults.Requests,
				Limits: list("cpu", "1", "memory", "256Mi", "nvidia.com/gpu", "1")}},
	} {
		got := defaults.resources(&cnatv1alpha1.AtSpec{Resources: &c.asked})
		want := corev1.ResourceRequirements{Requests: c.want.Requests, Limits: c.want.Limits}
		expect.Equal(t, name, want, got)
	}
	if got := (PodDefaults{}).resources(&cnatv1alpha1.AtSpec{}); got.Requests != nil || got.Limits != nil {
		t.Errorf("without defaults: %v", got)
	}
}

func TestADefaultSecurityContextNeverContradictsTheAt(t *testing.T) {
	root, nonRoot, yes := new(int64(0)), new(int64(7)), new(true)
	for name, c := range map[string]struct {
		asked cnatv1alpha1.AtSecurityContext
		want  func(*corev1.SecurityContext) // what differs from the defaults
	}{
		"root isn't to be anybody else": {cnatv1alpha1.AtSecurityContext{RunAsUser: root},
			func(s *corev1.SecurityContext) { s.RunAsUser, s.RunAsNonRoot = root, nil }},
		"root and not root: its own words": {cnatv1alpha1.AtSecurityContext{RunAsUser: root, RunAsNonRoot: yes},
			func(s *corev1.SecurityContext) { s.RunAsUser = root }},
		"another user": {cnatv1alpha1.AtSecurityContext{RunAsUser: nonRoot},
			func(s *corev1.SecurityContext) { s.RunAsUser = nonRoot }},
		"who is privileged may gain privileges": {cnatv1alpha1.AtSecurityContext{Privileged: yes},
			func(s *corev1.SecurityContext) { s.Privileged, s.AllowPrivilegeEscalation = yes, nil }},
		"not privileged": {cnatv1alpha1.AtSecurityContext{Privileged: new(false)},
			func(s *corev1.SecurityContext) { s.Privileged = new(false) }},
		"one capability, all others still dropped": {
			cnatv1alpha1.AtSecurityContext{Capabilities: &cnatv1alpha1.AtCapabilities{Add: []string{"NET_BIND_SERVICE"}}},
			func(s *corev1.SecurityContext) { s.Capabilities.Add = []corev1.Capability{"NET_BIND_SERVICE"} }},
		"others are dropped": {
			cnatv1alpha1.AtSecurityContext{Capabilities: &cnatv1alpha1.AtCapabilities{Drop: []string{"MKNOD"}}},
			func(s *corev1.SecurityContext) { s.Capabilities.Drop = []corev1.Capability{"MKNOD"} }},
	} {
		t.Run(name, func(t *testing.T) {
			defaults := RestrictedPods()
			want := RestrictedPods().SecurityContext
			c.want(&want)
			got := defaults.securityContext(&cnatv1alpha1.AtSpec{SecurityContext: &c.asked})
			expect.Equal(t, "security context", &want, got)
			expect.Equal(t, "the defaults have changed", RestrictedPods(), defaults)
		})
	}
	got := PodDefaults{}.securityContext(&cnatv1alpha1.AtSpec{SecurityContext: &cnatv1alpha1.AtSecurityContext{
		Capabilities: &cnatv1alpha1.AtCapabilities{Add: []string{"CHOWN"}}}})
	expect.Equal(t, "without defaults", &corev1.SecurityContext{
		Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"CHOWN"}}}, got)
}

func TestAnAtDecidesFieldByFieldOverItsPod(t *testing.T) {
	at := anAt(func(at *cnatv1alpha1.At) {
		at.Spec.ServiceAccountName, at.Spec.AutomountServiceAccountToken = "backup", true
		at.Spec.ActiveDeadlineSeconds = new(int64(5))
		at.Spec.SecurityContext = &cnatv1alpha1.AtSecurityContext{
			RunAsUser: new(int64(0)), RunAsNonRoot: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &cnatv1alpha1.AtCapabilities{Add: []string{"NET_BIND_SERVICE"}, Drop: []string{"ALL"}},
			SeccompProfile: &cnatv1alpha1.AtSeccompProfile{Type: corev1.SeccompProfileTypeLocalhost,
				LocalhostProfile: new("x.json")},
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
		RunAsUser: new(int64(0)), RunAsGroup: new(int64(nobody)), RunAsNonRoot: new(false),
		ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
		Capabilities:   &corev1.Capabilities{Add: []corev1.Capability{"NET_BIND_SERVICE"}, Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: new("x.json")},
	}
	expect.Equal(t, "security context", want, spec.Containers[0].SecurityContext)

	spec = newPod(anAt(), defaults).Spec
	if spec.ServiceAccountName != "everyone" || *spec.AutomountServiceAccountToken || *spec.ActiveDeadlineSeconds != 60 {
		t.Errorf("by default: account %q, token %v, deadline %v", spec.ServiceAccountName, *spec.AutomountServiceAccountToken,
			*spec.ActiveDeadlineSeconds)
	}
	expect.Equal(t, "making Pods changed the defaults", RestrictedPods(), defaults, cmp.FilterPath(func(p cmp.Path) bool {
		return p.Last().String() == ".ServiceAccountName" || p.Last().String() == ".ActiveDeadline"
	}, cmp.Ignore()))
}

func TestADefaultRequestOfWhatCannotBeSharedIsTheAtsLimit(t *testing.T) {
	for _, name := range []string{"example.com/gpu", "hugepages-2Mi"} {
		d := PodDefaults{Requests: list(name, "1"), Limits: list(name, "1")}
		got := d.resources(&cnatv1alpha1.AtSpec{Resources: &cnatv1alpha1.AtResources{Limits: list(name, "2")}})
		want := corev1.ResourceRequirements{Requests: list(name, "2"), Limits: list(name, "2")}
		expect.Equal(t, name, want, got)
	}
}
