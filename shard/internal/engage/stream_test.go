package engage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	goruntime "runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	restwatch "k8s.io/client-go/rest/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// ofClientGo and ofPods decode watch events of Pods in JSON: as client-go does, and as we do.
var (
	ofClientGo = serializer.NewCodecFactory(clientgoscheme.Scheme).WithoutConversion()
	ofPods     = streamOfPods(true)
)

func streamOfPods(managed bool) *streamed {
	s, err := stream(ofClientGo, corev1.SchemeGroupVersion.WithKind("Pod"), managed,
		func() (runtime.Object, error) { return &corev1.Pod{}, nil })
	if err != nil {
		panic(err) // there is no way
	}
	return s
}

// streamOf returns the decoder that client-go's watches use.
func streamOf(t testing.TB, by runtime.NegotiatedSerializer, from io.Reader) *restwatch.Decoder {
	t.Helper()
	object, event, framer, err := runtime.NewClientNegotiator(by, corev1.SchemeGroupVersion).StreamDecoder(
		runtime.ContentTypeJSON, nil)
	must.Succeed(t, err)
	return restwatch.NewDecoder(streaming.NewDecoder(framer.NewFrameReader(io.NopCloser(from)), event), object)
}

// decoderOf returns the decoder of what else client-go gets.
func decoderOf(t testing.TB, by runtime.NegotiatedSerializer) runtime.Decoder {
	t.Helper()
	decoder, err := runtime.NewClientNegotiator(by, corev1.SchemeGroupVersion).Decoder(runtime.ContentTypeJSON, nil)
	must.Succeed(t, err)
	return decoder
}

// decoded are all events of a stream, and whether it ended in order.
func decoded(t testing.TB, by runtime.NegotiatedSerializer, from io.Reader) (events []any, whole bool) {
	t.Helper()
	stream := streamOf(t, by, from)
	for {
		kind, object, err := stream.Decode()
		if err != nil {
			return events, err == io.EOF
		}
		events = append(events, kind, object)
	}
}

// event is a watch event as API servers write it.
func event(t testing.TB, kind string, object any) string {
	t.Helper()
	data, err := json.Marshal(object)
	must.Succeed(t, err)
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, data)
}

func podNamed(name string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "7",
			Annotations: map[string]string{"odd": `}{"]\` + "\n" + `\"`}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Command: []string{`echo "}"`}}}},
	}
}

func TestWatchEventsAreDecodedAsClientGoDoes(t *testing.T) {
	sorted, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "x"}})
	must.Succeed(t, err)
	pod := event(t, "ADDED", podNamed("a"))
	for _, c := range []struct {
		name, stream string
		events       int // that there must be
	}{
		{"what an API server writes of built-in kinds", pod + event(t, "MODIFIED", podNamed("b")), 2},
		{"what it writes of custom resources", event(t, "ADDED", json.RawMessage(sorted)) + pod, 2},
		{"a bookmark", event(t, "BOOKMARK", json.RawMessage(`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9"}}`)), 1},
		{"an error", event(t, "ERROR", &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status: "Failure", Reason: metav1.StatusReasonExpired, Code: 410}), 1},
		{"another kind", event(t, "ADDED", &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}}), 1},
		{"an event without a line's end, and one right behind it", strings.ReplaceAll(pod+pod, "\n", ""), 2},
		{"an event in several lines", strings.NewReplacer(`{"type"`, "{\n \"type\"", `,"object"`, " ,\n \"object\"").Replace(pod), 1},
		{"the object first", `{"object":{"kind":"Pod","apiVersion":"v1"},"type":"DELETED"}`, 1},
		{"another field behind the object", `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1"},"more":{}}` + pod, 2},
		{"a field twice", `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","kind":"Pod"}}`, 1},
		{"a field in other letters", `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","Metadata":{"name":"no"}}}`, 1},
		{"no kind", `{"type":"ADDED","object":{"metadata":{"name":"x"}}}`, 0},
		{"a kind nobody knows", `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"other/v1"}}`, 0},
		{"an unknown type of event", pod + `{"type":"RENAMED","object":{"kind":"Pod","apiVersion":"v1"}}`, 1},
		{"a field of the wrong type", pod + `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":7}}`, 1},
		{"bad syntax in an object", pod + `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1",}}` + pod, 1},
		{"bad syntax of an event", pod + `{"type":"ADDED","object":}` + pod, 1},
		{"brackets that don't match", pod + `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","spec":]}}`, 1},
		{"the end in the middle of an event", pod + pod[:len(pod)/2], 1},
		{"nothing", "", 0},
		{"a bookmark of another kind", event(t, "BOOKMARK", &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node",
			APIVersion: "v1"}}) + pod, 2},
		{"a status instead of events", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":410}` + pod, 0},
		{"a page of a proxy", "<html><body>{}</body></html>", 0},
		{"what is no object", "null\n" + pod, 0},
		{"a type with escapes", strings.Replace(pod, "ADDED", `\u0041DDED`, 1) + pod, 2},
		{"an object larger than the buffers that are kept", event(t, "ADDED", func() *corev1.Pod {
			p := podNamed("large")
			p.Annotations["much"] = strings.Repeat(`\"{`, 30_000)
			return p
		}()) + pod, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			want, wholeThere := decoded(t, ofClientGo, strings.NewReader(c.stream))
			if len(want) != 2*c.events {
				t.Fatalf("client-go decodes %d events, not %d: the case isn't what it says", len(want)/2, c.events)
			}
			for how, from := range map[string]io.Reader{
				"at once": strings.NewReader(c.stream), "in halves": iotest.HalfReader(strings.NewReader(c.stream)),
				"byte by byte":       iotest.OneByteReader(strings.NewReader(c.stream)),
				"with its end":       iotest.DataErrReader(strings.NewReader(c.stream)),
				"as a line at least": io.MultiReader(strings.NewReader(c.stream), strings.NewReader("\n")),
			} {
				got, whole := decoded(t, ofPods, from)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-client-go +ours):\n%.2000s", how, diff)
				}
				if whole != wholeThere {
					t.Errorf("%s: ended in order: %t, with client-go %t", how, whole, wholeThere)
				}
			}
		})
	}
}

