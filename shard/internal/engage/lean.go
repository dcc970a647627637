package engage

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AnswerUnread is an option for Create and for the Update of a status or another subresource. It says that the caller
// doesn't need the answer, so the object may stay as it was sent, with the resourceVersion of before. Decoding an
// answer, which is the whole object, took two fifths of a status write's CPU. Other clients, and kinds without a typed
// cache, ignore the option. The whole object is asked for all the same, since the audit log has what was answered.
type AnswerUnread struct{}

func (AnswerUnread) ApplyToCreate(*client.CreateOptions)                       {}
func (AnswerUnread) ApplyToSubResourceUpdate(*client.SubResourceUpdateOptions) {}

// AnswerUnread marks the option for layers between the caller and the shard's client that need the answer themselves.
func (AnswerUnread) AnswerUnread() {}

// split takes AnswerUnread out of the options, and reports whether it was there.
func split[option any](opts []option) (others []option, unread bool) {
	for _, o := range opts {
		if _, is := any(o).(AnswerUnread); is {
			unread = true
			continue
		}
		others = append(others, o)
	}
	return others, unread
}

// leanClient is a client whose writes of declared kinds take less work: answers are decoded as watch events are
// ([streamed]), or not at all ([AnswerUnread]).
type leanClient struct {
	client.Client
	kinds *leanKinds
}

// leanKinds has the clients of kinds, by their Go types. It is safe for concurrent use.
type leanKinds struct{ sync.Map }

// of returns the client of an object's kind; ok is false if it has none.
func (k *leanKinds) of(obj client.Object) (_ *leanKind, ok bool) {
	kind, ok := k.Load(reflect.TypeOf(obj))
	if !ok {
		return nil, false
	}
	return kind.(*leanKind), true
}

// leanKind is the client of one kind.
type leanKind struct {
	rest.Interface
	mapping *meta.RESTMapping
	options runtime.ParameterCodec
}

// in makes a request one about the kind's objects in a namespace, which doesn't matter where the kind has none.
func (k *leanKind) in(namespace string, r *rest.Request) *rest.Request {
	return r.NamespaceIfScoped(namespace, k.mapping.Scope.Name() == meta.RESTScopeNameNamespace).
		Resource(k.mapping.Resource.Resource)
}

func (c leanClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	kind, ok := c.kinds.of(obj)
	others, unread := split(opts)
	if !ok || !unread {
		return c.Client.Create(ctx, obj, opts...)
	}
	r := kind.in(obj.GetNamespace(), kind.Post()).Body(obj)
	if len(others) > 0 {
		r.VersionedParams((&client.CreateOptions{}).ApplyOptions(others).AsCreateOptions(), kind.options)
	}
	return unreadError(r.Do(ctx))
}

func (c leanClient) Status() client.SubResourceWriter { return c.SubResource("status") }

func (c leanClient) SubResource(name string) client.SubResourceClient {
	return leanSubResource{SubResourceClient: c.Client.SubResource(name), kinds: c.kinds, name: name}
}

type leanSubResource struct {
	client.SubResourceClient
	kinds *leanKinds
	name  string
}

func (c leanSubResource) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	kind, ok := c.kinds.of(obj)
	others, unread := split(opts)
	options := (&client.SubResourceUpdateOptions{}).ApplyOptions(others)
	if !ok || options.SubResourceBody != nil || obj.GetName() == "" {
		return c.SubResourceClient.Update(ctx, obj, opts...)
	}
	r := kind.in(obj.GetNamespace(), kind.Put()).Name(obj.GetName()).SubResource(c.name).Body(obj)
	if len(others) > 0 {
		r.VersionedParams(options.AsUpdateOptions(), kind.options)
	}
	if unread {
		return unreadError(r.Do(ctx))
	}
	had := obj.GetObjectKind().GroupVersionKind() // decoding clears it
	err := r.Do(ctx).Into(obj)
	if !had.Empty() { // as with controller-runtime's client
		obj.GetObjectKind().SetGroupVersionKind(had)
	}
	return err
}

// unreadError returns the error of a write whose answer isn't decoded. An answer that isn't an API server's, such as a
// login page, doesn't say that the write was carried out.
func unreadError(answer rest.Result) error {
	if err := answer.Error(); err != nil {
		return err
	}
	var form string
	body, err := answer.ContentType(&form).Raw()
	if err == nil && (len(body) == 0 || strings.HasPrefix(form, "text/")) {
		err = fmt.Errorf("the answer isn't an API server's: %d bytes of %q", len(body), form)
	}
	return err
}
