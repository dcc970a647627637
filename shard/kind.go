package shard

import (
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/internal/informer"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// ErrFenced is what a write fails with whose shard isn't held any more. It was not sent.
var ErrFenced = engage.ErrFenced

// ErrUnfenceable is what a write fails with that no precondition can protect. It was not sent; the error says how to
// write instead.
var ErrUnfenceable = engage.ErrUnfenceable

// Kind is one kind of object that shards hold in their caches. [Primary], [Owned] and [Copies] declare one.
type Kind struct {
	Object client.Object
	// Owned kinds are filtered by the slot label of what they belong to, primary kinds by their own UID.
	Owned bool
	// Remote kinds are owned kinds that live in all the other clusters.
	Remote bool
	// In tells the clusters whose shards have the kind; nil means all.
	In func(keyspace.ClusterName) bool
	// Fields is a field selector that leaves out what is finished for good, so that it costs nothing at a takeover.
	// Objects of primary kinds that it doesn't select are neither listed nor watched, and one that it selects no longer
	// looks as if it had been deleted. Owned kinds are watched in any case, so that their last change is seen, and listed
	// by it. Where an API server doesn't know the fields (see selectableFields of a CRD), all objects are listed and
	// watched.
	Fields string
	// Transform is what the kind's objects go through before they are cached; nil strips their managed fields, but for
	// those of remote kinds. What it drops isn't in memory either while a cache is filled.
	Transform toolscache.TransformFunc
	// Pack makes something smaller of an object in a cache, for kinds that have many and look at few: it is unpacked each
	// time that it is read. It is given transformed objects, must not change them, and returns nil for those that are to
	// stay as they are. Nil packs none.
	Pack func(client.Object) Packed
}

// Packed is a cached object that takes little memory. Unpack makes the object that it was packed from, a new one each
// time, and is called from several goroutines; TypeMeta may be left out.
type Packed = informer.Packed

// Primary declares a kind whose objects are sharded by their own UID: what a controller is For.
func Primary(obj client.Object) Kind { return Kind{Object: obj} }

// Owned declares a kind whose objects follow the object that owns them. The client that reconcilers get labels what it
// creates for an owner; objects without that label are not seen. One whose creation fails because it is there already,
// with the same controller, is given the label then.
func Owned(obj client.Object) Kind { return Kind{Object: obj, Owned: true} }

// Copies declares a kind whose objects are owned, like [Owned], but live in all the other clusters. Inside a reconcile,
// GetCluster with a real cluster's name gives that cluster as the shard sees it.
func Copies(obj client.Object) Kind { return Kind{Object: obj, Owned: true, Remote: true} }

// in reports whether shards of the cluster have the kind.
func (k Kind) in(cluster keyspace.ClusterName) bool { return k.In == nil || k.In(cluster) }

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

// engaged is the kind as a shard's cluster takes it.
func (k Kind) engaged() engage.Kind {
	if k.Remote && k.Transform == nil { // who else manages a field of a copy matters
		k.Transform = func(obj any) (any, error) { return obj, nil }
	}
	return engage.Kind{Object: k.Object, Owned: k.Owned, Fields: k.Fields, Transform: k.Transform, Pack: k.Pack}
}