// counted counts what is left to client-go's decoder of events.
type counted struct {
	runtime.Serializer
	n *int
}

func (c counted) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object,
	*schema.GroupVersionKind, error) {
	*c.n++
	return c.Serializer.Decode(data, defaults, into)
}

// API servers end each event with a line's end, which must not make the next one look like something else.
func TestWhatAPIServersWriteIsNotLeftToClientGo(t *testing.T) {
	for _, stream := range ofPods.SupportedMediaTypes() {
		if stream.MediaType != runtime.ContentTypeJSON {
			continue
		}
		left, large := 0, podNamed("large")
		large.Annotations["much"] = strings.Repeat("x", 4*largeBuffer)
		events := envelopes{counted{stream.StreamSerializer.Serializer.(envelopes).Serializer, &left}}
		reader := &frameReader{from: io.NopCloser(strings.NewReader(
			event(t, "ADDED", large) + strings.Repeat(event(t, "ADDED", podNamed("a")), 3)))}
		decoder := streaming.NewDecoder(reader, events)
		for i := range 4 {
			if _, _, err := decoder.Decode(nil, &metav1.WatchEvent{}); err != nil {
				t.Fatalf("event %d: %v", i, err)
			}
		}
		if _, _, err := decoder.Decode(nil, &metav1.WatchEvent{}); err != io.EOF {
			t.Errorf("behind the last event: %v", err)
		}
		if left != 0 || len(reader.buffer) > largeBuffer {
			t.Errorf("%d events are left to client-go; %d bytes of buffer are kept", left, len(reader.buffer))
		}
		return
	}
	t.Fatal("there is no JSON")
}

func FuzzWatchEventsAreDecodedAsClientGoDoes(f *testing.F) {
	f.Add(event(f, "ADDED", podNamed("a")) + event(f, "MODIFIED", podNamed("b")))
	f.Add(`{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1"}}{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1"}}`)
	f.Add(`{"type":"ADDED","object":"","object":{"kind":"Pod","apiVersion":"v1"}}`)
	f.Fuzz(func(t *testing.T, stream string) {
		want, _ := decoded(t, ofClientGo, strings.NewReader(stream))
		got, _ := decoded(t, ofPods, strings.NewReader(stream))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-client-go +ours):\n%s", stream, diff)
		}
	})
}

