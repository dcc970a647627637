package engage

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// mappingTimeout bounds a request for resources, since callers that need a mapping give no context.
const mappingTimeout = 10 * time.Second

// mapping is the REST mapping of one API server. Clients and caches request a kind in one version. The mapping then
// reads that version's resources and keeps the one: all resources of an API server would take much memory in every
// replica. It is safe for concurrent use.
type mapping struct {
	meta.RESTMapper // answers all other questions, and reads all resources at the first
	resources       discovery.ServerResourcesInterface

	mu    sync.Mutex // guards known; not held while the server is asked
	known map[schema.GroupVersionKind]*meta.RESTMapping
}

// newMapping sends nothing.
func newMapping(config *rest.Config, transport http.RoundTripper) (*mapping, error) {
	httpClient := &http.Client{Transport: transport, Timeout: mappingTimeout}
	all, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	if err != nil {
		return nil, err
	}
	resources, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	return &mapping{RESTMapper: all, resources: resources, known: map[schema.GroupVersionKind]*meta.RESTMapping{}}, nil
}

func (m *mapping) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if len(versions) != 1 || versions[0] == "" {
		return m.RESTMapper.RESTMapping(kind, versions...)
	}
	gvk := kind.WithVersion(versions[0])
	m.mu.Lock()
	known := m.known[gvk]
	m.mu.Unlock()
	if known != nil {
		return known, nil
	}
	found, err := m.find(gvk)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[gvk] = found
	return found, nil
}

// find asks the server. If it doesn't have the kind, it is asked again the next time.
func (m *mapping) find(gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	version := gvk.GroupVersion()
	list, err := m.resources.ServerResourcesForGroupVersion(version.String())
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("asking for the resources of %s: %w", version, err)
	}
	if err == nil {
		for i := range list.APIResources {
			r := &list.APIResources[i]
			if r.Kind != gvk.Kind || strings.Contains(r.Name, "/") { // subresources have kinds, too
				continue
			}
			scope := meta.RESTScopeRoot
			if r.Namespaced {
				scope = meta.RESTScopeNamespace
			}
			return &meta.RESTMapping{Resource: version.WithResource(strings.Clone(r.Name)), GroupVersionKind: gvk, Scope: scope},
				nil
		}
	}
	return nil, &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
}
