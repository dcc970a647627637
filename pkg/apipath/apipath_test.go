package apipath

import (
	"slices"
	"strings"
	"testing"
)

func TestAPathIsReadBelowWhatProxiesPutBeforeIt(t *testing.T) {
	for path, want := range map[string]struct{ prefix, parts string }{
		"/api/v1/pods":                                  {"", "pods"},
		"/api/v1/namespaces/shop/pods/a/status":         {"", "namespaces shop pods a status"},
		"/apis/apps/v1/namespaces/api/replicas":         {"", "namespaces api replicas"},
		"/k8s/clusters/c-1/apis/apps/v1/deployments":    {"/k8s/clusters/c-1", "deployments"},
		"/proxy/west/apis/apps/v1/deployments":          {"/proxy/west", "deployments"},
		"/apis/m/v1/clusters/m1/proxy/api/v1/nodes":     {"/apis/m/v1/clusters/m1/proxy", "nodes"},
		"/api/v1/namespaces/proxy/pods":                 {"", "namespaces proxy pods"},
		"/api/v1/namespaces/shop/pods/a/proxy/metrics":  {"", "namespaces shop pods a proxy metrics"},
		"/api/v1/namespaces/shop/services/a/proxy/apis": {"", "namespaces shop services a proxy apis"},
		"/api/v1": {"", ""}, "/version": {"/version", ""}, "": {"", ""},
	} {
		prefix, _, _ := Cut(path)
		if parts := Parts(path); prefix != want.prefix || !slices.Equal(parts, strings.Fields(want.parts)) {
			t.Errorf("%s: %q behind %q, want %q behind %q", path, parts, prefix, want.parts, want.prefix)
		}
	}
}
