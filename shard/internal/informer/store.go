package informer

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Config says what a Store holds.
type Config struct {
	Kind schema.GroupVersionKind
	// Namespaced says that the kind's objects have namespaces.
	Namespaced bool
	// Take is called with the object of each watch event. It returns what to keep of it, and whether it belongs here
	// at all. Nil keeps all objects as they are. Listed objects are kept without it.
	Take func(client.Object) (_ client.Object, belongs bool, _ error)
	// Pack returns a smaller form of an object, or nil to keep the object as it is. Nil packs none. A list may have
	// objects that are packed already: see [Listed].
	Pack func(client.Object) Packed
	// Finished reports whether an object has come to its end, so that hardly anybody reads it any more. It is dropped
	// some time later, see keepFinished; handlers aren't told. Nil drops none.
	Finished func(client.Object) bool
}

// Packed is an object that takes little memory.
type Packed interface {
	// Unpack returns a new object like the one that was packed, but may leave out its kind (TypeMeta). It is called
	// from several goroutines.
	Unpack() client.Object
}

// Listed is an object of a list that was packed as soon as it was read. So a long list takes no more memory than what
// is kept of it. Its namespace should be one string for all objects.
type Listed struct {
	Key types.NamespacedName
	Packed
}

var _ runtime.Object = (*Listed)(nil)

// GetObjectKind tells nothing. A Listed is a runtime.Object so that it can be an item of a list.
func (*Listed) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the same, since nobody changes it.
func (l *Listed) DeepCopyObject() runtime.Object { return l }

// kept is what a Store holds for an object: a client.Object or a Packed; nil for none.
type kept any

// opened returns a kept object, nil for none. It is shared unless it was packed.
func opened(k kept) client.Object {
	switch k := k.(type) {
	case client.Object:
		return k
	case Packed:
		return k.Unpack()
	}
	return nil
}

// space is a namespace.
type space struct {
	name    string // the one string that all its objects share
	objects map[string]kept
}

// Store holds the objects of one kind. It is safe for concurrent use.
type Store struct {
	cfg    Config
	synced chan struct{} // closed when the first list is in
	shown  chan struct{} // closed when the handlers have received it
	done   chan struct{} // closed when Run has returned

	// turn is held while a change is applied and shown, so that every handler sees all changes in the same order.
	turn sync.Mutex

	mu       sync.RWMutex // guards all below; never held while a handler runs
	spaces   map[string]*space
	size     int
	finished []leaver // the longest first
	drops    *time.Timer
	indexes  map[string]*index
	handlers []*registration // replaced, never changed
}

// New returns an empty Store.
func New(cfg Config) *Store {
	return &Store{
		cfg: cfg, synced: make(chan struct{}), shown: make(chan struct{}), done: make(chan struct{}),
		spaces: map[string]*space{},
	}
}

// Lists that fail are tried again after pauses that double, and that are up to a quarter longer than these. A
// reflector's own pauses, of up to a minute, would keep a cluster that is back unserved for as long. The number of
// lists at a time is bounded elsewhere.
const firstPause, lastPause = 500 * time.Millisecond, 4 * time.Second

// Run fills the Store until the context ends. Call it once. The example is an object of the kind: objects of other
// types are refused.
func (s *Store) Run(ctx context.Context, from toolscache.ListerWatcher, example runtime.Object) {
	defer close(s.done)
	defer s.keepAll()
	r := toolscache.NewReflectorWithOptions(from, example, filler{s},
		toolscache.ReflectorOptions{Name: s.cfg.Kind.String(), Backoff: &wait.Backoff{Duration: firstPause, Cap: lastPause,
			Steps: 20, Factor: 2, Jitter: 0.25}})
	r.RunWithContext(ctx)
}

// Len returns how many objects there are.
func (s *Store) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.size
}

