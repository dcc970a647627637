package telemetry

import (
	"context"
	"encoding/hex"
	"slices"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/clustername"
)

// Stamped is implemented by objects whose status names the trace that last wrote it. For other objects only the writing
// process knows. An annotation would do for all kinds, but each later write of the object would carry it.
//
// A reconciler must write the status of such an object only if it has changed. An API server drops other writes that
// change nothing; with the stamp of a new trace each would be a new version, whose event wakes the reconciler again.
type Stamped interface {
	StampTrace(id string)
	WrittenInTrace() string
}

// rememberedWrites is how many written versions this process remembers.
const rememberedWrites = 4096

// Clusters finds the cluster of a request. A multicluster-runtime manager is one.
type Clusters = clustername.Clusters

// Clusters returns the same clusters for use by reconcilers. If a traced reconcile reads an object through them, its
// trace links to the trace that wrote the object, unless that was with Apply. While tracing is off, Clusters returns
// inner.
func (t *Telemetry) Clusters(inner Clusters) Clusters {
	if t.pipeline == nil {
		return inner
	}
	return &linkedClusters{inner: inner, telemetry: t}
}

type linkedClusters struct {
	inner     Clusters
	telemetry *Telemetry
}

func (c *linkedClusters) GetCluster(ctx context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	cl, err := c.inner.GetCluster(ctx, name)
	if f := flightOf(ctx); err == nil && f != nil && f.sampled {
		return &linkedCluster{Cluster: cl, client: linkedClient{Client: cl.GetClient(), flight: f,
			writes: c.telemetry.writes}}, nil
	}
	return cl, err
}

type linkedCluster struct {
	cluster.Cluster
	client linkedClient
}

func (c *linkedCluster) GetClient() client.Client { return &c.client }

// linkedClient belongs to one reconcile. It makes no requests of its own, and adds only the field of [Stamped].
type linkedClient struct {
	client.Client
	flight *flight
	writes writes
}

func (c *linkedClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object,
	opts ...client.GetOption) error {
	err := c.Client.Get(ctx, key, obj, opts...)
	if err != nil {
		return err
	}
	if from, ok := c.writes.find(creationOf(obj)); ok {
		c.flight.link(from, "created by")
	}
	if from, ok := c.writes.find(versionOf(obj)); ok {
		c.flight.link(from, "last written by")
	}
	if s, ok := obj.(Stamped); ok {
		if id, err := trace.TraceIDFromHex(s.WrittenInTrace()); err == nil {
			c.flight.link(sampledContext(id, rootOf(id)), "last written by")
		}
	}
	return nil
}

func (c *linkedClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	err := c.Client.Create(ctx, obj, answered(opts)...)
	if err == nil {
		c.writes.note(creationOf(obj), c.flight.context())
	}
	return err
}

func (c *linkedClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return c.wrote(obj, c.Client.Update(ctx, obj, opts...))
}

func (c *linkedClient) Patch(ctx context.Context, obj client.Object, patch client.Patch,
	opts ...client.PatchOption) error {
	return c.wrote(obj, c.Client.Patch(ctx, obj, patch, opts...))
}

func (c *linkedClient) Status() client.SubResourceWriter { return c.SubResource("status") }

func (c *linkedClient) SubResource(name string) client.SubResourceClient {
	return &linkedSubResource{SubResourceClient: c.Client.SubResource(name), of: c}
}

// answered drops options by which the object stays as it was sent, such as shard.AnswerUnread: links go by the UID and
// the version that the answer has.
func answered[option any](opts []option) []option {
	return slices.DeleteFunc(slices.Clone(opts), func(o option) bool {
		_, unread := any(o).(interface{ AnswerUnread() })
		return unread
	})
}

func (c *linkedClient) wrote(obj client.Object, err error) error {
	if err == nil {
		c.writes.note(versionOf(obj), c.flight.context())
	}
	return err
}

type linkedSubResource struct {
	client.SubResourceClient
	of *linkedClient
}

func (c *linkedSubResource) Update(ctx context.Context, obj client.Object,
	opts ...client.SubResourceUpdateOption) error {
	if s, ok := obj.(Stamped); ok {
		s.StampTrace(c.of.flight.traceID.String())
	}
	return c.of.wrote(obj, c.SubResourceClient.Update(ctx, obj, answered(opts)...))
}

func (c *linkedSubResource) Patch(ctx context.Context, obj client.Object, patch client.Patch,
	opts ...client.SubResourcePatchOption) error {
	return c.of.wrote(obj, c.SubResourceClient.Patch(ctx, obj, patch, opts...))
}

// version names one version of one object.
type version struct {
	uid             types.UID
	resourceVersion string
}

// creationOf identifies an object's creation, whatever version it has now.
func creationOf(obj client.Object) version { return version{uid: obj.GetUID()} }

func versionOf(obj client.Object) version { return version{obj.GetUID(), obj.GetResourceVersion()} }

// writes remembers the last versions that this process wrote, each with its trace.
type writes struct{ traces *lru.Cache }

func newWrites() writes { return writes{lru.New(rememberedWrites)} }

func (w writes) note(v version, by trace.SpanContext) { w.traces.Add(v, by) }

func (w writes) find(v version) (trace.SpanContext, bool) {
	by, ok := w.traces.Get(v)
	if !ok {
		return trace.SpanContext{}, false
	}
	return by.(trace.SpanContext), true
}

// traceparent formats a span's context as W3C Trace Context.
func traceparent(traceID trace.TraceID, spanID trace.SpanID, sampled bool) string {
	b := make([]byte, 55)
	copy(b, "00-")
	hex.Encode(b[3:], traceID[:])
	b[35] = '-'
	hex.Encode(b[36:], spanID[:])
	copy(b[52:], "-00")
	if sampled {
		b[54] = '1'
	}
	return string(b)
}
