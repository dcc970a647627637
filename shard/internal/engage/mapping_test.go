package engage

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/test/must"
)

func TestAKindsMappingAsksForItsVersionOnce(t *testing.T) {
	var asked []string
	served := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/api/v1":
			_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[
				{"name":"namespaces/status","kind":"Namespace","namespaced":true},{"name":"namespaces","kind":"Namespace","namespaced":false}]}`)
		case r.URL.Path == "/apis/g.io/v2" && served:
			_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"g.io/v2","resources":[
				{"name":"things","kind":"Thing","namespaced":true}]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	m, err := newMapping(&rest.Config{Host: server.URL}, http.DefaultTransport)
	if err != nil || len(asked) > 0 {
		t.Fatal(err, asked)
	}
	thing := schema.GroupKind{Group: "g.io", Kind: "Thing"}
	served = false
	if _, err := m.RESTMapping(thing, "v2"); !meta.IsNoMatchError(err) {
		t.Errorf("a kind that isn't there yet: %v", err)
	}
	served = true
	for range 2 {
		for _, want := range []struct {
			schema.GroupVersionKind
			resource string
			scope    meta.RESTScopeName
		}{
			{thing.WithVersion("v2"), "things", meta.RESTScopeNameNamespace},
			{schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "namespaces", meta.RESTScopeNameRoot},
		} {
			got, err := m.RESTMapping(want.GroupKind(), want.Version)
			must.Succeed(t, err)
			if got.Resource != want.GroupVersion().WithResource(want.resource) || got.Scope.Name() != want.scope ||
				got.GroupVersionKind != want.GroupVersionKind {
				t.Errorf("%v is %+v", want, got)
			}
		}
	}
	if _, err := m.RESTMapping(schema.GroupKind{Kind: "Other"}, "v1"); !meta.IsNoMatchError(err) {
		t.Errorf("a kind that its version doesn't have: %v", err)
	}
	if want := []string{"/apis/g.io/v2", "/apis/g.io/v2", "/api/v1", "/api/v1"}; !slices.Equal(asked, want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
	server.Close()
	if _, err := m.RESTMapping(schema.GroupKind{Kind: "Other"}, "v1"); err == nil || meta.IsNoMatchError(err) {
		t.Errorf("a server that is away: %v", err)
	}
}
