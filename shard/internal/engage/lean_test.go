package engage

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// written is a request as an API server gets it.
type written struct {
	Method, Path, Query string
	Body                cnatv1alpha1.At
}

// leanAndPlain returns two clients of one API server, which answers as it is told and keeps the last write: one that
// takes less work for Ats, and controller-runtime's. The others are kinds of the same Go type.
func leanAndPlain(t *testing.T, code int, answer string, others ...string) (lean, plain client.Client, last *written) {
	t.Helper()
	last = &written{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		*last = written{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery}
		if err == nil {
			err = json.Unmarshal(data, &last.Body)
		}
		if err != nil {
			t.Errorf("reading what was sent: %v", err)
		}
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(answer, "<") {
			w.Header().Set("Content-Type", "text/html")
		}
		w.WriteHeader(code)
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(server.Close)
	scheme := runtime.NewScheme()
	must.Succeed(t, cnatv1alpha1.AddToScheme(scheme))
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	kind := cnatv1alpha1.GroupVersion.WithKind("At")
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{kind.GroupVersion()})
	mapper.Add(kind, meta.RESTScopeNamespace)
	for _, other := range others {
		scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(other), &cnatv1alpha1.At{})
		mapper.Add(kind.GroupVersion().WithKind(other), meta.RESTScopeNamespace)
	}
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	must.Succeed(t, err)
	c := &Cluster{config: &rest.Config{Host: server.URL}, http: server.Client(),
		codecs: serializer.NewCodecFactory(scheme), mapper: mapper, scheme: scheme}
	plain, err = client.New(c.config, client.Options{Scheme: scheme, Mapper: mapper})
	must.Succeed(t, err)
	_, err = c.typed(form{GroupVersionKind: kind}, mapping, runtime.NewParameterCodec(scheme))
	must.Succeed(t, err)
	return leanClient{plain, &c.lean}, plain, last
}

const answeredAt = `{"apiVersion":"cnat.programming-kubernetes.info/v1alpha1","kind":"At","metadata":{"name":"a",` +
	`"namespace":"n","resourceVersion":"8","managedFields":[{"manager":"m","operation":"Update"}],"uid":"u"},` +
	`"spec":{"command":"date","schedule":"2026-11-26T09:00:00Z"},"status":{"phase":"RUNNING"}}`

func sentAt(managed bool) *cnatv1alpha1.At {
	at := &cnatv1alpha1.At{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "n", ResourceVersion: "7",
		Labels: map[string]string{"gone": "by now"}}, Status: cnatv1alpha1.AtStatus{Phase: cnatv1alpha1.AtRunning}}
	if managed {
		at.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	}
	at.SetGroupVersionKind(cnatv1alpha1.GroupVersion.WithKind("At")) // as caches do
	return at
}

