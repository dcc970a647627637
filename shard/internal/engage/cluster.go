package engage

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// Kind is one kind of object that a shard's caches hold.
type Kind struct {
	Object client.Object
	// Owned kinds are filtered by the slot label of what they belong to, primary kinds by their own UID.
	Owned bool
	// Fields is a field selector: primary kinds are listed and watched by it, owned kinds only listed. "" selects all.
	Fields string
	// Transform is what the kind's objects go through before they are cached, some of them twice; nil strips their managed
	// fields.
	Transform toolscache.TransformFunc
}

// Index is one field index on a shard's cache.
type Index struct {
	Object  client.Object
	Field   string
	Extract client.IndexerFunc
}

// Options are what all shards of a program have in common.
type Options struct {
	Kinds   []Kind
	Indexes []Index
	// ClientFiltering leaves the shardSelector out, so that primary kinds are filtered on arrival only: the reference
	// that server-side filtering is measured against.
	ClientFiltering bool
}

// Cluster is one shard of a real cluster, as a cluster.Cluster.
type Cluster struct {
	*recorders
	gate   *Gate
	kinds  []Kind
	config *rest.Config
	http   *http.Client
	cache  cache.Cache
	client client.Client
	live   client.Reader
	mapper meta.RESTMapper
}

var _ cluster.Cluster = (*Cluster)(nil)

// Open builds the cluster of a shard over a real one: the one that the shard is a part of, or another one for what the
// shard's objects own there (then all kinds must be owned ones). Nothing is started: see [Cluster.Warm]. The connection
// is shared by all shards of the real cluster; cache and client are the shard's own and go through its gate.
func Open(real *Connection, gate *Gate, traffic *Traffic, opts Options) (*Cluster, error) {
	config := real.Config()
	config.Wrap(func(base http.RoundTripper) http.RoundTripper {
		return &fence{gate: gate, base: base, traffic: traffic}
	})
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("building the transport of shard %s: %w", gate.shard, err)
	}
	c := &Cluster{gate: gate, kinds: opts.Kinds, config: config, http: httpClient, mapper: real.mapper}
	scheme := real.scheme
	c.recorders, err = newRecorders(config, httpClient, scheme)
	if err == nil {
		c.cache, err = newCache(config, httpClient, scheme, c.mapper, gate.shard, traffic, opts)
	}
	if err == nil {
		err = c.newClients(scheme)
	}
	if err != nil {
		return nil, fmt.Errorf("opening shard %s: %w", gate.shard, err)
	}
	for _, i := range opts.Indexes {
		if err := c.cache.IndexField(context.Background(), i.Object, i.Field, i.Extract); err != nil {
			return nil, fmt.Errorf("opening shard %s: indexing %s: %w", gate.shard, i.Field, err)
		}
	}
	return c, nil
}

func newRecorders(config *rest.Config, httpClient *http.Client, scheme *runtime.Scheme) (*recorders, error) {
	core, err := typedcorev1.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	events, err := typedeventsv1.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	return &recorders{scheme: scheme, core: core, events: events}, nil
}

// newClients builds the live reader and the fenced, cache-reading client.
func (c *Cluster) newClients(scheme *runtime.Scheme) error {
	live, err := client.New(c.config, client.Options{HTTPClient: c.http, Scheme: scheme, Mapper: c.mapper})
	if err != nil {
		return err
	}
	c.live = live
	declared, err := declaredKinds(scheme, c.kinds)
	if err != nil {
		return err
	}
	reader := &sharedReader{cached: c.cache, live: live, declared: declared}
	cached, err := client.New(c.config, client.Options{
		HTTPClient: c.http, Scheme: scheme, Mapper: c.mapper, Cache: &client.CacheOptions{Reader: reader, Unstructured: true},
	})
	if err != nil {
		return err
	}
	c.client = &fencedClient{Client: cached, gate: c.gate}
	return nil
}

// declaredKinds tells whether an object or a list is of a declared kind, in the form (typed, metadata-only) it was
// declared in: another form would need another cache.
func declaredKinds(scheme *runtime.Scheme, kinds []Kind) (func(runtime.Object) bool, error) {
	type form struct {
		schema.GroupKind
		metadataOnly bool
	}
	formOf := func(obj runtime.Object) (form, error) {
		gvk, err := apiutil.GVKForObject(obj, scheme)
		if err != nil {
			return form{}, err
		}
		if _, ok := obj.(client.ObjectList); ok && len(gvk.Kind) > len("List") {
			gvk.Kind = gvk.Kind[:len(gvk.Kind)-len("List")]
		}
		switch obj.(type) {
		case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
			return form{gvk.GroupKind(), true}, nil
		}
		return form{gvk.GroupKind(), false}, nil
	}
	known := map[form]bool{}
	for _, k := range kinds {
		f, err := formOf(k.Object)
		if err != nil {
			return nil, fmt.Errorf("kind %T: %w", k.Object, err)
		}
		known[f] = true
	}
	return func(obj runtime.Object) bool {
		f, err := formOf(obj)
		return err == nil && known[f]
	}, nil
}

