package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	names "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/tenure-dev/tenure/pkg/at"
)

// podFlags are the fleet's defaults for the Pods of Ats.
type podFlags struct {
	serviceAccount   string
	requests, limits quantities
	deadline         time.Duration
	restricted       bool
	user             int64
}

// imageUser stands for the user that an image names.
const imageUser = -1

func (p *podFlags) declare(fs *pflag.FlagSet) {
	d := at.RestrictedPods()
	p.requests, p.limits, p.restricted = quantities(d.Requests), quantities(d.Limits), true
	fs.StringVar(&p.serviceAccount, "at-service-account", "",
		"service account, by `name`, of Ats that name none (default: the namespace's account \"default\")")
	fs.Var(&p.requests, "at-requests", "`resources` that an At's Pod requests, for those the At doesn't name; none for "+
		"no default")
	fs.Var(&p.limits, "at-limits", "`resources` that an At's Pod is limited to, for those the At doesn't name; none for "+
		"no default")
	fs.DurationVar(&p.deadline, "at-active-deadline", 0,
		"how long an At's Pod may run where the At doesn't say; 0 for no limit")
	fs.Var(&choice{&p.restricted, "restricted", "none"}, "at-security",
		"security context of Ats that set none: restricted, which every Pod Security level accepts, or none")
	fs.Int64Var(&p.user, "at-run-as-user", ptr.Deref(d.SecurityContext.RunAsUser, imageUser),
		"numeric `user` and group of restricted Pods; -1 for the image's own, which mustn't be root")
}

// defaults returns the defaults that the reconciler works with. The error names the flag.
func (p *podFlags) defaults() (at.PodDefaults, error) {
	d := at.RestrictedPods()
	d.ServiceAccountName, d.ActiveDeadline = p.serviceAccount, p.deadline
	d.Requests, d.Limits = corev1.ResourceList(p.requests), corev1.ResourceList(p.limits)
	switch {
	case !p.restricted && p.user != ptr.Deref(d.SecurityContext.RunAsUser, imageUser):
		return d, fmt.Errorf("--at-run-as-user %d: only with --at-security=restricted; an At's own securityContext can name "+
			"a user", p.user)
	case !p.restricted:
		d.SecurityContext = corev1.SecurityContext{}
	case p.user == imageUser:
		d.SecurityContext.RunAsUser, d.SecurityContext.RunAsGroup = nil, nil
	case p.user < 1, p.user > math.MaxInt32: // as API servers take them
		return d, fmt.Errorf("--at-run-as-user %d: must be from 1 to %d (root needs --at-security=none), or -1 for the "+
			"image's user", p.user, math.MaxInt32)
	default:
		d.SecurityContext.RunAsUser, d.SecurityContext.RunAsGroup = new(p.user), new(p.user)
	}
	if p.serviceAccount != "" {
		if problems := validation.ValidateServiceAccountName(p.serviceAccount, false); len(problems) > 0 {
			return d, fmt.Errorf("--at-service-account %q: %s", p.serviceAccount, strings.Join(problems, "; "))
		}
	}
	if err := p.above(at.RestrictedPods()); err != nil {
		return d, err
	}
	if err := d.Validate(); err != nil {
		return d, fmt.Errorf("--at-%s", strings.ReplaceAll(err.Error(), "\n", "; --at-"))
	}
	return d, nil
}

// above returns an error that names both flags if a request is above its limit. Often only one of them was given.
func (p *podFlags) above(defaults at.PodDefaults) error {
	mark := func(is, preset quantities) string {
		if is.String() == preset.String() {
			return " (the default)"
		}
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(p.requests)) {
		request, limit := p.requests[name], p.limits[name]
		if _, limited := p.limits[name]; limited && limit.Sign() >= 0 && request.Cmp(limit) > 0 {
			return fmt.Errorf("--at-requests: %s=%s%s is above %[1]s=%[4]s of --at-limits%[5]s", name, request.String(),
				mark(p.requests, quantities(defaults.Requests)), limit.String(),
				mark(p.limits, quantities(defaults.Limits)))
		}
	}
	return nil
}

// quantities is a flag value such as cpu=10m,memory=16Mi, or none.
type quantities corev1.ResourceList

func (q *quantities) Type() string { return "resources" }

func (q *quantities) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(*q)) {
		value := (*q)[name]
		parts = append(parts, string(name)+"="+value.String())
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ",")
}

func (q *quantities) Set(text string) error {
	*q = quantities{}
	if text == "none" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, value, found := strings.Cut(part, "=")
		quantity, err := resource.ParseQuantity(value)
		if !found || name == "" || err != nil {
			return fmt.Errorf("%q: must be like cpu=10m,memory=16Mi, or none", part)
		}
		if _, twice := (*q)[corev1.ResourceName(name)]; twice {
			return fmt.Errorf("%q: %s is there twice", part, name)
		}
		if !isResource(name) { // or the API server would refuse the Pod of each At
			return fmt.Errorf("%q: %s must be cpu, memory, ephemeral-storage, hugepages-SIZE, or one such as example.com/gpu",
				part, name)
		}
		(*q)[corev1.ResourceName(name)] = quantity
	}
	return nil
}

// isResource reports whether a container can ask for a resource of that name.
func isResource(name string) bool {
	switch corev1.ResourceName(name) {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	}
	further := strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) || strings.Contains(name, "/")
	return further && len(names.IsQualifiedName(name)) == 0
}
