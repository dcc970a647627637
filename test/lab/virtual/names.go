package virtual

import (
	"fmt"
	"net/url"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/discovery"
)

// real is what a namespace is called on the API server.
func (c *Cluster) real(namespace string) string { return c.name + "-" + namespace }

// shown is what a namespace of the API server is called here; ok is false if it isn't one of this cluster's.
func (c *Cluster) shown(namespace string) (name string, ok bool) {
	return strings.CutPrefix(namespace, c.name+"-")
}

// kinds knows which resources are namespaced. It is safe for concurrent use.
type kinds struct {
	discovery discovery.DiscoveryInterface

	mu         sync.Mutex      // guards what follows
	namespaced map[string]bool // by "group/version/resource"
}

// isNamespaced asks the API server when it first hears of a resource.
func (k *kinds) isNamespaced(groupVersion, resource string) (bool, error) {
	key := groupVersion + "/" + resource
	k.mu.Lock()
	known, ok := k.namespaced[key]
	k.mu.Unlock()
	if ok {
		return known, nil
	}
	list, err := k.discovery.ServerResourcesForGroupVersion(groupVersion)
	if err != nil {
		return false, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range list.APIResources {
		k.namespaced[groupVersion+"/"+r.Name] = r.Namespaced
	}
	return k.namespaced[key], nil // the API server answers for one that isn't there
}

// target is what a request is about, in the API server's terms.
type target struct {
	path string
	// namespaces says that it is about Namespaces themselves, all that it is about all of them.
	namespaces, all bool
	refused         string // why the cluster doesn't do it, "" if it does
}

// translate turns a path of the cluster into one of the API server.
func (c *Cluster) translate(method, path string) (target, error) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var version []string
	switch {
	case len(parts) > 2 && parts[0] == "api": // api/v1/...
		version = parts[:2]
	case len(parts) > 3 && parts[0] == "apis": // apis/group/version/...
		version = parts[:3]
	default:
		return target{path: path}, nil
	}
	about := parts[len(version):]
	to := func(rest ...string) string {
		return "/" + strings.Join(append(append([]string{}, version...), rest...), "/")
	}
	if about[0] == "namespaces" && version[0] == "api" && len(about) < 4 &&
		(len(about) < 3 || about[2] == "status" || about[2] == "finalize") {
		t := target{path: path, namespaces: true}
		if len(about) > 1 {
			t.path = to(append([]string{"namespaces", c.real(about[1])}, about[2:]...)...)
		}
		if method == "POST" && len(about) == 1 {
			t.refused = fmt.Sprintf("virtual cluster %s has one namespace, %s", c.name, metav1.NamespaceDefault)
		}
		t.all = len(about) == 1
		return t, nil
	}
	if about[0] == "namespaces" && len(about) > 2 {
		return target{path: to(append([]string{"namespaces", c.real(about[1])}, about[2:]...)...)}, nil
	}
	if len(about) > 1 {
		return target{path: path}, nil // an object without a namespace
	}
	namespaced, err := c.host.kinds.isNamespaced(strings.Join(version[1:], "/"), about[0])
	if err != nil || !namespaced {
		return target{path: path}, err
	}
	return target{path: to("namespaces", c.real(metav1.NamespaceDefault), about[0])}, nil
}

// namespaceFields are the field selectors that name a namespace.
var namespaceFields = map[string]bool{"metadata.namespace": true, "involvedObject.namespace": true,
	"regarding.namespace": true}

// selected translates what a query selects by fields.
func (c *Cluster) selected(query url.Values, t target) error {
	text := query.Get("fieldSelector")
	if text == "" {
		return nil
	}
	selector, err := fields.ParseSelector(text)
	if err != nil {
		return err
	}
	selector, err = selector.Transform(func(field, value string) (string, string, error) {
		if namespaceFields[field] || t.namespaces && field == "metadata.name" {
			value = c.real(value)
		}
		return field, value, nil
	})
	if err != nil {
		return err
	}
	query.Set("fieldSelector", selector.String())
	return nil
}
