package virtual

import (
	"context"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/test/lab/faultproxy"
)

// Host is an API server with virtual clusters on it. It is safe for concurrent use.
type Host struct {
	upstream *url.URL
	client   kubernetes.Interface
	// admin shows the upstream's credentials, others only what a client brings.
	admin, others http.RoundTripper
	kinds         *kinds

	mu       sync.Mutex // guards what follows
	clusters []*Cluster
}

// NewHost takes the admin's client configuration of an API server.
func NewHost(upstream *rest.Config) (*Host, error) {
	upstream = rest.CopyConfig(upstream)
	upstream.QPS = -1
	address, _, err := rest.DefaultServerUrlFor(upstream)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the API server: %w", err)
	}
	h := &Host{upstream: address}
	if h.client, err = kubernetes.NewForConfig(upstream); err != nil {
		return nil, fmt.Errorf("making a client of the API server: %w", err)
	}
	h.kinds = &kinds{discovery: h.client.Discovery(), namespaced: map[string]bool{}}
	anonymous := rest.AnonymousClientConfig(upstream)
	for config, to := range map[*rest.Config]*http.RoundTripper{upstream: &h.admin, anonymous: &h.others} {
		config.DisableCompression = true
		if *to, err = rest.TransportFor(config); err != nil {
			return nil, fmt.Errorf("connecting with the API server: %w", err)
		}
	}
	return h, nil
}

// Cluster is one virtual cluster.
type Cluster struct {
	name   string
	uid    string
	host   *Host
	token  string // of the admin
	server *httptest.Server
}

// Add makes a virtual cluster. Its namespaces are those whose names begin with its name and a dash.
func (h *Host) Add(ctx context.Context, name string) (*Cluster, error) {
	if wrong := validation.IsDNS1123Label(name + "-kube-system"); len(wrong) > 0 {
		return nil, fmt.Errorf("virtual cluster %q: name: %s", name, wrong[0])
	}
	c := &Cluster{name: name, host: h, token: rand.Text()}
	for _, namespace := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault} {
		made, err := h.namespace(ctx, c.real(namespace))
		if err != nil {
			return nil, fmt.Errorf("virtual cluster %s: making namespace %s: %w", name, namespace, err)
		}
		if namespace == metav1.NamespaceSystem {
			c.uid = string(made.UID)
		}
	}
	c.server = httptest.NewUnstartedServer(c)
	c.server.EnableHTTP2 = true
	c.server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that are killed leave half a handshake behind
	c.server.StartTLS()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clusters = append(h.clusters, c)
	return c, nil
}

// namespace makes one that is ready for Pods, if it isn't there yet.
func (h *Host) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	core := h.client.CoreV1()
	made, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		made, err = core.Namespaces().Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		return nil, err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := core.ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	return made, nil
}

// Close cuts all connections and stops listening. What the clusters hold stays on the API server.
func (h *Host) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all sync.WaitGroup
	for _, c := range h.clusters {
		all.Go(func() {
			c.server.CloseClientConnections()
			c.server.Close()
		})
	}
	all.Wait()
	h.clusters = nil
}

// Name is the cluster's.
func (c *Cluster) Name() string { return c.name }

// UID is the cluster's: that of its kube-system namespace.
func (c *Cluster) UID() string { return c.uid }

// ca is the certificate that clients must trust, in PEM.
func (c *Cluster) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.server.Certificate().Raw})
}

// RESTConfig is the admin's client configuration, the caller's to change.
func (c *Cluster) RESTConfig() *rest.Config {
	return &rest.Config{Host: c.server.URL, BearerToken: c.token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca()}}
}

// Kubeconfig rewrites a kubeconfig of the API server into one of the virtual cluster. It must show a token: a client
// certificate can't be passed on.
func (c *Cluster) Kubeconfig(kubeconfig []byte) ([]byte, error) {
	return faultproxy.Kubeconfig(kubeconfig, c.server.URL, c.ca())
}
