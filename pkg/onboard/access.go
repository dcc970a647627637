package onboard

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/pkg/text"
)

// Role is what a workload cluster is for.
type Role string

const (
	// Ats are run there. They are seen in every cluster.
	Ats Role = "ats"
	// Deployments are copied there.
	Deployments Role = kubeconfig.RoleDeployments
	// DeploymentSource has its Deployments copied to others; it is the cluster of --deployment-source.
	DeploymentSource Role = "deployment-source"
)

// Roles are all roles.
var Roles = []Role{Ats, Deployments, DeploymentSource}

// Access is what the fleet may do in a workload cluster.
type Access struct {
	Roles []Role
	// Namespaces that the fleet may write in; none means all.
	Namespaces []string
}

// AllNamespaces, in the place of names, asks for all of them.
const AllNamespaces = "*"

// Wish is the part of an [Access] that is asked for. A nil field keeps what the cluster was added with. So a flag
// that is left out neither widens nor narrows what the fleet may do.
type Wish struct {
	Roles      []Role
	Namespaces []string
}

// of completes the wish with what the cluster was added with, by its Secret. own is nil if there is none.
func (w Wish) of(own *corev1.Secret) (Access, error) {
	a := Access{Roles: []Role{Ats}}
	if own != nil {
		added, ok := accessOf(own)
		if text := own.Annotations[kubeconfig.RolesAnnotation]; !ok && text != "" && w.Roles == nil {
			return a, fmt.Errorf("Secret %s/%s: annotation %s is %q, must be of %v: say by --role what the cluster is for",
				own.Namespace, own.Name, kubeconfig.RolesAnnotation, text, Roles)
		}
		if a.Namespaces = added.Namespaces; ok {
			a.Roles = added.Roles
		}
	}
	if w.Roles != nil {
		a.Roles = w.Roles
	}
	if w.Namespaces != nil {
		a.Namespaces = w.Namespaces
	}
	if slices.Contains(a.Namespaces, AllNamespaces) {
		a.Namespaces = nil
	}
	return a, nil
}

// namespaceMissing is the error for a namespace that the cluster lacks. If the wish names none, the cluster's own
// Secret does.
func (w Wish) namespaceMissing(name string, own *corev1.Secret) error {
	if w.Namespaces == nil && own != nil {
		return fmt.Errorf("Secret %s/%s: annotation %s names %s, and the cluster has no such namespace any more: create it, "+
			"or say by --namespaces where the fleet may write", own.Namespace, own.Name, namespacesAnnotation, name)
	}
	return fmt.Errorf("--namespaces %s: the cluster has no such namespace: create it, or leave it out", name)
}

// taken returns the roles that a cluster had and doesn't get any more. own is its Secret, nil for a new cluster. If the
// Secret doesn't say its roles, it may have had any.
func (a Access) taken(own *corev1.Secret) []Role {
	if own == nil {
		return nil
	}
	had := Roles
	if before, ok := accessOf(own); ok {
		had = before.Roles
	}
	return slices.DeleteFunc(slices.Clone(had), func(r Role) bool { return slices.Contains(a.Roles, r) })
}

// keptNote says what was taken over from before, if that differs from what a new cluster gets; "" for nothing.
func (w Wish) keptNote(a Access) string {
	if w.Roles != nil && w.Namespaces != nil || describe(a) == describe(Access{Roles: []Role{Ats}}) {
		return ""
	}
	return fmt.Sprintf("the cluster is now for %s; a flag that you leave out keeps its earlier value", describe(a))
}

// ParseRoles reads the names of roles.
func ParseRoles(names []string) ([]Role, error) {
	var roles []Role
	for _, name := range names {
		if !slices.Contains(Roles, Role(name)) {
			return nil, fmt.Errorf("--role %s: must be of %v", name, Roles)
		}
		roles = append(roles, Role(name))
	}
	if len(roles) == 0 {
		return nil, fmt.Errorf("--role: must name at least one of %v", Roles)
	}
	return text.Sorted(roles), nil
}

// The service account of the replicas in every workload cluster, as the manifests have it.
const (
	accountNamespace = "tenure-system"
	accountName      = "tenure"
)

// bindings are those of the manifests that give the fleet rights. role is what they are for, "" for all roles.
// narrow reports whether single namespaces can be enough. For lists and watches they can't: a replica makes these
// for the whole cluster.
var bindings = map[string]struct {
	role   Role
	narrow bool
}{
	"tenure-ats-watch":          {"", false},
	"tenure-ats-run":            {Ats, true},
	"tenure-copies-reader":      {Deployments, false},
	"tenure-copies":             {Deployments, true},
	"tenure-replication-reader": {DeploymentSource, false},
	"tenure-replication-source": {DeploymentSource, true},
}

