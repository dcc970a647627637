package onboard

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// madeByLabel marks what a command here created in a workload cluster. Nothing else is ever deleted.
const (
	madeByLabel = "app.kubernetes.io/managed-by"
	madeBy      = "tenure-cluster-add"
)

// action is what becomes of an object.
type action string

const (
	created   action = "created"
	updated   action = "updated"
	unchanged action = "unchanged"
	deleted   action = "deleted"
	// left is for what stays although the cluster or the role doesn't need it.
	left action = "left"
)

// step is one object and what becomes of it.
type step struct {
	Object *unstructured.Unstructured
	Action action
	// Note says why, where the action doesn't say it all.
	Note string
}

// id tells objects apart.
type id struct{ kind, namespace, name string }

func idOf(o *unstructured.Unstructured) id { return id{o.GetKind(), o.GetNamespace(), o.GetName()} }

func (i id) String() string {
	if i.namespace == "" {
		return i.kind + " " + i.name
	}
	return i.kind + " " + i.namespace + "/" + i.name
}

// holds reports whether deleting an object deletes others with it.
func holds(o *unstructured.Unstructured) bool {
	return o.GetKind() == kindCRD || o.GetKind() == kindNamespace
}

func ours(o *unstructured.Unstructured) bool { return o.GetLabels()[madeByLabel] == madeBy }

// decide returns the steps by which a workload cluster gets what is wanted. live holds what [readLive] finds there.
//
// An object that isn't wanted belongs to a role that the cluster doesn't have, gives more than was asked for, or was
// made by another version under another name. Ours is deleted, unless that would delete others with it. A binding
// that somebody else made is left, and reported.
func decide(live, want []*unstructured.Unstructured) ([]step, error) {
	there := map[id]*unstructured.Unstructured{}
	for _, o := range live {
		there[idOf(o)] = o
	}
	var steps []step
	var errs []error
	wanted := map[id]bool{}
	for _, w := range want {
		wanted[idOf(w)] = true
		s, err := decideOne(there[idOf(w)], w)
		steps, errs = append(steps, s), append(errs, err)
	}
	for _, o := range live {
		binding := o.GetKind() == kindClusterBinding || o.GetKind() == kindBinding
		switch {
		case wanted[idOf(o)]:
		case ours(o) && !holds(o):
			steps = append(steps, step{o, deleted, "not needed for --role and --namespaces"})
		case o.GetKind() == kindBinding && slices.ContainsFunc(want, func(w *unstructured.Unstructured) bool {
			return w.GetKind() == kindClusterBinding && w.GetName() == o.GetName()
		}): // all namespaces are wanted
		case binding:
			steps = append(steps, step{o, left, "gives more than --role and --namespaces say, but somebody else made it"})
		}
	}
	return steps, errors.Join(errs...)
}

func decideOne(live, want *unstructured.Unstructured) (step, error) {
	want = want.DeepCopy()
	if live == nil {
		mark(want)
		return step{want, created, ""}, nil
	}
	if live.GetDeletionTimestamp() != nil {
		return step{}, fmt.Errorf("%s is being deleted: wait until it is gone, or see what its finalizers "+
			"(metadata.finalizers) wait for", idOf(want))
	}
	if was, is := live.Object["roleRef"], want.Object["roleRef"]; is != nil && !equality.Semantic.DeepEqual(was, is) {
		return step{}, fmt.Errorf("%s: roleRef is %v, must be %v, and can't be changed: delete the binding",
			idOf(want), was, is)
	}
	keepUsers(want, live)
	next := replaced(live, want)
	if covers(next.Object, live.Object) && covers(live.Object, next.Object) {
		return step{live, unchanged, ""}, nil
	}
	return step{next, updated, ""}, nil
}

// replaced returns a live object that says what is wanted, and no more. Further labels and annotations stay. So does
// what Kubernetes itself keeps in a namespace and in a service account.
func replaced(live, want *unstructured.Unstructured) *unstructured.Unstructured {
	next := live.DeepCopy()
	maps.DeleteFunc(next.Object, func(key string, _ any) bool {
		return live.GetKind() != kindNamespace && live.GetKind() != kindAccount && key != "metadata" && key != "status"
	})
	for key, value := range want.Object {
		if key != "metadata" {
			next.Object[key] = value
		}
	}
	next.SetLabels(with(live.GetLabels(), want.GetLabels()))
	next.SetAnnotations(with(live.GetAnnotations(), want.GetAnnotations()))
	return next
}

