package engage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	goruntime "runtime"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// streamed decodes the lists and watch events of one typed kind, and the answers to its updates, with the same results
// as client-go but for managed fields. It takes less work for JSON, in which custom resources come. client-go's
// serializers read each event nine times: to find its end, to find its kind and to check its syntax before they decode
// it, the same again for the object in it. What doesn't look as API servers write it is left to them.
type streamed struct {
	runtime.NegotiatedSerializer
	kind    schema.GroupVersionKind
	example func() (runtime.Object, error) // returns a new object of the kind
	// managed keeps the managed fields of watch events. In most caches nobody reads them, and they are more than half
	// of an event.
	managed bool
	goType  reflect.Type // of example's pointers
	starts  [2][]byte    // the ways in which an API server begins an object of the kind
	types   []runtime.SerializerInfo
}

// stream returns the decoder of a kind.
func stream(by runtime.NegotiatedSerializer, kind schema.GroupVersionKind, managed bool,
	example func() (runtime.Object, error)) (*streamed, error) {
	object, err := example()
	if err != nil {
		return nil, err
	}
	types := slices.Clone(by.SupportedMediaTypes())
	for i, info := range types {
		if info.MediaType == runtime.ContentTypeJSON && info.StreamSerializer != nil {
			stream := *info.StreamSerializer
			stream.Serializer, stream.Framer = envelopes{stream.Serializer}, frames{stream.Framer}
			types[i].StreamSerializer = &stream
		}
	}
	return &streamed{NegotiatedSerializer: by, kind: kind, example: example, managed: managed,
		goType: reflect.TypeOf(object), types: types, starts: [2][]byte{
			fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,`, kind.GroupVersion(), kind.Kind), // custom resources
			fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,`, kind.Kind, kind.GroupVersion()),
		}}, nil
}

// SupportedMediaTypes is called for each request.
func (s *streamed) SupportedMediaTypes() []runtime.SerializerInfo { return s.types }

func (s *streamed) DecoderToVersion(decoder runtime.Decoder, to runtime.GroupVersioner) runtime.Decoder {
	return &objects{Decoder: s.NegotiatedSerializer.DecoderToVersion(decoder, to), streamed: s}
}

// objects decodes the objects of events and answers. An object that begins with its kind is decoded at once;
// client-go would first read all of it to find the kind.
type objects struct {
	runtime.Decoder
	*streamed
}

// Decode replaces an object of the kind that is given, unless it fails. Its managed fields are decoded only if it had
// some.
func (o *objects) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object,
	*schema.GroupVersionKind, error) {
	start := slices.IndexFunc(o.starts[:], func(start []byte) bool { return bytes.HasPrefix(data, start) })
	object, managed, err := into, o.managed, error(nil)
	var fresh runtime.Object // replaces into in the end
	switch {
	case into == nil && start < 0: // client-go makes it
	case into == nil:
		object, err = o.example()
	case reflect.TypeOf(into) != o.goType:
		return o.decodeOther(data, defaults, into)
	default:
		m, is := into.(metav1.Object)
		managed = !is || len(m.GetManagedFields()) > 0
		fresh, err = o.example()
		object = fresh
	}
	if err != nil {
		return nil, &o.kind, err
	}
	kind := &o.kind
	if start < 0 {
		object, kind, err = o.Decoder.Decode(data, defaults, object)
	} else {
		if !managed {
			data = withoutManaged(data, len(o.starts[start]))
		}
		err = utiljson.Unmarshal(data, object)
		object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as client-go leaves typed objects
	}
	if err != nil {
		return nil, kind, err
	}
	if m, is := object.(metav1.Object); is && !managed { // those that couldn't be left out
		m.SetManagedFields(nil)
	}
	if fresh != nil && object == fresh { // not an answer of another kind
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(fresh).Elem())
		object = into
	}
	return object, kind, nil
}

// decodeOther decodes what isn't one object of the kind. Of a list in JSON it decodes the items one by one, and
// client-go the rest. Between two items it lets other goroutines run: a page may take tens of milliseconds of
// processor time, and the work on other clusters would wait for several of them. Managed fields that aren't where API
// servers write them stay; [filter.sift] drops them.
func (o *objects) decodeOther(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object,
	*schema.GroupVersionKind, error) {
	list := o.itemsOf(into)
	if !list.IsValid() {
		return o.Decoder.Decode(data, defaults, into)
	}
	around, parts := apartItems(data)
	if len(parts) == 0 {
		return o.Decoder.Decode(data, defaults, into)
	}
	object, kind, err := o.Decoder.Decode(around, defaults, into)
	if err != nil || object != into { // it says that it is something else
		return o.Decoder.Decode(data, defaults, into)
	}
	items := reflect.MakeSlice(list.Type(), len(parts), len(parts))
	for i, part := range parts {
		from := 1
		for _, start := range o.starts {
			if bytes.HasPrefix(part, start) {
				from = len(start)
			}
		}
		if !o.managed {
			part = withoutManaged(part, from)
		}
		if err := utiljson.Unmarshal(part, items.Index(i).Addr().Interface()); err != nil {
			return nil, kind, err
		}
		goruntime.Gosched()
	}
	list.Set(items)
	return object, kind, nil
}

