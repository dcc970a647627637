package at

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
)

// PodDefaults apply to what an At doesn't specify about its Pod.
type PodDefaults struct {
	// ServiceAccountName is the account that Pods run as; empty: the namespace's account "default".
	ServiceAccountName string
	// Requests and Limits are the container's, and apply to each resource by itself. A default never contradicts the
	// At: a default limit is raised to the At's request, and a default request is lowered to the At's limit.
	Requests, Limits corev1.ResourceList
	// ActiveDeadline is how long a Pod may run, in whole seconds; 0: no limit.
	ActiveDeadline time.Duration
	// SecurityContext is the container's, and applies to each field by itself, unless it contradicts the At: runAsNonRoot
	// isn't applied to an At that chooses user 0, nor allowPrivilegeEscalation to one that is privileged.
	SecurityContext corev1.SecurityContext
}

// nobody is the conventional UID of the user "nobody". An image without a user would run as root. Under runAsNonRoot a
// node refuses that, and the At would wait for ever.
const nobody = 65534

// RestrictedPods are defaults that pass the Pod Security level "restricted" and any ResourceQuota on cpu and memory.
func RestrictedPods() PodDefaults {
	return PodDefaults{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi"),
		},
		Limits: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("256Mi"),
		},
		SecurityContext: corev1.SecurityContext{
			RunAsNonRoot:             new(true),
			RunAsUser:                new(int64(nobody)),
			RunAsGroup:               new(int64(nobody)),
			AllowPrivilegeEscalation: new(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
}

// Validate refuses negative requests and limits, requests above their limit, requests of what can't be shared that
// aren't their limit, and an ActiveDeadline that is negative or no whole number of seconds. It joins one error per
// problem. It checks neither names of resources nor the SecurityContext.
func (d PodDefaults) Validate() error {
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(d.Requests)) {
		request := d.Requests[name]
		switch {
		case request.Sign() < 0:
			wrong = append(wrong, fmt.Errorf("requests: %s=%s is negative", name, request.String()))
		case !shared(name) && request.MilliValue()%1000 != 0:
			wrong = append(wrong, fmt.Errorf("requests: %s=%s must be a whole number", name, request.String()))
		}
		limit, limited := d.Limits[name]
		if !shared(name) && (!limited || request.Cmp(limit) != 0) {
			wrong = append(wrong, fmt.Errorf("requests: %s=%s can't be shared, so it needs a limit of the same size", name,
				request.String()))
		} else if limited && request.Cmp(limit) > 0 {
			wrong = append(wrong, fmt.Errorf("requests: %s=%s is above its limit of %s", name, request.String(), limit.String()))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Limits)) {
		switch limit := d.Limits[name]; {
		case limit.Sign() < 0:
			wrong = append(wrong, fmt.Errorf("limits: %s=%s is negative", name, limit.String()))
		case !shared(name) && limit.MilliValue()%1000 != 0:
			wrong = append(wrong, fmt.Errorf("limits: %s=%s must be a whole number", name, limit.String()))
		}
	}
	if d.ActiveDeadline < 0 || d.ActiveDeadline%time.Second != 0 || d.ActiveDeadline > math.MaxInt32*time.Second {
		wrong = append(wrong, fmt.Errorf("active-deadline: %v isn't a number of whole seconds from 0 to %d",
			d.ActiveDeadline, math.MaxInt32))
	}
	return errors.Join(wrong...)
}

// shared reports whether a Pod may request less of a resource than its limit. For hugepages and extended resources the
// API server requires both to be equal.
func shared(name corev1.ResourceName) bool {
	return !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) && !strings.Contains(string(name), "/")
}

func (d PodDefaults) serviceAccount(spec *cnatv1alpha1.AtSpec) string {
	if spec.ServiceAccountName != "" {
		return spec.ServiceAccountName
	}
	return d.ServiceAccountName
}

func (d PodDefaults) activeDeadline(spec *cnatv1alpha1.AtSpec) *int64 {
	switch {
	case spec.ActiveDeadlineSeconds != nil:
		return new(*spec.ActiveDeadlineSeconds)
	case d.ActiveDeadline > 0:
		return new(int64(d.ActiveDeadline / time.Second))
	}
	return nil
}

func (d PodDefaults) resources(spec *cnatv1alpha1.AtSpec) corev1.ResourceRequirements {
	asked := ptr.Deref(spec.Resources, cnatv1alpha1.AtResources{})
	merged := corev1.ResourceRequirements{Requests: maps.Clone(asked.Requests), Limits: maps.Clone(asked.Limits)}
	fill(&merged.Requests, d.Requests, asked.Limits,
		func(request, limit resource.Quantity) bool { return request.Cmp(limit) <= 0 })
	fill(&merged.Limits, d.Limits, asked.Requests,
		func(limit, request resource.Quantity) bool { return limit.Cmp(request) >= 0 })
	return merged
}

// fill adds the missing defaults. A default that contradicts the At's value on the other side (limit or request), or
// that must equal it, takes that value instead.
func fill(to *corev1.ResourceList, defaults, other corev1.ResourceList,
	fits func(value, other resource.Quantity) bool) {
	for name, value := range defaults {
		if _, there := (*to)[name]; there {
			continue
		}
		if said, ok := other[name]; ok && (!shared(name) || !fits(value, said)) {
			value = said
		}
		if *to == nil {
			*to = corev1.ResourceList{}
		}
		(*to)[name] = value.DeepCopy()
	}
}

func (d PodDefaults) securityContext(spec *cnatv1alpha1.AtSpec) *corev1.SecurityContext {
	merged := d.SecurityContext.DeepCopy()
	asked := spec.SecurityContext
	if asked == nil {
		return merged
	}
	if ptr.Deref(asked.RunAsUser, nobody) == 0 {
		merged.RunAsNonRoot = nil // a node would refuse to start it, and it would wait for ever
	}
	if ptr.Deref(asked.Privileged, false) {
		merged.AllowPrivilegeEscalation = nil // the API server refuses both together
	}
	set(&merged.RunAsUser, asked.RunAsUser)
	set(&merged.RunAsGroup, asked.RunAsGroup)
	set(&merged.RunAsNonRoot, asked.RunAsNonRoot)
	set(&merged.ReadOnlyRootFilesystem, asked.ReadOnlyRootFilesystem)
	set(&merged.AllowPrivilegeEscalation, asked.AllowPrivilegeEscalation)
	set(&merged.Privileged, asked.Privileged)
	if c := asked.Capabilities; c != nil {
		merged.Capabilities = new(ptr.Deref(merged.Capabilities, corev1.Capabilities{}))
		setList(&merged.Capabilities.Add, c.Add)
		setList(&merged.Capabilities.Drop, c.Drop)
	}
	if asked.SeccompProfile != nil {
		merged.SeccompProfile = &corev1.SeccompProfile{Type: asked.SeccompProfile.Type}
		set(&merged.SeccompProfile.LocalhostProfile, asked.SeccompProfile.LocalhostProfile)
	}
	return merged
}

// set copies a value that is specified.
func set[T any](to **T, from *T) {
	if from != nil {
		*to = new(*from)
	}
}

// setList copies names, if there are any.
func setList(to *[]corev1.Capability, names []string) {
	if len(names) == 0 {
		return
	}
	*to = nil
	for _, name := range names {
		*to = append(*to, corev1.Capability(name))
	}
}
