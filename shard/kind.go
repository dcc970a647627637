package shard

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/internal/informer"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// ErrFenced is the error of a write whose shard this replica doesn't hold any more, or whose object has the epoch of
// a later tenure. The write was not sent.
var ErrFenced = engage.ErrFenced

// ErrUnfenceable is the error of a write that no precondition can protect, and of exec, attach and port-forward. The
// request was not sent; the error says what to do instead.
var ErrUnfenceable = engage.ErrUnfenceable

// AnswerUnread is an option for Create and for the Update of a status or another subresource: the caller doesn't need
// the answer. It saves a large part of a write's CPU. The object then stays as it was sent, with the resourceVersion of
// before, so read it again before the next write. Kinds that aren't in Config.Kinds by their Go type, and clients that
// a shard's reconciler wasn't given, ignore the option.
type AnswerUnread = engage.AnswerUnread

// Kind is one kind of object that shards hold in their caches. [Primary], [Owned] and [Copies] declare one. Its
// functions are called from several goroutines, and mustn't read a cache, which may be locked meanwhile.
type Kind struct {
	Object client.Object
	// In reports whether shards of a cluster have the kind; nil means all.
	In func(keyspace.ClusterName) bool
	// Fields is a field selector that leaves out objects that are finished for good, so that they cost nothing at a
	// takeover. Objects of primary kinds that it doesn't select are neither listed nor watched; one that it no longer
	// selects looks as if it had been deleted. Objects of owned kinds are listed by it and watched without it, so
	// that their last change is seen. If an API server doesn't know the fields (see selectableFields of a CRD), all
	// objects are listed and watched.
	Fields string
	// ManagedFields keeps the objects' managed fields, which caches don't have otherwise. [Copies] always have them:
	// it matters who else manages a field of a copy.
	ManagedFields bool
	// Transform is applied to the kind's objects before they are cached; nil for none. Fields that it drops take no
	// memory while a cache is filled, either. Managed fields are gone by then, unless ManagedFields keeps them. An Update
	// of a cached object takes away what Transform dropped: patch it instead, by client.MergeFrom. Before Kubernetes 1.36,
	// an Update of a custom resource's status takes the ownership of metadata that Transform dropped from field managers.
	// It must not fail, or caches with that object can't be filled: return an object that it doesn't know as it is.
	Transform toolscache.TransformFunc
	// Pack returns a smaller form of a cached object, for kinds that have many objects and read few: an object is
	// unpacked each time that it is read. Pack is given transformed objects, must not change them, and returns nil
	// for those that stay as they are. Nil packs none.
	Pack func(client.Object) Packed
	// Finished reports whether an object has come to its end, such as a Pod that has run. The cache drops it one to two
	// minutes later, without an event, since many objects are kept for long after their end. Whoever needs it then has
	// to read it from the API server, as with objects that Fields leaves out. Nil keeps all.
	Finished func(client.Object) bool

	// Owned kinds are filtered by the slot label, which has the slot of an object's owner; primary kinds by their own
	// UID.
	owned bool
	// Remote kinds are owned kinds that live in all the other clusters.
	remote bool
}

// Packed is a cached object that takes little memory. Unpack returns a new copy of the object that was packed, which
// may lack its TypeMeta. It is called from several goroutines.
type Packed = informer.Packed

// Primary declares a kind whose objects are sharded by their own UID: what a controller is For.
func Primary(obj client.Object) Kind { return Kind{Object: obj} }

// Owned declares a kind whose objects follow the object that owns them. The client that reconcilers get labels what
// it creates for an owner; objects without that label are not seen. If a creation fails because the object is there
// already, with the same controller, that object gets the label.
func Owned(obj client.Object) Kind { return Kind{Object: obj, owned: true} }

// Copies declares a kind whose objects are owned, like [Owned], but live in all the other clusters. Inside a reconcile,
// GetCluster with a real cluster's name gives that cluster as the shard sees it. Such an object says whose it is by the
// annotation tenure.dev/owner-uid, with its owner's UID.
func Copies(obj client.Object) Kind { return Kind{Object: obj, owned: true, remote: true} }

// in reports whether shards of the cluster have the kind.
func (k Kind) in(cluster keyspace.ClusterName) bool { return k.In == nil || k.In(cluster) }

// checkKinds reports what can't work in Config.Kinds.
func checkKinds(kinds []Kind, fail func(format string, args ...any)) {
	switch primary := func(k Kind) bool { return !k.owned }; {
	case len(kinds) == 0:
		fail("Kinds is empty: name at least the kind that your controller is For")
	case !slices.ContainsFunc(kinds, primary):
		fail("Kinds: none is primary, and only clusters that have such a kind are divided: declare the " +
			"kind that your controller is For with Primary")
	}
	for i, k := range kinds {
		same := func(other Kind) bool {
			return other.Object != nil && other.remote == k.remote && sameKind(other.Object, k.Object)
		}
		switch {
		case k.Object == nil:
			fail("Kinds[%d]: Object is nil: give Primary, Owned or Copies an empty object of the kind", i)
			continue
		case slices.ContainsFunc(kinds[:i], same):
			fail("Kinds[%d]: %T is declared before: a shard has one cache of a kind, for primary or "+
				"for owned objects", i, k.Object)
		}
		if _, err := fields.ParseSelector(k.Fields); err != nil {
			fail("Kinds: Fields %q of %T: %w", k.Fields, k.Object, err)
		}
	}
}

// ofKind returns those of the kinds that are an object's, in whichever form: typed, untyped or metadata only.
func ofKind(kinds []Kind, obj client.Object, scheme *runtime.Scheme) (same []Kind, _ error) {
	want, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return nil, err
	}
	for _, k := range kinds {
		gvk, err := apiutil.GVKForObject(k.Object, scheme)
		if err != nil {
			return nil, err
		}
		if gvk == want {
			same = append(same, k)
		}
	}
	return same, nil
}

// kindsOf names the kinds that a program shards, in the form that Leases have them. It refuses a kind that is declared
// both as primary and as owned, once by its type and once as metadata.
func kindsOf(kinds []Kind, scheme *runtime.Scheme) (string, error) {
	var names []string
	for i, k := range kinds {
		gvk, err := apiutil.GVKForObject(k.Object, scheme)
		if err != nil {
			return "", fmt.Errorf("shard.Config.Kinds: %T: %w", k.Object, err)
		}
		before, err := ofKind(kinds[:i], k.Object, scheme)
		if err != nil {
			return "", err
		}
		if slices.ContainsFunc(before, func(b Kind) bool { return b.remote == k.remote && b.owned != k.owned }) {
			return "", fmt.Errorf("shard.Config.Kinds[%d]: %s is declared before in another form: once as primary and once as "+
				"owned", i, gvk.Kind)
		}
		names = append(names, gvk.GroupKind().String())
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ","), nil
}

// sameKind compares the Go types and, for types that stand for many kinds, the kinds that the objects state.
func sameKind(a, b client.Object) bool {
	if reflect.TypeOf(a) != reflect.TypeOf(b) {
		return false
	}
	switch a.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata:
		return a.GetObjectKind().GroupVersionKind() == b.GetObjectKind().GroupVersionKind()
	}
	return true
}

// engaged converts the kind for package engage.
func (k Kind) engaged() engage.Kind {
	return engage.Kind{Object: k.Object, Owned: k.owned, Optional: k.remote, Fields: k.Fields,
		ManagedFields: k.ManagedFields || k.remote, Transform: k.Transform, Pack: k.Pack, Finished: k.Finished}
}
