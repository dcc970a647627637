package engage

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AnswerUnread is an option for Create and for the Update of a status or another subresource. It says that the caller
// doesn't need the answer, so the object may stay as it was sent, with the resourceVersion of before. Decoding an
// answer, which is the whole object, takes a large part of a status write's CPU. Other clients ignore the option, as do
// kinds without a typed cache. The whole object is asked for all the same, since the audit log has what was answered.
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
	root     string // of its API's paths
	mapping  *meta.RESTMapping
	options  runtime.ParameterCodec
	decoders runtime.ClientNegotiator
}

// request makes a write of an object to its kind's path in its namespace, or to a path below that. client-go would put
// the path together four times. ok is false if a part of it is invalid.
func (k *leanKind) request(write *rest.Request, obj client.Object, below ...string) (_ *rest.Request, ok bool) {
	path := append(make([]string, 0, 6), k.root)
	if k.mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		path = append(path, "namespaces", obj.GetNamespace())
	}
	path = append(append(path, k.mapping.Resource.Resource), below...)
	for _, part := range path[1:] {
		if part == "" || len(rest.IsValidPathSegmentName(part)) > 0 {
			return nil, false
		}
	}
	return write.AbsPath(path...).Body(obj), true
}

func (c leanClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	kind, ok := c.kinds.of(obj)
	others, unread := split(opts)
	if !ok || !unread {
		return c.Client.Create(ctx, obj, opts...)
	}
	r, ok := kind.request(kind.Post(), obj)
	if !ok {
		return c.Client.Create(ctx, obj, opts...)
	}
	if len(others) > 0 {
		r.VersionedParams((&client.CreateOptions{}).ApplyOptions(others).AsCreateOptions(), kind.options)
	}
	return kind.do(ctx, r, nil)
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
	if !ok || options.SubResourceBody != nil {
		return c.SubResourceClient.Update(ctx, obj, opts...)
	}
	r, ok := kind.request(kind.Put(), obj, obj.GetName(), c.name)
	if !ok {
		return c.SubResourceClient.Update(ctx, obj, opts...)
	}
	if len(others) > 0 {
		r.VersionedParams(options.AsUpdateOptions(), kind.options)
	}
	if unread {
		return kind.do(ctx, r, nil)
	}
	had := obj.GetObjectKind().GroupVersionKind() // decoding clears it
	err := kind.do(ctx, r, obj)
	if !had.Empty() { // as with controller-runtime's client
		obj.GetObjectKind().SetGroupVersionKind(had)
	}
	return err
}

// bodies holds buffers for answers.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// do sends a write, and decodes the answer into an object unless that is nil. It isn't [rest.Request.Do], which
// allocates several times an answer's size to read it, and puts the path together three times to count the request in
// metrics that nobody reads. An answer that isn't an API server's, such as a login page, doesn't say that the write was
// carried out.
func (k *leanKind) do(ctx context.Context, write *rest.Request, into runtime.Object) error {
	answer, err := write.Stream(ctx)
	if err != nil {
		return err
	}
	defer answer.Close()
	buffer := bodies.Get().(*bytes.Buffer)
	defer func() {
		if buffer.Cap() <= largeBuffer {
			bodies.Put(buffer)
		}
	}()
	buffer.Reset()
	if _, err := buffer.ReadFrom(answer); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	body, form := bytes.TrimLeft(buffer.Bytes(), " \t\r\n"), runtime.ContentTypeJSON
	switch {
	case bytes.HasPrefix(body, []byte("{")):
	case bytes.HasPrefix(body, []byte("k8s\x00")):
		form = runtime.ContentTypeProtobuf
	default:
		return fmt.Errorf("the answer isn't an API server's: it begins with %q", body[:min(len(body), 80)])
	}
	if into == nil {
		return nil
	}
	decoder, err := k.decoders.Decoder(form, nil)
	if err != nil {
		return err
	}
	out, _, err := decoder.Decode(body, nil, into)
	if err == nil && out != into {
		err = apierrors.FromObject(out)
	}
	return err
}