const (
	kindNamespace      = "Namespace"
	kindCRD            = "CustomResourceDefinition"
	kindAccount        = "ServiceAccount"
	kindClusterRole    = "ClusterRole"
	kindRole           = "Role"
	kindClusterBinding = "ClusterRoleBinding"
	kindBinding        = "RoleBinding"
	kindPolicy         = "ValidatingAdmissionPolicy"
	kindPolicyBinding  = "ValidatingAdmissionPolicyBinding"
)

// objectsFor returns the objects that a workload cluster needs, in the order in which they can be created.
func objectsFor(a Access) ([]*unstructured.Unstructured, error) {
	rendered, err := render(a.Roles)
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, o := range rendered {
		if o.GetKind() != kindClusterBinding {
			all = append(all, o)
			continue
		}
		about, known := bindings[o.GetName()]
		switch {
		case !known:
			return nil, fmt.Errorf("config/ has a ClusterRoleBinding %s of which this program doesn't know what it is for",
				o.GetName())
		case about.role != "" && !slices.Contains(a.Roles, about.role):
		case !about.narrow || len(a.Namespaces) == 0:
			all = append(all, o)
		default:
			for _, namespace := range a.Namespaces {
				all = append(all, narrowed(o, namespace))
			}
		}
	}
	slices.SortStableFunc(all, func(x, y *unstructured.Unstructured) int { return rank(x) - rank(y) })
	return all, nil
}

// render returns what the folders of some roles hold, each object once.
func render(roles []Role) ([]*unstructured.Unstructured, error) {
	folders := []string{config.Workload}
	if slices.Contains(roles, Deployments) {
		folders = []string{config.ReplicationTarget} // it includes the other
	}
	if slices.Contains(roles, DeploymentSource) {
		folders = append(folders, config.ReplicationSource)
	}
	var all []*unstructured.Unstructured
	for _, folder := range folders {
		some, err := config.Render(folder)
		if err != nil {
			return nil, fmt.Errorf("reading the manifests: %w", err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// narrowed returns a binding that gives in one namespace what a ClusterRoleBinding gives everywhere.
func narrowed(binding *unstructured.Unstructured, namespace string) *unstructured.Unstructured {
	o := binding.DeepCopy()
	o.SetKind(kindBinding)
	o.SetNamespace(namespace)
	return o
}

// order of kinds: what others need comes first.
var order = []string{kindNamespace, kindCRD, kindAccount, kindClusterRole, kindRole, kindClusterBinding, kindBinding}

func rank(o *unstructured.Unstructured) int {
	if i := slices.Index(order, o.GetKind()); i >= 0 {
		return i
	}
	return len(order)
}

// Right is one verb on one kind of resource, in a namespace or, if that is "", everywhere.
type Right struct {
	Verb        string `json:"verb"`
	Group       string `json:"group"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	// Name of the only object that it is about, "" for all.
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Role of the manifests that gives it.
	Role string `json:"role"`
}

// String returns the right as kubectl auth can-i takes it.
func (r Right) String() string {
	text := r.Verb + " " + r.Resource
	if r.Group != "" {
		text += "." + r.Group
	}
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	if r.Name != "" {
		text += " " + r.Name
	}
	return text
}

// rightsIn returns what the objects allow the replicas' service account, in order.
func rightsIn(objects []*unstructured.Unstructured) ([]Right, error) {
	rules := map[string][]rbacv1.PolicyRule{} // by kind and name
	for _, o := range objects {
		if o.GetKind() != kindClusterRole && o.GetKind() != kindRole {
			continue
		}
		var role rbacv1.ClusterRole // a Role has its rules in the same place
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			return nil, fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
		rules[o.GetKind()+" "+o.GetName()] = role.Rules
	}
	all := map[Right]bool{}
	for _, o := range objects {
		if o.GetKind() != kindClusterBinding && o.GetKind() != kindBinding {
			continue
		}
		ref, _, err := unstructured.NestedStringMap(o.Object, "roleRef")
		kind, name := ref["kind"], ref["name"]
		if err != nil || rules[kind+" "+name] == nil {
			return nil, fmt.Errorf("%s %s: its role %q isn't among the manifests", o.GetKind(), o.GetName(), name)
		}
		for _, rule := range rules[kind+" "+name] {
			for _, r := range rightsOf(rule) {
				r.Namespace, r.Role = o.GetNamespace(), name
				all[r] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b Right) int {
		return strings.Compare(a.Role+" "+a.Namespace+" "+a.String(), b.Role+" "+b.Namespace+" "+b.String())
	}), nil
}

func rightsOf(rule rbacv1.PolicyRule) (all []Right) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			resource, sub, _ := strings.Cut(resource, "/")
			for _, verb := range rule.Verbs {
				for _, name := range names {
					all = append(all, Right{Verb: verb, Group: group, Resource: resource, Subresource: sub, Name: name})
				}
			}
		}
	}
	return all
}