// managedPod is a Pod in JSON with these fields in its metadata, and managed fields elsewhere, which stay.
func managedPod(metadata string) string {
	return `{"kind":"Pod","apiVersion":"v1","metadata":` + metadata + `,"spec":{"containers":[{"name":"managedFields"}]}}`
}

var managedPods = []string{
	managedPod(`{}`),
	managedPod(`{"name":"a"}`),
	managedPod(`{"managedFields":[{"manager":"m"}]}`),
	managedPod(`{"managedFields":[{"manager":"}],{\"\\"}],"name":"a"}`),
	managedPod(`{"name":"a","managedFields":[{"fieldsV1":{"f:spec":{"k:{\"name\":\"c\"}":{}}}}],"uid":"u"}`),
	managedPod(`{"labels":{"a":"b","managedFields":"x"},"generation":7,"managedFields":[],"finalizers":["f"]}`),
	managedPod(`{"name":"a","deletionTimestamp":null,"managedFields":null}`),
	managedPod(`{"annotations":{"managedFields":"[\"managedFields\":[]]"}}`),
	managedPod(`{"name":"a","managedFields":[{"manager":"m"}],"managedFields":[]}`),
	managedPod(`{"labels": {"a":"b","managedFields":"x"},"name":"n"}`),
	managedPod(`{ "name":"a", "managedFields" : [{"manager":"m"}] }`),
	`{"kind":"Pod","apiVersion":"v1","spec":{},"metadata":{"managedFields":[{"manager":"m"}]}}`,
	`{"kind":"Pod","apiVersion":"v1","metadata":{"managedFields":[{"manager":"m"}]`,
	`{"kind":"Pod","apiVersion":"v1","metadata":{"managedFields"`,
	`{"kind":"Pod","apiVersion":"v1","metadata":{"managedFields":`,
	`{"kind":"Pod","apiVersion":"v1","metadata":{`,
	`{"kind":"Pod","apiVersion":"v1","metadata":{"managedFields":7}}`,
}

// withoutManagedAsClientGo decodes a Pod with client-go, without its managed fields, and as we do. Managed fields that
// can't be decoded fail only where they are decoded.
func withoutManagedAsClientGo(t *testing.T, data string) {
	t.Helper()
	decode := func(by runtime.NegotiatedSerializer) (runtime.Object, error) {
		made, _, err := decoderOf(t, by).Decode([]byte(data), nil, nil)
		return made, err
	}
	want, wantErr := decode(ofClientGo)
	if pod, ok := want.(*corev1.Pod); ok {
		pod.ManagedFields = nil
	}
	got, err := decode(streamOfPods(false))
	if diff := cmp.Diff(want, got); wantErr == nil && (err != nil || diff != "") {
		t.Errorf("%s: error %v (-client-go +ours):\n%s", data, err, diff)
	}
}

func TestManagedFieldsAreLeftOutAndNothingElse(t *testing.T) {
	for _, pod := range managedPods {
		withoutManagedAsClientGo(t, pod)
	}
	start := len(`{"kind":"Pod","apiVersion":"v1",`)
	for metadata, want := range map[string]string{
		`{"managedFields":[{"manager":"m"}]}`:                     `{}`,
		`{"managedFields":[{"manager":"m"}],"name":"a"}`:          `{"name":"a"}`,
		`{"name":"a","managedFields":[{"a":"]"}]}`:                `{"name":"a"}`,
		`{"name":"a","managedFields":[{}],"uid":"u","labels":{}}`: `{"name":"a","uid":"u","labels":{}}`,
	} {
		if got := string(withoutManaged([]byte(managedPod(metadata)), start)); got != managedPod(want) {
			t.Errorf("%s became %s", metadata, got)
		}
	}
}

func TestNoObjectIsMadeForWhatClientGoDecodes(t *testing.T) {
	made := 0
	s, err := stream(ofClientGo, corev1.SchemeGroupVersion.WithKind("Pod"), false,
		func() (runtime.Object, error) { made++; return &corev1.Pod{}, nil })
	must.Succeed(t, err)
	decoder := decoderOf(t, s)
	made = 0
	if _, _, err := decoder.Decode([]byte(`{"kind":"Status","apiVersion":"v1"}`), nil, nil); err != nil || made > 0 {
		t.Errorf("%d objects were made, error %v", made, err)
	}
}

