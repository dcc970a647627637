package engage

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
)

// source returns the list-watch of all objects of a kind, in a form.
func (c *Cluster) source(f form, mapping *meta.RESTMapping) (toolscache.ListerWatcher, error) {
	bounded := *c.http
	bounded.Transport = boundedEvents{c.http.Transport}
	switch {
	case f.metadata:
		all, err := metadata.NewForConfigAndClient(rest.CopyConfig(c.config), &bounded)
		if err != nil {
			return nil, err
		}
		return listWatch(all.Resource(mapping.Resource).List, all.Resource(mapping.Resource).Watch), nil
	case f.untyped:
		all, err := dynamic.NewForConfigAndClient(rest.CopyConfig(c.config), &bounded)
		if err != nil {
			return nil, err
		}
		return listWatch(all.Resource(mapping.Resource).List, all.Resource(mapping.Resource).Watch), nil
	}
	scheme := c.scheme
	options := runtime.NewParameterCodec(scheme)
	all, err := c.typed(f, mapping, options)
	if err != nil {
		return nil, err
	}
	request := func(opts *metav1.ListOptions) *rest.Request {
		return all.Get().Resource(mapping.Resource.Resource).VersionedParams(opts, options)
	}
	return listWatch(
		func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list, err := scheme.New(f.GroupVersion().WithKind(f.Kind + "List"))
			if err != nil {
				return nil, err
			}
			return list, request(&opts).Do(ctx).Into(list)
		},
		func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.Watch = true
			return request(&opts).Watch(ctx)
		},
	), nil
}

// typed returns a client for one kind, which decodes the kind's watch events with less work than others ([streamed]).
// The shard's client uses it for some writes, too.
func (c *Cluster) typed(f form, mapping *meta.RESTMapping, options runtime.ParameterCodec) (rest.Interface, error) {
	config := rest.CopyConfig(c.config)
	version := f.GroupVersion()
	config.GroupVersion, config.APIPath = &version, "/apis"
	if f.Group == "" {
		config.APIPath = "/api"
	}
	if clientgoscheme.Scheme.Recognizes(f.GroupVersionKind) { // built-in kinds come, and go, as protobuf
		config.ContentType = cmp.Or(config.ContentType, runtime.ContentTypeProtobuf)
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	managed := c.filters.declared[f.GroupVersionKind].ManagedFields
	codec, err := stream(c.codecs.WithoutConversion(), f.GroupVersionKind, managed,
		func() (runtime.Object, error) { return c.scheme.New(f.GroupVersionKind) })
	if err != nil {
		return nil, err
	}
	config.NegotiatedSerializer = codec
	all, err := rest.RESTClientForConfigAndClient(config, c.http)
	if err != nil {
		return nil, err
	}
	// An object whose Go type is that of several kinds is left to controller-runtime, which asks the object.
	object, err := codec.example()
	if err != nil {
		return nil, err
	}
	if kinds, _, err := c.scheme.ObjectKinds(object); err == nil && len(kinds) == 1 {
		c.lean.Store(codec.goType, &leanKind{Interface: all, root: config.APIPath + "/" + version.String(),
			mapping: mapping, options: options, decoders: runtime.NewClientNegotiator(codec, version)})
	}
	return all, nil
}

// listWatch makes a ListWatch of two methods of a client.
func listWatch[list runtime.Object](all func(context.Context, metav1.ListOptions) (list, error),
	events func(context.Context, metav1.ListOptions) (watch.Interface, error)) *toolscache.ListWatch {
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			listed, err := all(ctx, opts)
			if err != nil {
				return nil, err // not a typed nil
			}
			return listed, nil
		},
		WatchFuncWithContext: events,
	}
}

// named sets the kind of metadata-only objects, which servers leave out.
func (f form) named(transform toolscache.TransformFunc) toolscache.TransformFunc {
	if !f.metadata {
		return transform
	}
	return func(obj any) (any, error) {
		m, ok := obj.(*metav1.PartialObjectMetadata)
		if !ok {
			return nil, fmt.Errorf("a %T isn't metadata of an object", obj)
		}
		m.SetGroupVersionKind(f.GroupVersionKind)
		if transform == nil {
			return obj, nil
		}
		return transform(obj)
	}
}
