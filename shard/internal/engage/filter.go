package engage

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/shard/internal/informer"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// filters make the filters of a shard.
type filters struct {
	shard      keyspace.ShardID
	traffic    *Traffic
	clientSide bool
	declared   map[schema.GroupVersionKind]Kind
}

// of returns the filter of a kind. A kind that isn't declared is treated as a primary one. Only a shard that is a
// whole cluster has caches of such kinds, so all their objects are in it.
func (s *filters) of(of form) *filter {
	k := s.declared[of.GroupVersionKind]
	prefix := s.shard.Prefix
	f := &filter{traffic: s.traffic, optional: k.Optional, managed: k.ManagedFields, pack: k.Pack,
		transform: of.named(k.Transform)}
	f.fields.text, f.fields.listsOnly = k.Fields, k.Owned
	if k.Owned {
		f.labels = prefix.SlotSelector()
		f.keep = func(o metav1.Object) bool {
			slot, err := keyspace.ParseSlot(o.GetLabels()[keyspace.SlotLabel])
			return err == nil && prefix.ContainsSlot(slot)
		}
		return f
	}
	f.keep = func(o metav1.Object) bool { return s.shard.Contains(string(o.GetUID())) }
	if !s.clientSide && prefix.Bits() > 0 {
		f.shards.text = prefix.Selector()
	}
	return f
}

// filter selects the objects of a kind that belong to a shard: by selectors for the server, and by a check of what
// arrives.
type filter struct {
	shards   selector // shardSelector, for primary kinds; KEP-5866
	labels   string   // for owned kinds
	fields   selector // leaves out objects that are finished for good
	keep     func(metav1.Object) bool
	traffic  *Traffic
	optional bool                                // the cluster may refuse lists
	managed  bool                                // managed fields are kept
	pack     func(client.Object) informer.Packed // listed objects; nil packs none
	// transform is applied to objects before they are kept; nil for none.
	transform toolscache.TransformFunc
	failing   atomic.Pointer[failing] // not nil from a failure until a watch begins
}

// failing says that lists fail, or that watches can't begin.
type failing struct {
	first, last time.Time
	err         error // the last
}

// fails records that a list failed, or that a watch couldn't begin. A list that succeeds doesn't end that: the watch
// after it may be what is refused.
func (f *filter) fails(err error) {
	now := time.Now()
	first := now
	if before := f.failing.Load(); before != nil {
		first = before.first
	}
	f.failing.Store(&failing{first, now, err})
}

// selector leaves out objects, where the API server knows it. The zero value leaves out none.
type selector struct {
	text      string
	listsOnly bool
	unknown   atomic.Bool // the API server that was last listed from doesn't know it
}

func (s *selector) ofList() string {
	if s.unknown.Load() {
		return ""
	}
	return s.text
}

func (s *selector) ofWatch() string {
	if s.listsOnly {
		return ""
	}
	return s.ofList()
}

// sift transforms and packs the items of a page that belong to the shard, and drops the others. So what isn't kept
// takes memory for a page at a time. spaces has the namespaces of earlier pages. arrived is the number of all items.
func (f *filter) sift(list runtime.Object, spaces map[string]string) (kept []runtime.Object, arrived int64, _ error) {
	items, err := meta.ExtractListWithAlloc(list) // what is kept mustn't hold the rest of its page in memory
	if err != nil {
		return nil, 0, fmt.Errorf("reading the items of a %T: %w", list, err)
	}
	kept = items[:0]
	for _, item := range items {
		o, ok := item.(client.Object)
		if !ok {
			return nil, 0, fmt.Errorf("a %T has a %T, which isn't an object", list, item)
		}
		o, belongs, err := f.take(o)
		if err != nil {
			return nil, 0, err
		}
		if belongs {
			kept = append(kept, f.packed(o, spaces))
		}
	}
	clear(items[len(kept):])
	return kept, int64(len(items)), nil
}

func (f *filter) packed(o client.Object, spaces map[string]string) runtime.Object {
	if f.pack == nil {
		return o
	}
	space, known := spaces[o.GetNamespace()]
	if !known {
		space = o.GetNamespace()
		spaces[space] = space
	}
	o.SetNamespace(space) // the same text, in one place of the memory
	p := f.pack(o)
	if p == nil {
		return o
	}
	return &informer.Listed{Key: client.ObjectKeyFromObject(o), Packed: p}
}

// items is a whole list. Its items are of one kind, or what was packed of such.
type items struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []runtime.Object
}

// DeepCopyObject copies the list and not what is in it, which nobody changes.
func (l *items) DeepCopyObject() runtime.Object {
	return &items{l.TypeMeta, *l.ListMeta.DeepCopy(), slices.Clone(l.Items)}
}

// take checks and transforms an object of a list or of a watch event; belongs is false if it isn't the shard's.
func (f *filter) take(o client.Object) (_ client.Object, belongs bool, _ error) {
	if !f.keep(o) {
		f.traffic.Discarded.Add(1)
		return nil, false, nil
	}
	f.traffic.Kept.Add(1)
	if !f.managed {
		o.SetManagedFields(nil)
	}
	if f.transform == nil {
		return o, true, nil
	}
	made, err := f.transform(o)
	if err != nil {
		return nil, false, fmt.Errorf("transforming a %T: %w", o, err)
	}
	o, ok := made.(client.Object)
	if !ok {
		return nil, false, fmt.Errorf("a transform made a %T, which isn't an object", made)
	}
	return o, true, nil
}