func FuzzManagedFieldsAreLeftOutAndNothingElse(f *testing.F) {
	for _, pod := range managedPods {
		f.Add(pod)
	}
	f.Fuzz(withoutManagedAsClientGo)
}

// lists are lists of Pods in JSON, each with how many items are decoded by us.
var lists = map[string]int{
	ofBuiltIn: 2,
	ofCustom:  1,
	`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`:                     0,
	`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":null}`:                   0,
	`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"}}`:                                0,
	`{"kind":"PodList","apiVersion":"v1","items":[{}]}`:                                                      1,
	`{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{}},{"metadata":7}]}`:                          2,
	`{"kind":"PodList","apiVersion":"v1","items":[{"spec":{"containers":7}}]}`:                               1,
	`{"kind":"PodList","apiVersion":"v1","items":[{},]}`:                                                     0,
	`{"kind":"PodList","apiVersion":"v1","items":[{}{}]}`:                                                    0,
	`{"kind":"PodList","apiVersion":"v1","items":[{},7]}`:                                                    0,
	`{"kind":"PodList","apiVersion":"v1","items":[{},null]}`:                                                 0,
	`{"kind":"PodList","apiVersion":"v1","items":["{}"]}`:                                                    0,
	`{"kind":"PodList","apiVersion":"v1","items":[{}]`:                                                       0,
	`{"kind":"PodList","apiVersion":"v1","items":[{}`:                                                        0,
	`{"kind":"PodList","apiVersion":"v1","items":[{}]}}`:                                                     1,
	`{"kind":"PodList","apiVersion":"v1","items":[{}],}`:                                                     0,
	`{"kind":"PodList","apiVersion":"v1","items":[{]}`:                                                       0,
	`{"kind":"PodList","apiVersion":"v1","items":[{]}]}`:                                                     0,
	`{"kind":"PodList","apiVersion":"v1","items":{}}`:                                                        0,
	`{"kind":"PodList","apiVersion":"v1","Items":[{}]}`:                                                      0,
	`{"kind":"PodList","apiVersion":"v1","Items":[{}],"items":[{"Metadata":{"name":"no"}}]}`:                 1,
	`{ "kind": "PodList", "apiVersion": "v1", "items": [ {"metadata": {"name": "a"}} ] }`:                    0,
	"\ufeff" + `{"kind":"PodList","apiVersion":"v1","items":[{}]}`:                                           0,
	`{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a"}}],"metadata":{"continue":"t"}}`:   1,
	`{"items":[{"metadata":{"name":"a"}}]}`:                                                                  1,
	`{"kind":"Status","apiVersion":"v1","items":[{"metadata":{"name":"a"}}]}`:                                1,
	`{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"a"}}]}`:                              1,
	`{"kind":"Table","apiVersion":"meta.k8s.io/v1","items":[{"metadata":{"name":"a"}}]}`:                     1,
	`{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a"}}],"items":[{"spec":{}},{"x":1}]}`: 0,
	`{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a"}}],"\u0069tems":[{"spec":{}},{}]}`: 0,
	`{"kind":"PodList","apiVersion":"v1","\u0069tems":[{"metadata":{"name":"a"}}],"items":[{"spec":{}},{}]}`: 0,
	`{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{}],"metadata":{"remainingItemCount":3}}`: 1,
	`{"kind":"PodList","apiVersion":"v1","more":{"items":[{},{}]},"items":[{"more":[{}]}],"x":"items"}`:      1,
	`{"kind":"PodList","apiVersion":"v1","items":[{"kind":"Node","apiVersion":"v1"},{"kind":"Pod"}]}`:        2,
	`{"kind":"PodList","items":[{"spec":{},"metadata":{"managedFields":[{"manager":"m"}],"name":"a"}}]}`:     1,
	`{"kind":"PodList","items":[{"metadata":{"name":"a"},"metadata":{"uid":"u","managedFields":[]}}]}`:       1,
	`{"kind":"PodList","items":[{"metadata":{"generation":9223372036854775807}},{"metadata":{}}]}`:           2,
	`{"kind":"PodList","items":[{"metadata":{"generation":9223372036854775808}}]}`:                           1,
	`{"kind":"PodList","items":[{"metadata":{"generation":7.0}}]}`:                                           1,
	`{"kind":"PodList","items":[{"metadata":{"name":"` + "\xff" + `\ud800"}}],"x` + "\xff" + `":1}`:          1,
	``: 0,
}