// newCache builds the shard's cache: the declared kinds, each narrowed to the shard.
func newCache(config *rest.Config, httpClient *http.Client, scheme *runtime.Scheme, mapper meta.RESTMapper,
	shard keyspace.ShardID, traffic *Traffic, opts Options) (cache.Cache, error) {
	slots, err := labels.Parse(shard.Prefix.SlotSelector())
	if err != nil {
		return nil, fmt.Errorf("slot selector of %s: %w", shard, err)
	}
	byObject := map[client.Object]cache.ByObject{}
	kinds := map[schema.GroupVersionKind]Kind{}
	for _, k := range opts.Kinds {
		gvk, err := apiutil.GVKForObject(k.Object, scheme)
		if err != nil {
			return nil, fmt.Errorf("kind %T: %w", k.Object, err)
		}
		if k.Transform == nil {
			k.Transform = cache.TransformStripManagedFields()
		}
		kinds[gvk] = k
		how := cache.ByObject{Transform: k.Transform}
		if k.Owned {
			how.Label = slots
		}
		byObject[k.Object] = how
	}
	byUID := filter{traffic: traffic, keep: func(o metav1.Object) bool { return shard.Contains(string(o.GetUID())) }}
	if !opts.ClientFiltering && shard.Prefix.Bits() > 0 {
		byUID.shardSelector = shard.Prefix.Selector()
	}
	bySlot := filter{traffic: traffic, keep: func(o metav1.Object) bool {
		slot, err := keyspace.ParseSlot(o.GetLabels()[keyspace.SlotLabel])
		return err == nil && shard.Prefix.ContainsSlot(slot)
	}}
	return cache.New(config, cache.Options{
		HTTPClient:       httpClient,
		Scheme:           scheme,
		Mapper:           mapper,
		ByObject:         byObject,
		DefaultTransform: cache.TransformStripManagedFields(),
		NewInformer: func(lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			f := byUID
			if gvk, err := apiutil.GVKForObject(obj, scheme); err == nil {
				if kinds[gvk].Owned {
					f = bySlot
				}
				f.transform = kinds[gvk].Transform
				f.fields = &fieldSelector{text: kinds[gvk].Fields, listsOnly: kinds[gvk].Owned}
			}
			return toolscache.NewSharedIndexInformer(f.wrap(lw), obj, resync, indexers)
		},
	})
}

// Start runs the shard's cache until the context ends; then event recorders stop too.
func (c *Cluster) Start(ctx context.Context) error {
	defer c.stop()
	return c.cache.Start(ctx)
}

// Warm waits until the caches of all declared kinds are synced. Start must be running. It fails when a kind isn't
// served by the cluster or the cluster can't be asked; it can be tried again.
func (c *Cluster) Warm(ctx context.Context) error {
	for _, k := range c.kinds {
		if _, err := c.cache.GetInformer(ctx, k.Object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watching %T in shard %s: %w", k.Object, c.gate.shard, err)
		}
	}
	for _, k := range c.kinds { // all of them sync side by side
		informer, err := c.cache.GetInformer(ctx, k.Object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T in shard %s: %w", k.Object, c.gate.shard, err)
		}
		select {
		case <-informer.HasSyncedChecker().Done():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Objects returns how many objects of primary kinds the cache holds.
func (c *Cluster) Objects(ctx context.Context) int64 {
	var n int64
	for _, k := range c.kinds {
		if store := c.store(ctx, k.Object); store != nil && !k.Owned {
			n += int64(len(store.ListKeys()))
		}
	}
	return n
}

// Cached returns the objects of a declared kind that the cache holds. They are shared: don't change them.
func (c *Cluster) Cached(ctx context.Context, kind client.Object) []any {
	if store := c.store(ctx, kind); store != nil {
		return store.List()
	}
	return nil
}

// store returns the cache of a kind, nil if it can't be had.
func (c *Cluster) store(ctx context.Context, kind client.Object) toolscache.Store {
	informer, err := c.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return nil
	}
	return shared.GetStore()
}

// Gate returns the shard's gate.
func (c *Cluster) Gate() *Gate { return c.gate }

func (c *Cluster) GetHTTPClient() *http.Client          { return c.http }
func (c *Cluster) GetConfig() *rest.Config              { return c.config }
func (c *Cluster) GetCache() cache.Cache                { return c.cache }
func (c *Cluster) GetScheme() *runtime.Scheme           { return c.client.Scheme() }
func (c *Cluster) GetClient() client.Client             { return c.client }
func (c *Cluster) GetFieldIndexer() client.FieldIndexer { return c.cache }
func (c *Cluster) GetRESTMapper() meta.RESTMapper       { return c.mapper }
func (c *Cluster) GetAPIReader() client.Reader          { return c.live }
