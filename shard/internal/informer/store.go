package informer

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Config says what a Store holds.
type Config struct {
	Kind schema.GroupVersionKind
	// Namespaced says that the kind's objects have namespaces.
	Namespaced bool
	// Take is asked about the object of each watch event: what of it is to be kept, and whether it belongs here at all. Nil
	// takes all as they are. What is listed is taken as it comes.
	Take func(client.Object) (_ client.Object, belongs bool, _ error)
}

// Store holds the objects of one kind. It is safe for concurrent use.
type Store struct {
	cfg    Config
	synced chan struct{} // closed when the first list is in, and was shown to the handlers
	done   chan struct{} // closed when Run has returned

	// turn is held while a change is applied and shown, so that every handler sees all changes in the same order.
	turn sync.Mutex

	mu       sync.RWMutex                        // guards all below; never held while a handler runs
	objects  map[string]map[string]client.Object // by namespace and name
	size     int
	indexes  map[string]*index
	handlers []*registration // replaced, never changed
}

// New returns an empty Store.
func New(cfg Config) *Store {
	return &Store{
		cfg: cfg, synced: make(chan struct{}), done: make(chan struct{}), objects: map[string]map[string]client.Object{},
	}
}

// Run fills the Store, once, until the context ends. The example is an object of the kind: others that the server may send
// are refused.
func (s *Store) Run(ctx context.Context, from toolscache.ListerWatcher, example runtime.Object) {
	defer close(s.done)
	r := toolscache.NewReflectorWithOptions(from, example, filler{s}, toolscache.ReflectorOptions{Name: s.cfg.Kind.String()})
	r.RunWithContext(ctx)
}

// Len returns how many objects there are.
func (s *Store) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.size
}

// All are the objects that there are now, in no order. They are shared: don't change them.
func (s *Store) All() iter.Seq[client.Object] {
	return slices.Values(s.in(""))
}

// in returns the objects of a namespace, "" for all.
func (s *Store) in(namespace string) []client.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if namespace != "" {
		return slices.Collect(maps.Values(s.objects[namespace]))
	}
	all := make([]client.Object, 0, s.size)
	for _, objects := range s.objects {
		all = slices.AppendSeq(all, maps.Values(objects))
	}
	return all
}

// Peek returns an object, nil if there is none of that name. It is shared: don't change it.
func (s *Store) Peek(key types.NamespacedName) client.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects[key.Namespace][key.Name]
}

// put keeps an object, and returns the one that it replaces. Call it with the lock held.
func (s *Store) put(o client.Object) (old client.Object) {
	key := client.ObjectKeyFromObject(o)
	objects := s.objects[key.Namespace]
	if objects == nil {
		objects = map[string]client.Object{}
		s.objects[key.Namespace] = objects
	}
	if old = objects[key.Name]; old == nil {
		s.size++
	}
	objects[key.Name] = o
	for _, i := range s.indexes {
		i.replace(key, old, o)
	}
	return old
}

// remove drops an object, and returns it. Call it with the lock held.
func (s *Store) remove(key types.NamespacedName) (old client.Object) {
	objects := s.objects[key.Namespace]
	if old = objects[key.Name]; old == nil {
		return nil
	}
	s.size--
	if delete(objects, key.Name); len(objects) == 0 {
		delete(s.objects, key.Namespace)
	}
	for _, i := range s.indexes {
		i.replace(key, old, nil)
	}
	return old
}

// filler is how a Reflector fills a Store.
type filler struct{ *Store }

var _ toolscache.ReflectorStore = filler{}

func (f filler) Add(obj any) error { return f.set(obj) }

func (f filler) Update(obj any) error { return f.set(obj) }

func (f filler) set(obj any) error {
	f.turn.Lock()
	defer f.turn.Unlock()
	o, belongs, err := f.taken(obj)
	if err != nil || !belongs {
		return err
	}
	f.mu.Lock()
	old := f.put(o)
	f.mu.Unlock()
	f.show(change{old, o}, false)
	return nil
}

// Delete shows the deletion of an object that isn't here, too: the watch may have begun behind it.
func (f filler) Delete(obj any) error {
	f.turn.Lock()
	defer f.turn.Unlock()
	o, belongs, err := f.taken(obj)
	if err != nil || !belongs {
		return err
	}
	f.mu.Lock()
	f.remove(client.ObjectKeyFromObject(o))
	f.mu.Unlock()
	for _, h := range f.listeners() {
		h.deleted(o)
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

// Replace takes over a list of all that there is: what isn't on it has been deleted while nobody watched.
func (f filler) Replace(list []any, _ string) error {
	f.turn.Lock()
	defer f.turn.Unlock()
	gone, changes, err := f.exchange(list)
	if err != nil {
		return err
	}
	for _, o := range gone {
		key := toolscache.MetaObjectToName(o).String()
		for _, h := range f.listeners() {
			h.deleted(toolscache.DeletedFinalStateUnknown{Key: key, Obj: o})
		}
	}
	first := !f.HasSynced()
	for _, c := range changes {
		f.show(c, first)
	}
	if first {
		close(f.synced)
	}
	return nil
}

// change is an object that came (its old state is nil) or changed.
type change struct{ old, now client.Object }

// exchange puts what is listed in the place of what there was.
func (s *Store) exchange(list []any) (gone []client.Object, changes []change, _ error) {
	changes = make([]change, 0, len(list))
	listed := make(map[types.NamespacedName]struct{}, len(list))
	for _, obj := range list {
		o, ok := obj.(client.Object)
		if !ok {
			return nil, nil, fmt.Errorf("%s: a %T isn't an object", s.cfg.Kind.Kind, obj)
		}
		listed[client.ObjectKeyFromObject(o)] = struct{}{}
		changes = append(changes, change{now: o})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for namespace, objects := range s.objects {
		for name := range objects {
			key := types.NamespacedName{Namespace: namespace, Name: name}
			if _, there := listed[key]; !there {
				gone = append(gone, s.remove(key))
			}
		}
	}
	for i := range changes {
		changes[i].old = s.put(changes[i].now)
	}
	return gone, changes, nil
}

// Resync does nothing: see the package's comment.
func (filler) Resync() error { return nil }
