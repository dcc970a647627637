package engage

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/tenure-dev/tenure/shard/internal/informer"
)

// form is a kind as a cache holds it: whole objects of their Go type, whole ones without a type, or metadata only.
type form struct {
	schema.GroupVersionKind
	metadata, untyped bool
}

// formOf returns the form of an object, or of a list's items.
func formOf(obj runtime.Object, scheme *runtime.Scheme) (form, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return form{}, err
	}
	if _, list := obj.(client.ObjectList); list {
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	}
	f := form{GroupVersionKind: gvk}
	switch obj.(type) {
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		f.metadata = true
	case runtime.Unstructured:
		f.untyped = true
	}
	return f, nil
}

// example returns an object of the form.
func (f form) example(scheme *runtime.Scheme) (runtime.Object, error) {
	var made runtime.Object
	switch {
	case f.metadata:
		made = &metav1.PartialObjectMetadata{}
	case f.untyped:
		made = &unstructured.Unstructured{}
	default:
		return scheme.New(f.GroupVersionKind)
	}
	made.GetObjectKind().SetGroupVersionKind(f.GroupVersionKind)
	return made, nil
}

// informing is the informer of one kind.
type informing struct {
	*informer.Store
	filter  *filter
	from    toolscache.ListerWatcher
	example runtime.Object
	cancel  context.CancelFunc // stops it; nil before it runs
}

// lacks says that the cache isn't synced, and why its last list failed if it did. It returns "" if the cache is synced,
// if its cluster forbids the lists and need not allow them, or, without pending, if no list has failed. Watches don't
// matter: none begins before a list is in.
func (i *informing) lacks(pending bool) string {
	fails := i.filter.failing.Load()
	if i.HasSynced() || fails != nil && i.filter.mayRefuse(fails.err) || fails == nil && !pending {
		return ""
	}
	why := "its first list isn't in yet"
	if fails != nil {
		why = fails.err.Error()
	}
	return fmt.Sprintf("%s isn't synced: %s", i.HasSyncedChecker().Name(), why)
}

// behind says that the cache isn't kept up to date, and why: for as long as lasting, lists have failed, or watches
// couldn't begin. What failed before from doesn't count. It returns "" if all is well, or if its cluster need not allow
// what it forbids. A list that is only slow has not failed.
func (i *informing) behind(from time.Time, lasting time.Duration) string {
	fails := i.filter.failing.Load()
	if fails == nil || i.filter.mayRefuse(fails.err) || fails.last.Sub(fails.first) < lasting ||
		fails.last.Sub(from) < lasting {
		return ""
	}
	return fmt.Sprintf("%s isn't kept up to date: %v", i.HasSyncedChecker().Name(), fails.err)
}

// caches holds a shard's caches: of its declared kinds, and of other kinds for which an informer is requested. It is
// safe for concurrent use.
type caches struct {
	scheme *runtime.Scheme
	make   func(form) (*informing, error)

	mu    sync.Mutex // guards all below
	kinds map[form]*informing
	ctx   context.Context // nil before Start
	ended bool            // no run begins any more
	runs  sync.WaitGroup
}

var _ cache.Cache = (*caches)(nil)

// known returns the informer of an object's kind or of a list's items, nil if there is none.
func (c *caches) known(obj runtime.Object) *informing {
	f, err := formOf(obj, c.scheme)
	if err != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kinds[f]
}

// of returns the informer of a form. The first call makes it, which may ask the cluster for the resource.
func (c *caches) of(f form) (*informing, error) {
	c.mu.Lock()
	i := c.kinds[f]
	c.mu.Unlock()
	if i != nil {
		return i, nil
	}
	made, err := c.make(f)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i = c.kinds[f]; i != nil {
		return i, nil
	}
	c.kinds[f] = made
	c.run(made)
	return made, nil
}

// run begins to fill a cache, once Start was called. Call it with the lock held.
func (c *caches) run(i *informing) {
	if c.ctx == nil || c.ended {
		return
	}
	ctx, cancel := context.WithCancel(c.ctx)
	i.cancel = cancel
	c.runs.Go(func() { i.Run(ctx, i.from, i.example) })
}

// Start fills the caches until the context ends.
func (c *caches) Start(ctx context.Context) error {
	c.mu.Lock()
	c.ctx = ctx
	for _, i := range c.kinds {
		c.run(i)
	}
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.runs.Wait()
	return nil
}

func (c *caches) GetInformer(ctx context.Context, obj client.Object,
	opts ...cache.InformerGetOption) (cache.Informer, error) {
	f, err := formOf(obj, c.scheme)
	if err != nil {
		return nil, err
	}
	return c.informer(ctx, f, opts)
}

func (c *caches) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind,
	opts ...cache.InformerGetOption) (cache.Informer, error) {
	return c.informer(ctx, form{GroupVersionKind: gvk}, opts)
}

func (c *caches) informer(ctx context.Context, f form, opts []cache.InformerGetOption) (cache.Informer, error) {
	i, err := c.of(f)
	if err != nil {
		return nil, err
	}
	var o cache.InformerGetOptions
	for _, set := range opts {
		set(&o)
	}
	if !ptr.Deref(o.BlockUntilSynced, true) {
		return i, nil
	}
	return i, i.AwaitSync(ctx)
}

// RemoveInformer stops the informer of a kind, and drops what it holds.
func (c *caches) RemoveInformer(_ context.Context, obj client.Object) error {
	f, err := formOf(obj, c.scheme)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.kinds[f]; i != nil && i.cancel != nil {
		i.cancel()
	}
	delete(c.kinds, f)
	return nil
}

func (c *caches) WaitForCacheSync(ctx context.Context) bool {
	c.mu.Lock()
	var all []*informing
	for _, i := range c.kinds {
		all = append(all, i)
	}
	c.mu.Unlock()
	for _, i := range all { // all of them sync side by side
		if i.AwaitSync(ctx) != nil {
			return false
		}
	}
	return true
}

func (c *caches) IndexField(_ context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	f, err := formOf(obj, c.scheme)
	if err != nil {
		return err
	}
	i, err := c.of(f)
	if err != nil {
		return fmt.Errorf("indexing %s: %w", field, err)
	}
	return i.IndexField(field, extract)
}

func (c *caches) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	i, err := c.reader(obj)
	if err != nil {
		return err
	}
	return i.Get(ctx, key, obj, opts...)
}

func (c *caches) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	i, err := c.reader(list)
	if err != nil {
		return err
	}
	return i.List(ctx, list, opts...)
}

// reader makes a cache of a kind that is read for the first time, as controller-runtime's caches do.
func (c *caches) reader(obj runtime.Object) (client.Reader, error) {
	f, err := formOf(obj, c.scheme)
	if err != nil {
		return nil, err
	}
	return c.of(f)
}
