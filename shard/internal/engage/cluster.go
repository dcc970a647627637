package engage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/tenure-dev/tenure/shard/internal/informer"
)

// Kind is one kind of object that a shard's caches hold.
type Kind struct {
	Object client.Object
	// Owned kinds are filtered by the slot label, which has the slot of an object's owner; primary kinds by their own
	// UID.
	Owned bool
	// Optional kinds are listed in every cluster, though not every cluster needs to allow it: a refusal (403) isn't held
	// against the cluster.
	Optional bool
	// The rest is as shard.Kind says.
	Fields        string
	ManagedFields bool
	Transform     toolscache.TransformFunc
	Pack          func(client.Object) informer.Packed
	Finished      func(client.Object) bool
}

// Index is one field index on a shard's cache.
type Index struct {
	Object  client.Object
	Field   string
	Extract client.IndexerFunc
}

// Options are what all shards of a program have in common.
type Options struct {
	Kinds []Kind
	// Indexes of a kind that isn't declared are left out where the shard is only a part of its cluster.
	Indexes []Index
	// ClientFiltering leaves the shardSelector out, so that primary kinds are filtered on arrival only: the reference
	// that server-side filtering is measured against.
	ClientFiltering bool
}

// Cluster is one shard of a real cluster, as a cluster.Cluster.
type Cluster struct {
	*recorders
	gate    *Gate
	kinds   []Kind
	scheme  *runtime.Scheme
	config  *rest.Config
	http    *http.Client
	codecs  serializer.CodecFactory
	filters filters
	caches  *caches
	stores  []*informing // of the declared kinds, in their order
	lean    leanKinds
	client  client.Client
	live    client.Client
	mapper  meta.RESTMapper

	Unindexed []string // fields of the indexes that were left out, with their kinds
}

var _ cluster.Cluster = (*Cluster)(nil)

// Open builds the cluster of a shard over a real one: the one that the shard is a part of, or another one for what the
// shard's objects own there (then all kinds must be owned ones). It asks which resources the kinds are, and fails if
// the cluster doesn't serve one. Nothing is started: see [Cluster.Warm]. The connection is shared by all shards of the
// real cluster; caches and client are the shard's own and go through its gate.
func Open(real *Connection, gate *Gate, traffic *Traffic, opts Options) (*Cluster, error) {
	config := real.Config()
	config.Wrap(func(base http.RoundTripper) http.RoundTripper {
		return &fence{gate: gate, base: base, traffic: traffic}
	})
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("building the transport of shard %s: %w", gate.shard, err)
	}
	c := &Cluster{
		gate: gate, kinds: opts.Kinds, scheme: real.scheme, config: config, http: httpClient, codecs: real.codecs(),
		mapper: real.mapper, filters: filters{shard: gate.shard, traffic: traffic, clientSide: opts.ClientFiltering},
	}
	c.recorders, err = newRecorders(config, httpClient, gate, real.scheme)
	if err == nil {
		c.live, err = client.New(config, client.Options{HTTPClient: httpClient, Scheme: real.scheme, Mapper: c.mapper})
	}
	if err == nil {
		err = c.newCaches(opts)
	}
	if err != nil {
		return nil, fmt.Errorf("opening shard %s: %w", gate.shard, err)
	}
	owned := func(obj runtime.Object) bool {
		kind, err := apiutil.GVKForObject(obj, real.scheme)
		return err == nil && c.filters.declared[kind].Owned
	}
	cached := &cachedClient{Client: leanClient{c.live, &c.lean}, caches: c.caches}
	c.client = &fencedClient{Client: cached, live: c.live, gate: gate, owned: owned}
	return c, nil
}

func newRecorders(config *rest.Config, httpClient *http.Client, gate *Gate, scheme *runtime.Scheme) (*recorders,
	error) {
	core, err := typedcorev1.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	events, err := typedeventsv1.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	return &recorders{scheme: scheme, gate: gate, core: core, events: events}, nil
}

// newCaches makes the caches of the declared kinds. It leaves out indexes of kinds that the shard can't cache: these
// are read live, and the API server refuses a list by a field that it doesn't know.
func (c *Cluster) newCaches(opts Options) error {
	c.caches = &caches{scheme: c.scheme, make: c.informing, kinds: map[form]*informing{}}
	c.filters.declared = map[schema.GroupVersionKind]Kind{}
	for _, k := range opts.Kinds {
		f, err := formOf(k.Object, c.scheme)
		if err != nil {
			return fmt.Errorf("kind %T: %w", k.Object, err)
		}
		c.filters.declared[f.GroupVersionKind] = k
		i, err := c.caches.of(f)
		if err != nil {
			return fmt.Errorf("kind %T: %w", k.Object, err)
		}
		c.stores = append(c.stores, i)
	}
	for _, i := range opts.Indexes {
		if f, err := formOf(i.Object, c.scheme); err == nil && c.uncacheable(f) {
			c.Unindexed = append(c.Unindexed, fmt.Sprintf("%s of %s", i.Field, f.GroupKind()))
			continue
		}
		if err := c.caches.IndexField(context.Background(), i.Object, i.Field, i.Extract); err != nil {
			return err
		}
	}
	return nil
}