// ofBuiltIn and ofCustom are lists as API servers write built-in kinds, and custom resources.
const (
	ofBuiltIn = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"t"},"items":[` +
		`{"metadata":{"name":"a","managedFields":[{"manager":"m"}]}},{"metadata":{"name":"}]\"b"}}]}` + "\n"
	ofCustom = `{"apiVersion":"v1","items":[{"apiVersion":"v1","kind":"Pod","metadata":{"managedFields":[{"manager":"m"}],` +
		`"name":"a"},"spec":{"containers":[{"name":"items"}]}}],"kind":"PodList","metadata":{"resourceVersion":"7"}}`
)

// listAsClientGo decodes a list of Pods with client-go, and as we do, with managed fields and without them. Managed
// fields that can't be decoded fail only where they are decoded.
func listAsClientGo(t *testing.T, data string) {
	t.Helper()
	decode := func(by runtime.NegotiatedSerializer) (*corev1.PodList, runtime.Object, error) {
		into := &corev1.PodList{}
		made, _, err := decoderOf(t, by).Decode([]byte(data), nil, into)
		return into, made, err
	}
	for _, managed := range []bool{true, false} {
		want, wantMade, wantErr := decode(ofClientGo)
		got, made, err := decode(streamOfPods(managed))
		for i := range got.Items { // where they can't be left out, they come
			if !managed && i < len(want.Items) {
				want.Items[i].ManagedFields, got.Items[i].ManagedFields = nil, nil
			}
		}
		if (wantErr == nil) != (err == nil) && (managed || wantErr == nil) {
			t.Errorf("%s: error %v, with client-go %v", data, err, wantErr)
		}
		if diff := cmp.Diff(want, got); wantErr == nil && diff != "" {
			t.Errorf("%s, managed fields: %t (-client-go +ours):\n%s", data, managed, diff)
		}
		if diff := cmp.Diff(wantMade, made); wantErr == nil && diff != "" {
			t.Errorf("%s, managed fields: %t: what is returned (-client-go +ours):\n%s", data, managed, diff)
		}
	}
}

func TestListsAreDecodedAsClientGoDoes(t *testing.T) {
	for list, ours := range lists {
		listAsClientGo(t, list)
		around, items := apartItems([]byte(list))
		if len(items) != ours {
			t.Errorf("%s: %d items are decoded here, want %d", list, len(items), ours)
		}
		// What is decoded here isn't left to client-go, too.
		if left := len(list) - len(slices.Concat(items...)) - (ours - 1); ours > 0 && len(around) != left {
			t.Errorf("%s: client-go decodes %s", list, around)
		}
	}
	for _, list := range []string{ofBuiltIn, ofCustom} {
		for end := range len(list) { // an answer that breaks off
			listAsClientGo(t, list[:end])
		}
	}
}

func FuzzListsAreDecodedAsClientGoDoes(f *testing.F) {
	for list := range lists {
		f.Add(list)
	}
	f.Fuzz(listAsClientGo)
}

// A page of thousands of objects must not hold up what else there is to do, not even with one processor.
func TestWhileAListIsDecodedOtherWorkGoesOn(t *testing.T) {
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(1))
	item := `{"metadata":{"name":"a","annotations":{"much":"` + strings.Repeat("x", 1000) + `"}}}`
	list := `{"kind":"PodList","apiVersion":"v1","items":[` + strings.Repeat(item+",", 999) + item + `]}`
	decoder := decoderOf(t, ofPods)
	var turns atomic.Int64
	var done atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !done.Load() {
			turns.Add(1)
			goruntime.Gosched()
		}
	}()
	into := &corev1.PodList{}
	if _, _, err := decoder.Decode([]byte(list), nil, into); err != nil || len(into.Items) != 1000 {
		t.Fatalf("%d items, error %v", len(into.Items), err)
	}
	done.Store(true)
	<-ended
	if turns.Load() < 500 {
		t.Errorf("something else had %d turns while 1000 items were decoded", turns.Load())
	}
}

// openEnded sends an object that ends only long after it should have been given up.
type openEnded struct {
	of   string
	sent int
}

func (e *openEnded) Read(into []byte) (int, error) {
	if e.sent > 5*largestEvent {
		return 0, io.EOF
	}
	n := copy(into, bytes.Repeat([]byte(e.of), len(into)))
	e.sent += n
	return n, nil
}

func TestAnEventWithoutEndIsGivenUp(t *testing.T) {
	from := &openEnded{of: "["}
	if _, _, err := streamOf(t, ofPods, from).Decode(); err == nil || from.sent > 4*largestEvent {
		t.Errorf("%d bytes were read, error %v", from.sent, err)
	}
}

// The framers of the clients for metadata and for what is untyped can't be replaced, and bound nothing.
func TestAnEventWithoutEndIsGivenUpInAnyForm(t *testing.T) {
	for name, form := range map[string]form{
		"typed": {}, "metadata": {metadata: true}, "untyped": {untyped: true},
	} {
		t.Run(name, func(t *testing.T) {
			object := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}`
			if form.metadata {
				object = strings.Replace(object, `"Pod","apiVersion":"v1"`,
					`"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"`, 1)
			}
			small := strings.Repeat(`{"type":"MODIFIED","object":`+object+"}\n", 2) + `{"type":"`
			from := &openEnded{of: "a"}
			c := &Cluster{
				scheme: clientgoscheme.Scheme, codecs: clientgoscheme.Codecs, config: &rest.Config{Host: "http://west"},
				http: &http.Client{Transport: servers(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
						Body: io.NopCloser(io.MultiReader(strings.NewReader(small), from))}, nil
				})},
			}
			form.GroupVersionKind = corev1.SchemeGroupVersion.WithKind("Pod")
			source, err := c.source(form, &meta.RESTMapping{Resource: corev1.SchemeGroupVersion.WithResource("pods")})
			must.Succeed(t, err)
			w, err := toolscache.ToListerWatcherWithContext(source).WatchWithContext(t.Context(), metav1.ListOptions{})
			must.Succeed(t, err)
			defer w.Stop()
			var came []watch.EventType
			for e := range w.ResultChan() {
				came = append(came, e.Type)
			}
			expect.Equal(t, "events", []watch.EventType{watch.Modified, watch.Modified, watch.Error}, came)
			if from.sent > 4*largestEvent {
				t.Errorf("%d bytes were read of an event without an end", from.sent)
			}
		})
	}
}

