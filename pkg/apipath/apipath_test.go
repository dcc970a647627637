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
		"/api/endpoints/1/kubernetes/api/v1/pods":       {"/api/endpoints/1/kubernetes", "pods"},
		"/apis/of/p/apis/apps/v1/deployments":           {"/apis/of/p", "deployments"},
		"/api/endpoints/1/kubernetes/version":           {"/api/endpoints/1/kubernetes/version", ""},
		"/p/apis/g/stable/ats/one":                      {"/p", "ats one"},
		"/apis/m/v1/clusters/m1/proxy/api/v1/namespaces/proxy/pods": {"/apis/m/v1/clusters/m1/proxy",
			"namespaces proxy pods"},
		"/apis/m/v1/clusters/proxy/proxy/api/v1/namespaces/shop/pods/a/proxy/metrics": {
			"/apis/m/v1/clusters/proxy/proxy", "namespaces shop pods a proxy metrics"},
		"/api/v1": {"", ""}, "/version": {"/version", ""}, "": {"", ""},
	} {
		prefix, _, _ := Cut(path)
		if parts := Parts(path); prefix != want.prefix || !slices.Equal(parts, strings.Fields(want.parts)) {
			t.Errorf("%s: %q behind %q, want %q behind %q", path, parts, prefix, want.parts, want.prefix)
		}
	}
}

func TestARequestIsNamedByVerbAndResource(t *testing.T) {
	for path, want := range map[string][3]string{
		"GET /api/v1/namespaces/ns/pods":                        {"list", "pods", ""},
		"GET /api/v1/namespaces/ns/pods/one":                    {"get", "pods", "one"},
		"POST /api/v1/namespaces/ns/pods":                       {"create", "pods", ""},
		"PUT /apis/g/v1/namespaces/ns/ats/one/status":           {"update", "ats/status", "one"},
		"PATCH /apis/apps/v1/namespaces/ns/deployments/one":     {"patch", "deployments", "one"},
		"DELETE /api/v1/namespaces/ns/pods/one":                 {"delete", "pods", "one"},
		"DELETE /api/v1/namespaces/ns/pods":                     {"deletecollection", "pods", ""},
		"GET /api/v1/namespaces/ns":                             {"get", "namespaces", "ns"},
		"GET /api/v1/nodes":                                     {"list", "nodes", ""},
		"GET /k8s/clusters/c-1/apis/g/v1/namespaces/ns/ats/one": {"get", "ats", "one"},
		"GET /apis/m/v1/clusters/m1/proxy/api/v1/nodes/one":     {"get", "nodes", "one"},
		"GET /version": {"get", "", ""},
		"GET /api":     {"get", "", ""},
		"GET ":         {"get", "", ""},
	} {
		method, rest, _ := strings.Cut(path, " ")
		verb, resource, name := Request(method, rest)
		if got := [3]string{verb, resource, name}; got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

func FuzzRequestTakesAnyPath(f *testing.F) {
	f.Add("GET", "/apis/g/v1/namespaces/ns/ats/one/status")
	f.Add("POST", "//api//v1//")
	f.Fuzz(func(_ *testing.T, method, path string) { Request(method, path) })
}