// All iterates over the objects that exist now, in no order. They are shared: don't change them.
func (s *Store) All() iter.Seq[client.Object] {
	return func(yield func(client.Object) bool) {
		for _, k := range s.in("") {
			if !yield(opened(k)) {
				return
			}
		}
	}
}

// in returns the objects of a namespace, "" for all.
func (s *Store) in(namespace string) (all []kept) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if namespace != "" {
		if space := s.spaces[namespace]; space != nil {
			all = slices.Collect(maps.Values(space.objects))
		}
		return all
	}
	all = make([]kept, 0, s.size)
	for _, space := range s.spaces {
		all = slices.AppendSeq(all, maps.Values(space.objects))
	}
	return all
}

// Peek returns an object, nil if there is none of that name. It is shared: don't change it.
func (s *Store) Peek(key types.NamespacedName) client.Object {
	s.mu.RLock()
	k := s.find(key)
	s.mu.RUnlock()
	return opened(k)
}

// find returns an object. Call it with the lock held.
func (s *Store) find(key types.NamespacedName) kept {
	if space := s.spaces[key.Namespace]; space != nil {
		return space.objects[key.Name]
	}
	return nil
}

// put keeps an object, and returns the one that it replaces. Call it with the lock held.
func (s *Store) put(o client.Object) (old kept) {
	key := client.ObjectKeyFromObject(o)
	in := s.space(key.Namespace)
	o.SetNamespace(in.name) // the same text, in one place of the memory
	old = s.swap(in, key.Name, s.packed(o))
	s.follow(key, old, o)
	return old
}

// putListed does the same with an object that is packed already.
func (s *Store) putListed(l *Listed) (old kept) {
	old = s.swap(s.space(l.Key.Namespace), l.Key.Name, l.Packed)
	if len(s.indexes) > 0 || s.cfg.Finished != nil {
		s.follow(l.Key, old, l.Unpack())
	}
	return old
}

func (s *Store) space(name string) *space {
	in := s.spaces[name]
	if in == nil {
		in = &space{name: name, objects: map[string]kept{}}
		s.spaces[name] = in
	}
	return in
}

func (s *Store) swap(in *space, name string, k kept) (old kept) {
	if old = in.objects[name]; old == nil {
		s.size++
	}
	in.objects[name] = k
	return old
}

// follow does what else depends on an object that is now kept in the place of another or of none.
func (s *Store) follow(key types.NamespacedName, old kept, o client.Object) {
	for _, i := range s.indexes {
		i.replace(key, opened(old), o)
	}
	s.leaves(key, o)
}

func (s *Store) packed(o client.Object) kept {
	if s.cfg.Pack != nil {
		if p := s.cfg.Pack(o); p != nil {
			return p
		}
	}
	return o
}

// remove drops an object, and returns it. Call it with the lock held.
func (s *Store) remove(key types.NamespacedName) (old kept) {
	if old = s.find(key); old == nil {
		return nil
	}
	s.size--
	in := s.spaces[key.Namespace]
	if delete(in.objects, key.Name); len(in.objects) == 0 {
		delete(s.spaces, key.Namespace)
	}
	for _, i := range s.indexes {
		i.replace(key, opened(old), nil)
	}
	return old
}

// filler fills a Store for a Reflector.
type filler struct{ *Store }

var _ toolscache.ReflectorStore = filler{}

func (f filler) Add(obj any) error { return f.set(obj) }

func (f filler) Update(obj any) error { return f.set(obj) }

func (f filler) set(obj any) error {
	f.turn.Lock()
	defer f.turn.Unlock()
	o, belongs, err := f.taken(obj)
	if err != nil || !belongs {
		return f.left(obj, err)
	}
	f.mu.Lock()
	old := f.put(o)
	f.mu.Unlock()
	f.show(change{old, o}, false)
	return nil
}

