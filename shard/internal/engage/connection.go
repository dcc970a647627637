package engage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
)

// Connection is how all shards of a real cluster reach its API server. Its credentials and TLS can be replaced while it
// is in use: requests that are sent afterwards use the new ones. Those that are under way, watches among them, go on
// until they end, and a watch is asked for again from its last resourceVersion. It is safe for concurrent use.
type Connection struct {
	server *url.URL
	name   string       // the name in the server's certificate, if it isn't the host's
	config *rest.Config // without credentials and TLS, which are the transport's
	scheme *runtime.Scheme
	codecs func() serializer.CodecFactory // of the scheme; made when the first shard is opened
	small  *http.Client                   // over this connection, for requests whose answers are small
	mapper *mapping                       // over this connection
	way    replaceable
}

// Connect returns the connection to a real cluster. Nothing is sent.
func Connect(real cluster.Cluster) (*Connection, error) {
	server, _, err := rest.DefaultServerUrlFor(real.GetConfig())
	if err != nil {
		return nil, fmt.Errorf("reading the address of the API server: %w", err)
	}
	c := &Connection{server: server, name: real.GetConfig().ServerName, scheme: real.GetScheme()}
	c.codecs = sync.OnceValue(func() serializer.CodecFactory { return serializer.NewCodecFactory(c.scheme) })
	server.Path = strings.TrimRight(server.Path, "/")
	config := rest.CopyConfig(real.GetConfig())
	// Servers would compress long lists, and a new holder waits for those. Over networks of 30 MB/s or more,
	// compression takes longer than it saves (kubernetes/kubernetes#112296).
	config.DisableCompression = true
	by, err := newWay(config)
	if err != nil {
		return nil, fmt.Errorf("building the transport of %s: %w", server.Host, err)
	}
	c.way.Store(by)
	c.config = rest.AnonymousClientConfig(real.GetConfig())
	c.config.Host, c.config.TLSClientConfig = server.String(), rest.TLSClientConfig{}
	c.config.Proxy, c.config.Dial = nil, nil
	c.config.Transport = &c.way
	c.config.QPS = -1 // the API server's own priority and fairness decides
	c.small = &http.Client{Transport: kubeconfig.Bounded(Noting(&c.way)), Timeout: c.config.Timeout}
	if c.mapper, err = newMapping(c.config, c.small.Transport); err != nil {
		return nil, fmt.Errorf("building the REST mapping of %s: %w", server.Host, err)
	}
	return c, nil
}

// Replace makes all requests from now on use the credentials and the TLS settings of another connection to the same
// server.
func (c *Connection) Replace(by *Connection) {
	c.way.Swap(by.way.Load()).rest()
}

// Redial makes all requests from now on use new connections, unless a program's own transport or dialer decides that. A
// server that is dead, or cut off, doesn't close its connections, and HTTP/2 would make all requests wait for it for
// 45 s, though behind a load balancer there may be others. What is under way goes on. It does nothing while each
// request has had to wait for a connection and got no answer: a server that takes long to connect to would be begun
// with again and again.
func (c *Connection) Redial() {
	old := c.way.Load()
	if old.again == nil || !old.used.Load() {
		return
	}
	if by, err := old.again(); err == nil && c.way.CompareAndSwap(old, by) {
		old.rest()
	}
}

// Rest closes connections that are open and idle. The next request opens one again.
func (c *Connection) Rest() { c.way.Load().rest() }

// SameServer reports whether two connections lead to the same address and name.
func (c *Connection) SameServer(other *Connection) bool {
	return *c.server == *other.server && c.name == other.name
}

// Config returns a configuration for clients that use the connection, and that follow when its credentials are
// replaced. No gate stops what they write.
func (c *Connection) Config() *rest.Config { return rest.CopyConfig(c.config) }

// identifyTimeout bounds [Connection.Identify].
const identifyTimeout = 5 * time.Second