// What isn't JSON may hold any bytes: it would be cut where they look like a large object.
func TestOnlyStreamsOfJSONAreReadAsSuch(t *testing.T) {
	for contentType, want := range map[string]bool{
		"": true, "application/json": true, "application/json; charset=utf-8": true, "Application/JSON;stream=watch": true,
		runtime.ContentTypeProtobuf + ";stream=watch": false, "application/cbor-seq": false, "text/html": false,
	} {
		to := boundedEvents{servers(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {contentType}},
				Body: http.NoBody}, nil
		})}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://west/api/v1/pods?watch=true", nil)
		must.Succeed(t, err)
		res, err := to.RoundTrip(req)
		must.Succeed(t, err)
		_, bounded := res.Body.(*eventBody)
		must.Succeed(t, res.Body.Close())
		expect.Equal(t, contentType+" is read as JSON", want, bounded)
	}
}

// A stream may send far more than an event may have.
func TestManyEventsAreNotTakenForALargeOne(t *testing.T) {
	one := `{"a":"}` + strings.Repeat("x", 1<<20) + `"}`
	body := &eventBody{ReadCloser: io.NopCloser(strings.NewReader(strings.Repeat(one+"\n", 3*largestEvent>>20)))}
	if n, err := io.Copy(io.Discard, body); err != nil || n < 3*largestEvent {
		t.Errorf("%d bytes came, error %v", n, err)
	}
}

func BenchmarkWatchEvent(b *testing.B) {
	pod := podNamed("a")
	pod.Annotations["much"] = strings.Repeat("x", 500)
	stream := event(b, "MODIFIED", pod)
	for name, by := range map[string]runtime.NegotiatedSerializer{"client-go": ofClientGo, "ours": ofPods} {
		b.Run(name, func(b *testing.B) {
			events := streamOf(b, by, &repeated{text: stream})
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := events.Decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// repeated sends a text again and again.
type repeated struct {
	text string
	at   int
}

func (r *repeated) Read(into []byte) (int, error) {
	n := copy(into, r.text[r.at:])
	r.at = (r.at + n) % len(r.text)
	return n, nil
}