// uncacheable reports whether the shard is only a part of its cluster and a kind isn't declared: then it isn't known
// which of the kind's objects belong to that part.
func (c *Cluster) uncacheable(f form) bool {
	_, declared := c.filters.declared[f.GroupVersionKind]
	return !declared && c.gate.shard.Prefix.Bits() > 0
}

// informing makes the informer of a kind, and doesn't run it.
func (c *Cluster) informing(f form) (*informing, error) {
	if c.uncacheable(f) {
		return nil, fmt.Errorf("an informer of %s in shard %s: the kind isn't declared, so it would show an arbitrary part "+
			"of the objects: declare it in shard.Config.Kinds, with Owned or Primary, or read it through GetClient, which "+
			"reads it live",
			f.GroupKind(), c.gate.shard)
	}
	mapping, err := c.mapper.RESTMapping(f.GroupKind(), f.Version)
	if err != nil {
		return nil, err
	}
	example, err := f.example(c.scheme)
	if err != nil {
		return nil, err
	}
	from, err := c.source(f, mapping)
	if err != nil {
		return nil, err
	}
	filter, kind := c.filters.of(f), c.filters.declared[f.GroupVersionKind]
	store := informer.New(informer.Config{
		Kind: f.GroupVersionKind, Namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace, Take: filter.take,
		Pack: kind.Pack, Finished: kind.Finished,
	})
	return &informing{Store: store, filter: filter, from: filter.wrap(from), example: example}, nil
}

// Start fills the shard's caches until the context ends; then event recorders stop too.
func (c *Cluster) Start(ctx context.Context) error {
	defer c.recorders.stop()
	return c.caches.Start(ctx)
}

// Warm waits until the caches of all declared kinds are synced. Start must be running. It fails only with the
// context's error. Requests that fail meanwhile are repeated.
func (c *Cluster) Warm(ctx context.Context) error {
	for _, s := range c.stores { // all of them sync side by side
		if err := s.AwaitSync(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Unsynced names the declared kinds for which Warm waits, and says why; nil if there are none. A kind that the cluster
// forbids, and need not allow, is left out, and without pending one whose first list is under way.
func (c *Cluster) Unsynced(pending bool) error {
	return c.complaints(func(s *informing) string { return s.lacks(pending) })
}

// Behind names the declared kinds whose caches aren't kept up to date, since their lists or watches have failed for as
// long as lasting, and says why; nil if there are none. What failed before from doesn't count.
func (c *Cluster) Behind(from time.Time, lasting time.Duration) error {
	return c.complaints(func(s *informing) string { return s.behind(from, lasting) })
}

// complaints returns what is wrong with declared kinds; nil if nothing is.
func (c *Cluster) complaints(of func(*informing) string) error {
	var all []string
	for _, s := range c.stores {
		if wrong := of(s); wrong != "" {
			all = append(all, wrong)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return errors.New(strings.Join(all, "; "))
}

// Objects returns how many objects of primary kinds the caches hold.
func (c *Cluster) Objects() (n int64) {
	for i, k := range c.kinds {
		if !k.Owned {
			n += int64(c.stores[i].Len())
		}
	}
	return n
}

// Informer returns the informer of a declared kind. Its objects are shared: don't change them.
func (c *Cluster) Informer(kind client.Object) (*informer.Store, error) {
	i := c.caches.known(kind)
	if i == nil {
		return nil, fmt.Errorf("kind %T isn't declared", kind)
	}
	return i.Store, nil
}

func (c *Cluster) GetHTTPClient() *http.Client          { return c.http }
func (c *Cluster) GetConfig() *rest.Config              { return c.config }
func (c *Cluster) GetCache() cache.Cache                { return c.caches }
func (c *Cluster) GetScheme() *runtime.Scheme           { return c.client.Scheme() }
func (c *Cluster) GetClient() client.Client             { return c.client }
func (c *Cluster) GetFieldIndexer() client.FieldIndexer { return c.caches }
func (c *Cluster) GetRESTMapper() meta.RESTMapper       { return c.mapper }
func (c *Cluster) GetAPIReader() client.Reader          { return c.live }