// with returns all entries, and those of more in the place of others with the same key.
func with(all, more map[string]string) map[string]string {
	if all == nil {
		return more
	}
	maps.Copy(all, more)
	return all
}

// keepUsers adds to what is wanted the users that somebody has added to ours: subjects of a binding, and names in
// the variable "fleet" of a policy. config/policy describes how.
func keepUsers(want, live *unstructured.Unstructured) {
	wanted, _, _ := unstructured.NestedSlice(want.Object, "subjects")
	there, _, _ := unstructured.NestedSlice(live.Object, "subjects")
	lacks := slices.ContainsFunc(wanted, func(s any) bool {
		return !slices.ContainsFunc(there, func(t any) bool { return covers(t, s) })
	})
	if len(wanted) > 0 && !lacks {
		want.Object["subjects"] = there
	}
	if at, there := fleetVariable(want), fleetVariable(live); at != nil && there != nil {
		expression, _ := there["expression"].(string)
		asked, _ := at["expression"].(string)
		names := namesIn(expression)
		if !slices.ContainsFunc(namesIn(asked), func(n string) bool { return !slices.Contains(names, n) }) {
			at["expression"] = expression
		}
	}
}

// quoted is a name in a list of a CEL expression.
var quoted = regexp.MustCompile(`'[^']*'|"[^"]*"`)

func namesIn(expression string) []string {
	names := quoted.FindAllString(expression, -1)
	for i, name := range names {
		names[i] = name[1 : len(name)-1]
	}
	return names
}

// fleetVariable returns the variable of a policy that lists the replicas' users; nil if there is none.
func fleetVariable(policy *unstructured.Unstructured) map[string]any {
	spec, _ := policy.Object["spec"].(map[string]any)
	variables, _ := spec["variables"].([]any)
	for _, v := range variables {
		if v, _ := v.(map[string]any); v["name"] == "fleet" {
			return v
		}
	}
	return nil
}

func mark(o *unstructured.Unstructured) {
	o.SetLabels(with(o.GetLabels(), map[string]string{madeByLabel: madeBy}))
}

// defaults are what API servers put into the specs of policies and CustomResourceDefinitions that don't say it.
var defaults = map[string]any{
	"failurePolicy": "Fail", "matchPolicy": "Equivalent", "scope": "*", "conversion": map[string]any{"strategy": "None"},
}

// covers reports whether live has all that is wanted. Further entries of a map in live make no difference, nor do
// [defaults] that it lacks. Lists must have the same length.
func covers(live, want any) bool { return missing("", live, want) == "" }

// missing returns the path of the first thing that isn't as it is wanted, "" if everything is.
func missing(path string, live, want any) string {
	switch want := want.(type) {
	case map[string]any:
		l, ok := live.(map[string]any)
		if !ok && len(want) > 0 {
			return path
		}
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if _, there := l[key]; !there && equality.Semantic.DeepEqual(want[key], defaults[key]) {
				continue
			}
			if at := missing(path+"."+key, l[key], want[key]); at != "" {
				return at
			}
		}
	case []any:
		l, ok := live.([]any)
		if len(l) != len(want) || !ok && len(want) > 0 {
			return path
		}
		for i := range want {
			if at := missing(fmt.Sprintf("%s[%d]", path, i), l[i], want[i]); at != "" {
				return at
			}
		}
	default:
		if !equality.Semantic.DeepEqual(live, want) {
			return path
		}
	}
	return ""
}

// decideRemoval returns what becomes of the live objects of a workload cluster that is removed, in the order in
// which they can be deleted. The service account goes first, since that ends all tokens. keep returns why an object
// stays although it is ours; "" if it goes.
func decideRemoval(live []*unstructured.Unstructured, keep func(*unstructured.Unstructured) string) []step {
	var steps []step
	for _, o := range live {
		s := step{o, deleted, ""}
		switch {
		case !ours(o):
			s.Action, s.Note = left, "not made by tenure cluster add"
		case o.GetKind() == kindCRD:
			s.Action, s.Note = left, "deleting it would delete its objects"
		default:
			if s.Note = keep(o); s.Note != "" {
				s.Action = left
			}
		}
		steps = append(steps, s)
	}
	slices.SortStableFunc(steps, func(a, b step) int { return removalRank(a.Object) - removalRank(b.Object) })
	return steps
}

func removalRank(o *unstructured.Unstructured) int {
	switch o.GetKind() {
	case kindAccount:
		return 0
	case kindNamespace:
		return 2
	}
	return 1
}