// Identify asks the cluster for its identity: the UID of its namespace kube-system, which stays the same for its
// whole life. An answer without a UID is an error: whatever speaks JSON could give it.
func (c *Connection) Identify(ctx context.Context) (types.UID, error) {
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	client, err := typedcorev1.NewForConfigAndClient(c.config, c.small)
	if err != nil {
		return "", err
	}
	system, err := client.Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	switch {
	case err != nil:
		return "", err
	case system.UID == "":
		return "", errors.New("the answer has no UID: is this an API server?")
	}
	return system.UID, nil
}

// countTimeout bounds [Connection.Count].
const countTimeout = 5 * time.Second

// Count returns how many objects of all these kinds there are. It lists one object of each kind, and fails if the API
// server doesn't say how many remain.
func (c *Connection) Count(ctx context.Context, kinds []client.Object) (objects int64, _ error) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	reader, err := client.New(c.config, client.Options{HTTPClient: c.small, Scheme: c.scheme, Mapper: c.mapper})
	if err != nil {
		return 0, err
	}
	for _, kind := range kinds {
		gvk, err := apiutil.GVKForObject(kind, c.scheme)
		if err != nil {
			return 0, err
		}
		first := &metav1.PartialObjectMetadataList{}
		first.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := reader.List(ctx, first, client.Limit(1)); err != nil {
			return 0, err
		}
		objects += int64(len(first.Items))
		switch rest := first.RemainingItemCount; {
		case rest != nil:
			objects += *rest
		case first.Continue != "":
			return 0, fmt.Errorf("the API server doesn't say how many %s there are", gvk.Kind)
		}
	}
	return objects, nil
}

// replaceable is a transport that sends requests through the one that was stored last.
type replaceable struct {
	atomic.Pointer[way]
}

func (r *replaceable) RoundTrip(req *http.Request) (*http.Response, error) {
	return r.Load().RoundTrip(req)
}

// notingReuse returns the request with a context by which reused is set if the request gets a connection that an
// earlier one has had.
func notingReuse(req *http.Request, reused *atomic.Bool) *http.Request {
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) {
			if got.Reused {
				reused.Store(true)
			}
		},
	}))
}

// way is a transport of one set of credentials.
type way struct {
	http.RoundTripper
	inner http.RoundTripper    // the one that has connections: a program's own wrapper may not tell what it wraps
	again func() (*way, error) // makes another with the same credentials and its own connections; may be nil
	used  atomic.Bool          // whether a request was answered, or got a connection that an earlier one has had
}

func newWay(config *rest.Config) (*way, error) {
	w := &way{}
	own := rest.CopyConfig(config)
	// A dialer of its own keeps client-go from sharing connections with other credentials for the same server. An API
	// server closes a connection on which it refused a request's credentials, and so ends all other requests on it.
	if own.Dial == nil && own.Transport == nil {
		own.Dial = newDial()
		w.again = func() (*way, error) { return newWay(config) }
	}
	own.WrapTransport = transport.Wrappers(w.remember, own.WrapTransport)
	var err error
	w.RoundTripper, err = kubeconfig.TransportFor(own)
	return w, err
}

// sending is a function as a transport.
type sending func(*http.Request) (*http.Response, error)

func (s sending) RoundTrip(req *http.Request) (*http.Response, error) { return s(req) }

// remember is the innermost wrapper, since others may send requests with contexts of their own.
func (w *way) remember(inner http.RoundTripper) http.RoundTripper {
	w.inner = inner
	return sending(func(req *http.Request) (*http.Response, error) {
		if w.used.Load() {
			return inner.RoundTrip(req)
		}
		res, err := inner.RoundTrip(notingReuse(req, &w.used))
		if err == nil {
			w.used.Store(true)
		}
		return res, err
	})
}

// rest closes connections that are open and idle.
func (w *way) rest() { utilnet.CloseIdleConnectionsFor(w.inner) }