func TestLeanWritesSendAndReturnWhatOthersDo(t *testing.T) {
	const conflict = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409,"message":"no"}`
	for _, c := range []struct {
		name    string
		code    int
		answer  string
		managed bool
		options []client.SubResourceUpdateOption
	}{
		{"an answer", http.StatusOK, answeredAt, false, nil},
		{"managed fields in what was sent", http.StatusOK, answeredAt, true, nil},
		{"options", http.StatusOK, answeredAt, false,
			[]client.SubResourceUpdateOption{client.DryRunAll, client.FieldOwner("me")}},
		{"a conflict", http.StatusConflict, conflict, false, nil},
		{"an answer that isn't JSON", http.StatusOK, `{"apiVersion":`, false, nil},
		{"an answer that ends early", http.StatusOK, answeredAt[:len(answeredAt)/2], false, nil},
		{"an answer of another form", http.StatusOK, " " + answeredAt, false, nil},
		{"a proxy's error", http.StatusBadGateway, "<html>", false, nil},
		{"a failure in a success", http.StatusOK, conflict, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			lean, plain, last := leanAndPlain(t, c.code, c.answer)
			want, got := sentAt(c.managed), sentAt(c.managed)
			wantErr := plain.Status().Update(t.Context(), want, c.options...)
			wantSent := *last
			gotErr := lean.Status().Update(t.Context(), got, c.options...)
			expect.Equal(t, "sent, as controller-runtime does", wantSent, *last)
			if (wantErr == nil) != (gotErr == nil) || apierrors.IsConflict(wantErr) != apierrors.IsConflict(gotErr) {
				t.Errorf("error %v, and controller-runtime's is %v", gotErr, wantErr)
			}
			if wantErr != nil {
				want = sentAt(c.managed) // whoever tries again still has its name
			} else if !c.managed {
				want.ManagedFields = nil // the only difference
			}
			expect.Equal(t, "returned, as controller-runtime does", want, got)
		})
	}
}

func TestAnAnswerThatIsNotReadLeavesTheObject(t *testing.T) {
	unread := AnswerUnread{}
	for name, write := range map[string]func(c client.Client, at *cnatv1alpha1.At) error{
		"create": func(c client.Client, at *cnatv1alpha1.At) error {
			return c.Create(t.Context(), at, unread, client.FieldOwner("me"))
		},
		"status": func(c client.Client, at *cnatv1alpha1.At) error {
			return c.Status().Update(t.Context(), at, client.FieldOwner("me"), unread)
		},
	} {
		t.Run(name, func(t *testing.T) {
			lean, plain, last := leanAndPlain(t, http.StatusOK, answeredAt)
			if err := write(plain, sentAt(false)); err != nil {
				t.Fatalf("controller-runtime's client with the option: %v", err)
			}
			want, at := *last, sentAt(false)
			must.Succeed(t, write(lean, at))
			expect.Equal(t, "sent, as controller-runtime does", want, *last)
			expect.Equal(t, "the object has changed", sentAt(false), at)
			lean, _, _ = leanAndPlain(t, http.StatusConflict,
				`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409,"message":"no"}`)
			if err := write(lean, sentAt(false)); !apierrors.IsConflict(err) {
				t.Errorf("a conflict is returned as %v", err)
			}
		})
	}
}

func TestNamesThatCannotBePartsOfAPathAreLeftToOthers(t *testing.T) {
	for _, key := range []client.ObjectKey{
		{Namespace: "", Name: "a"}, {Namespace: "..", Name: "a"}, {Namespace: "n", Name: ""}, {Namespace: "n", Name: "a/b"},
		{Namespace: "n", Name: "."}, {Namespace: "n", Name: "50%"},
	} {
		lean, plain, last := leanAndPlain(t, http.StatusOK, answeredAt)
		at := sentAt(false)
		at.Namespace, at.Name = key.Namespace, key.Name
		want := plain.Status().Update(t.Context(), at.DeepCopy())
		if got := lean.Status().Update(t.Context(), at, AnswerUnread{}); got == nil || got.Error() != want.Error() {
			t.Errorf("%q: error %v, want %v", key, got, want)
		}
		if key.Name != "a" { // a new object's name may be anything
			continue
		}
		want = plain.Create(t.Context(), at.DeepCopy())
		got := lean.Create(t.Context(), at, AnswerUnread{})
		if got == nil || got.Error() != want.Error() || last.Method != "" {
			t.Errorf("creating %q: error %v, want %v; %+v was sent", key, got, want, last)
		}
	}
}

func TestASuccessThatIsNotAnAPIServersIsNone(t *testing.T) {
	for _, answer := range []string{"", "<html>"} {
		lean, _, _ := leanAndPlain(t, http.StatusOK, answer)
		if err := lean.Create(t.Context(), sentAt(false), AnswerUnread{}); err == nil {
			t.Errorf("creating, answered by %q, succeeded", answer)
		}
		if err := lean.Status().Update(t.Context(), sentAt(false), AnswerUnread{}); err == nil {
			t.Errorf("a status, answered by %q, succeeded", answer)
		}
	}
}

func TestAnObjectWhoseGoTypeHasSeveralKindsIsWrittenAsItSays(t *testing.T) {
	lean, _, last := leanAndPlain(t, http.StatusOK, answeredAt, "Alarm")
	alarm := sentAt(false)
	alarm.SetGroupVersionKind(cnatv1alpha1.GroupVersion.WithKind("Alarm"))
	if err := lean.Status().Update(t.Context(), alarm); !strings.Contains(last.Path, "/alarms/") {
		t.Errorf("written to %s, error %v", last.Path, err)
	}
}

func TestBodiesAreSentInTheFormThatAConnectionAsksFor(t *testing.T) {
	for given, want := range map[string]string{
		"": runtime.ContentTypeProtobuf, runtime.ContentTypeJSON: runtime.ContentTypeJSON,
	} {
		var came string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			came = r.Header.Get("Content-Type")
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"}}`)
		}))
		t.Cleanup(server.Close)
		c := &Cluster{config: &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: given}},
			http: server.Client(), codecs: serializer.NewCodecFactory(clientgoscheme.Scheme),
			scheme: clientgoscheme.Scheme}
		mapping := &meta.RESTMapping{Resource: corev1.SchemeGroupVersion.WithResource("pods"), Scope: meta.RESTScopeNamespace}
		_, err := c.typed(form{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod")}, mapping,
			runtime.NewParameterCodec(clientgoscheme.Scheme))
		must.Succeed(t, err)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
		if err := (leanClient{nil, &c.lean}).Create(t.Context(), pod, AnswerUnread{}); err != nil || came != want {
			t.Errorf("%q was asked for, %q was sent (%v)", given, came, err)
		}
	}
}

func TestOtherKindsAreWrittenAsAlways(t *testing.T) {
	lean, _, last := leanAndPlain(t, http.StatusOK, answeredAt)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	if err := lean.Create(t.Context(), pod, AnswerUnread{}); err == nil || last.Method != "" {
		t.Errorf("%+v was sent, error %v; the scheme doesn't know Pods", last, err)
	}
	body := sentAt(false)
	body.Status.Phase = cnatv1alpha1.AtDone
	if err := lean.Status().Update(t.Context(), sentAt(false), client.WithSubResourceBody(body)); err != nil ||
		last.Body.Status.Phase != cnatv1alpha1.AtDone {
		t.Errorf("phase %q was sent, error %v; want that of the body that was given", last.Body.Status.Phase, err)
	}
}