// itemsOf returns the items of a list of the kind; the zero value for anything else.
func (o *objects) itemsOf(list runtime.Object) reflect.Value {
	v := reflect.ValueOf(list)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return reflect.Value{}
	}
	items := v.Elem().FieldByName("Items")
	if !items.IsValid() || items.Kind() != reflect.Slice || reflect.PointerTo(items.Type().Elem()) != o.goType {
		return reflect.Value{}
	}
	return items
}

// envelopes takes events apart.
type envelopes struct{ runtime.Serializer }

var eventKind = schema.GroupVersionKind{Version: "v1", Kind: "WatchEvent"}

// Decode leaves the object of an event in the buffer that was read. It is decoded before more is read.
func (e envelopes) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object,
	*schema.GroupVersionKind, error) {
	event, ok := into.(*metav1.WatchEvent)
	if !ok {
		return e.Serializer.Decode(data, defaults, into)
	}
	kind, object, ok := parts(data)
	if !ok {
		return e.Serializer.Decode(data, defaults, into)
	}
	event.Type, event.Object.Raw = string(kind), object
	return event, &eventKind, nil
}

// frames cuts a stream into JSON objects.
type frames struct{ runtime.Framer }

func (frames) NewFrameReader(r io.ReadCloser) io.ReadCloser { return &frameReader{from: r} }

// frameReader returns one object after the other. If a read's buffer is too small, it returns [io.ErrShortBuffer],
// and the next read goes on, as client-go's streaming decoder expects it.
type frameReader struct {
	from   io.ReadCloser
	buffer []byte
	read   []byte // the part of the buffer that has arrived and wasn't returned
	left   int    // how much of read belongs to the object that is being returned
}

// smallBuffer is the size with which a watch begins. A buffer larger than largeBuffer is dropped once it is empty.
const smallBuffer, largeBuffer = 2 << 10, 64 << 10

// largestEvent bounds an event, in bytes. client-go drops what is larger than its object may be, but reads all of it
// into the memory first.
const largestEvent = 2 * largestObject

var errLargeEvent = errors.New("a watch event is larger than it may be")

func (f *frameReader) Read(into []byte) (int, error) {
	if f.left == 0 {
		if err := f.await(); err != nil {
			return 0, err
		}
	}
	n := copy(into, f.read[:f.left])
	f.read, f.left = f.read[n:], f.left-n
	if f.left > 0 {
		return n, io.ErrShortBuffer
	}
	return n, nil
}

// await reads until a whole object is there.
func (f *frameReader) await() error {
	var end extent
	for seen := 0; ; {
		if seen == 0 { // the end of the line before belongs to no event
			f.read = bytes.TrimLeft(f.read, " \t\r\n")
		}
		if n := end.of(f.read[seen:]); n > 0 {
			f.left = seen + n
			return nil
		}
		if seen = len(f.read); seen > largestEvent {
			return errLargeEvent
		}
		if err := f.more(); err != nil {
			return err
		}
	}
}

// more appends data that has arrived.
func (f *frameReader) more() error {
	if len(f.read) == 0 && len(f.buffer) > largeBuffer {
		f.buffer = nil
	}
	if len(f.read) == 0 || len(f.read) == cap(f.read) { // nothing is left, or the buffer's end is reached
		if 2*len(f.read) >= len(f.buffer) {
			f.buffer = make([]byte, max(smallBuffer, 2*len(f.buffer)))
		}
		f.read = f.buffer[:copy(f.buffer, f.read)]
	}
	n, err := f.from.Read(f.read[len(f.read):cap(f.read)])
	f.read = f.read[:len(f.read)+n]
	switch {
	case n > 0:
		return nil // an error is returned again by the next read
	case err == io.EOF && len(bytes.TrimSpace(f.read)) > 0:
		return io.ErrUnexpectedEOF
	}
	return err
}

func (f *frameReader) Close() error { return f.from.Close() }

// boundedEvents is a transport for clients whose framer can't be replaced by [frames]. It bounds their events, too.
type boundedEvents struct{ http.RoundTripper }

func (b boundedEvents) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := b.RoundTripper.RoundTrip(req)
	if err == nil && watches(req) && res.StatusCode == http.StatusOK {
		form, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
		if form == "" || form == runtime.ContentTypeJSON { // client-go reads these as JSON
			res.Body = &eventBody{ReadCloser: res.Body}
		}
	}
	return res, err
}

// eventBody is a stream of JSON objects. It fails once one of them is larger than it may be.
type eventBody struct {
	io.ReadCloser
	end  extent // of the object that is being read
	size int    // how much of it was read
}

func (b *eventBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	piece := into[:n]
	for whole := b.end.of(piece); whole > 0; whole = b.end.of(piece) {
		piece, b.end, b.size = piece[whole:], extent{}, 0
	}
	if b.size += len(piece); b.size > largestEvent {
		return n, errLargeEvent
	}
	return n, err
}
