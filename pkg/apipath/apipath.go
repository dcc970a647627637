// Package apipath reads the paths of API servers, below any prefix that a proxy puts before them.
package apipath

import "strings"

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

// Cut cuts a path at the first "/api/" or "/apis/": a namespace may have that name, too. If the path leads through
// another API server's proxy, as to a member of Karmada, it is cut behind that. version is how many parts of below make
// up the group and version; 0 if the path has neither.
func Cut(path string) (prefix, below string, version int) {
	const proxy = "/proxy"
	if i := strings.LastIndex(path, proxy+"/"); i > 0 {
		behind := i + len(proxy)
		if prefix, below, version = Cut(path[behind:]); version > 0 {
			return path[:behind] + prefix, below, version
		}
	}
	for i := range len(path) {
		if below, found := strings.CutPrefix(path[i:], "/api/"); found {
			return path[:i], below, 1
		}
		if below, found := strings.CutPrefix(path[i:], "/apis/"); found {
			return path[:i], below, 2
		}
	}
	return path, "", 0
}
