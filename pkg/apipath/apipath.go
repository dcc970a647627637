// Package apipath reads the paths of API servers, below any prefix that a proxy puts before them.
package apipath

import (
	"net/http"
	"strings"
)

// Parts returns what a path has behind the version: RESOURCE[/NAME[/SUBRESOURCE]], or the same behind
// namespaces/NAMESPACE. It returns nil if the path is none of an API server's resources.
func Parts(path string) []string {
	_, below, version := Cut(path)
	parts := strings.Split(strings.Trim(below, "/"), "/")
	if version == 0 || len(parts) <= version {
		return nil
	}
	return parts[version:]
}

// Cut cuts a path at the first "/api/" or "/apis/" that begins an API server's API: a namespace may have that name,
// too, and a proxy may have an API of its own before it. If the path leads through another API server's proxy, as to a
// member of Karmada, it is cut behind that. version is how many parts of below make up the group and version; 0 if the
// path has neither. A proxy's own API that looks like an API server's is taken for that: what follows "/api/" in
// /api/v2/clusters/x/kubernetes/api/v1/pods.
func Cut(path string) (prefix, below string, version int) {
	const proxy = "/proxy"
	// A namespace behind a proxy may be called proxy, and Pods there have proxies.
	for i := strings.LastIndex(path, proxy+"/"); i > 0; i = strings.LastIndex(path[:i], proxy+"/") {
		behind := i + len(proxy)
		if prefix, below, version = cut(path[behind:]); version > 0 {
			return path[:behind] + prefix, below, version
		}
	}
	return cut(path)
}

// cut cuts a path at the first "/api/" before a version, or "/apis/" before a group and a version. Without any, it is
// cut at the first "/apis/": a group may name its versions as it likes.
func cut(path string) (prefix, below string, version int) {
	for i := range len(path) {
		if below, found := strings.CutPrefix(path[i:], "/api/"); found && isVersion(below) {
			return path[:i], below, 1
		}
		if below, found := strings.CutPrefix(path[i:], "/apis/"); found {
			if _, behind, _ := strings.Cut(below, "/"); isVersion(behind) {
				return path[:i], below, 2
			}
		}
	}
	if prefix, below, found := strings.Cut(path, "/apis/"); found {
		return prefix, below, 2
	}
	return path, "", 0
}

// isVersion reports whether what follows in a path is a version such as v1 or v1beta1.
func isVersion(path string) bool {
	return len(path) > 1 && path[0] == 'v' && '0' <= path[1] && path[1] <= '9'
}

// Request returns what an API server calls a request: the verb as in RBAC, the resource with its subresource, and the
// object's name, if there is one. A watch is a get or a list, since only the query says more. If the path is none of an
// API server's resources, the verb is the method's, and the resource is empty.
func Request(method, path string) (verb, resource, name string) {
	parts := Parts(path)
	if parts == nil {
		return strings.ToLower(method), "", ""
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	resource = parts[0]
	if len(parts) > 1 {
		name = parts[1]
	}
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	return verbOf(method, name != ""), resource, name
}

func verbOf(method string, named bool) string {
	switch {
	case method == http.MethodPost:
		return "create"
	case method == http.MethodPut:
		return "update"
	case method == http.MethodDelete && !named:
		return "deletecollection"
	case method == http.MethodGet && !named:
		return "list"
	}
	return strings.ToLower(method) // get, patch, delete
}