// Delete shows the deletion even of an object that the Store doesn't hold: the list may have left it out.
func (f filler) Delete(obj any) error {
	f.turn.Lock()
	defer f.turn.Unlock()
	o, belongs, err := f.taken(obj)
	if err != nil || !belongs {
		return f.left(obj, err)
	}
	f.mu.Lock()
	f.remove(client.ObjectKeyFromObject(o))
	f.mu.Unlock()
	for _, h := range f.listeners() {
		h.deleted(o)
	}
	return nil
}

// left drops an object that was held until now and doesn't belong here any more, such as one whose slot label was
// overwritten by something that is no slot. Call it with the turn held. An error is returned as it is.
func (f filler) left(obj any, err error) error {
	now, ok := obj.(client.Object)
	if err != nil || !ok {
		return err
	}
	key := client.ObjectKeyFromObject(now)
	f.mu.Lock()
	held := opened(f.find(key))
	gone := held != nil && held.GetUID() == now.GetUID() // otherwise another object has the name by now
	if gone {
		f.remove(key)
	}
	f.mu.Unlock()
	if gone {
		for _, h := range f.listeners() {
			h.deleted(held)
		}
	}
	return nil
}

func (s *Store) taken(obj any) (_ client.Object, belongs bool, _ error) {
	o, ok := obj.(client.Object)
	if !ok {
		return nil, false, fmt.Errorf("%s: a %T isn't an object", s.cfg.Kind.Kind, obj)
	}
	if s.cfg.Take == nil {
		return o, true, nil
	}
	return s.cfg.Take(o)
}

// Replace takes over a list of all objects. Objects that aren't on it were deleted while there was no watch.
func (f filler) Replace(list []any, _ string) error {
	f.turn.Lock()
	defer f.turn.Unlock()
	gone, changes, err := f.exchange(list)
	if err != nil {
		return err
	}
	first := !f.HasSynced()
	if first {
		close(f.synced) // handlers may read
	}
	for _, k := range gone {
		o := opened(k)
		key := toolscache.MetaObjectToName(o).String()
		for _, h := range f.listeners() {
			h.deleted(toolscache.DeletedFinalStateUnknown{Key: key, Obj: o})
		}
	}
	for _, c := range changes {
		f.show(c, first)
	}
	if first {
		close(f.shown)
	}
	return nil
}

// change is an object that came (its old state is nil) or changed.
type change struct {
	old, now kept
}

// exchange replaces all objects by the listed ones. It returns what has changed for handlers, if there are any.
func (s *Store) exchange(list []any) (gone []kept, changes []change, _ error) {
	for _, obj := range list {
		if _, err := s.key(obj); err != nil {
			return nil, nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size > 0 {
		gone = s.removeUnlisted(list)
	}
	for _, obj := range list {
		c := change{now: obj}
		switch o := obj.(type) {
		case *Listed:
			c = change{s.putListed(o), o.Packed}
		case client.Object:
			c.old = s.put(o)
		}
		if len(s.handlers) > 0 {
			changes = append(changes, c)
		}
	}
	return gone, changes, nil
}

func (s *Store) removeUnlisted(list []any) (gone []kept) {
	listed := make(map[types.NamespacedName]struct{}, len(list))
	for _, obj := range list {
		key, _ := s.key(obj)
		listed[key] = struct{}{}
	}
	for namespace, space := range s.spaces {
		for name := range space.objects {
			key := types.NamespacedName{Namespace: namespace, Name: name}
			if _, there := listed[key]; !there {
				gone = append(gone, s.remove(key))
			}
		}
	}
	return gone
}

// key returns the key of what a list has.
func (s *Store) key(obj any) (types.NamespacedName, error) {
	switch o := obj.(type) {
	case *Listed:
		return o.Key, nil
	case client.Object:
		return client.ObjectKeyFromObject(o), nil
	}
	return types.NamespacedName{}, fmt.Errorf("%s: a %T isn't an object", s.cfg.Kind.Kind, obj)
}

// Resync does nothing: see the package's comment.
func (filler) Resync() error { return nil }
