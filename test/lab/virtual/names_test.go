package virtual

import (
	"net/url"
	"testing"
)

func TestPathsAndSelectorsAreTranslated(t *testing.T) {
	host := &Host{kinds: &kinds{namespaced: map[string]bool{"v1/pods": true, "v1/nodes": false,
		"example.com/v1/things": true}}}
	cluster := &Cluster{name: "a", host: host}
	for _, c := range []struct {
		method, path, want string // what becomes of the path; "!" is refused
	}{
		{"GET", "/version", "/version"},
		{"GET", "/apis/example.com/v1", "/apis/example.com/v1"},
		{"GET", "/api/v1/nodes", "/api/v1/nodes"},
		{"GET", "/api/v1/nodes/n1", "/api/v1/nodes/n1"},
		{"GET", "/api/v1/pods", "/api/v1/namespaces/a-default/pods"},
		{"DELETE", "/api/v1/pods", "/api/v1/namespaces/a-default/pods"},
		{"GET", "/apis/example.com/v1/things", "/apis/example.com/v1/namespaces/a-default/things"},
		{"GET", "/api/v1/namespaces/shop/pods/p/log", "/api/v1/namespaces/a-shop/pods/p/log"},
		{"GET", "/api/v1/namespaces", "/api/v1/namespaces"},
		{"POST", "/api/v1/namespaces", "!"},
		{"GET", "/api/v1/namespaces/kube-system", "/api/v1/namespaces/a-kube-system"},
		{"PUT", "/api/v1/namespaces/shop/finalize", "/api/v1/namespaces/a-shop/finalize"},
	} {
		got, err := cluster.translate(c.method, c.path)
		if got.refused != "" {
			got.path = "!"
		}
		if err != nil || got.path != c.want {
			t.Errorf("%s %s: %s (%v), want %s", c.method, c.path, got.path, err, c.want)
		}
	}
	query := url.Values{"fieldSelector": {"metadata.name=x,metadata.namespace!=shop"}, "shardSelector": {"kept"}}
	if err := cluster.selected(query, target{}); err != nil ||
		query.Get("fieldSelector") != "metadata.name=x,metadata.namespace!=a-shop" || query.Get("shardSelector") != "kept" {
		t.Errorf("%v (%v)", query, err)
	}
	if err := cluster.selected(url.Values{"fieldSelector": {"nonsense"}}, target{}); err == nil {
		t.Error("a selector that is none was taken")
	}
}
