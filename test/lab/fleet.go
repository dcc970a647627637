package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab/faultproxy"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// Options of a fleet; zero values mean the defaults.
type Options struct {
	// Workloads are the names of the workload clusters. All are known to the replicas from the start.
	Workloads []string
	// Bare leaves out what makes Pods run in the workload clusters: an API server alone is enough for many tests.
	Bare bool
	// NoNodes leaves out nodes, scheduler and KWOK: Pods stay Pending until somebody else ends them.
	NoNodes bool
	// LeaseDuration of the replicas; default 5 s.
	LeaseDuration time.Duration
	// ShardsPerCluster; default 8.
	ShardsPerCluster int
	// Tenure is the binary; empty is Build's, with the race detector if this program has it.
	Tenure string
	// Dir is kept; empty means a temporary folder that Stop removes.
	Dir string
	// Direct connects the replicas with the API servers themselves. What goes through a proxy can be hurt, and takes time
	// of the processors that is missing where gaps are measured.
	Direct bool
	// TmpfsData is localplane's.
	TmpfsData bool
	// Progress receives a line per step; nil is silence.
	Progress io.Writer
	// Seed of the proxies.
	Seed uint64
}

// Fleet is control planes with what a user would install, and the replicas on them.
type Fleet struct {
	Planes  *localplane.Planes
	options Options
	site    *Site
	clients map[string]client.Client

	mu       sync.Mutex // guards all below
	proxies  map[string]*faultproxy.Proxy
	homes    map[string]*faultproxy.Proxy // by replica
	replicas []*Replica                   // every process ever started
}

// Start starts the planes, installs config/ and makes the workload clusters known. It starts no replica.
func Start(ctx context.Context, o Options) (_ *Fleet, err error) {
	if o.LeaseDuration == 0 {
		o.LeaseDuration = 5 * time.Second
	}
	if o.ShardsPerCluster == 0 {
		o.ShardsPerCluster = 8
	}
	clusters := []localplane.ClusterConfig{{Name: Home}}
	for _, name := range o.Workloads {
		cluster := localplane.ClusterConfig{Name: name, Workload: !o.Bare}
		if o.NoNodes {
			cluster.Nodes = localplane.NoNodes
		}
		clusters = append(clusters, cluster)
	}
	planes, err := localplane.Start(ctx, localplane.Config{Dir: o.Dir, Clusters: clusters, TmpfsData: o.TmpfsData, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	f := &Fleet{
		Planes: planes, options: o, clients: map[string]client.Client{},
		proxies: map[string]*faultproxy.Proxy{}, homes: map[string]*faultproxy.Proxy{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Stop())
		}
	}()
	if o.Tenure == "" {
		if f.options.Tenure, err = Build(ctx, planes.Dir(), "tenure", RaceDetector); err != nil {
			return nil, err
		}
	}
	if err := f.install(ctx); err != nil {
		return nil, err
	}
	for _, name := range o.Workloads {
		if err := f.AddCluster(ctx, name, name); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// install applies what config/ ships, and makes the admin's clients.
func (f *Fleet) install(ctx context.Context) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, cnatv1alpha1.AddToScheme, tenurev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("building the scheme: %w", err)
		}
	}
	var err error
	if f.site, err = Install(ctx, f.Planes, SiteConfig{UserAgent: "chaos"}); err != nil {
		return err
	}
	for _, plane := range f.Planes.Clusters() {
		config := plane.RESTConfig()
		config.UserAgent = "chaos"
		if f.clients[plane.Name()], err = client.New(config, client.Options{Scheme: scheme}); err != nil {
			return fmt.Errorf("making a client of cluster %s: %w", plane.Name(), err)
		}
	}
	return nil
}

// Client is the admin's, straight to a cluster's API server.
func (f *Fleet) Client(cluster string) client.Client { return f.clients[cluster] }

// Workloads are the names of the workload clusters that there are planes for.
func (f *Fleet) Workloads() []string { return f.options.Workloads }

// LeaseDuration of the replicas.
func (f *Fleet) LeaseDuration() time.Duration { return f.options.LeaseDuration }

// Proxy is what stands between all replicas and a workload cluster; nil if nothing does.
func (f *Fleet) Proxy(cluster string) *faultproxy.Proxy {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.proxies[cluster]
}

// HomeProxy is what stands between one replica and the home cluster; nil before the replica was first started, and if
// nothing does.
func (f *Fleet) HomeProxy(replica string) *faultproxy.Proxy {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.homes[replica]
}

// Agent is the part of a User-Agent that every request of a replica's shards carries, whatever its incarnation.
func Agent(replica string) string { return "replica=" + replica + "-" }

// ClusterKubeconfig is the kubeconfig that replicas get for a workload plane: the service account's, through the proxy.
func (f *Fleet) ClusterKubeconfig(ctx context.Context, plane string) ([]byte, error) {
	if f.options.Direct {
		return f.accountKubeconfig(ctx, plane)
	}
	f.mu.Lock()
	proxy := f.proxies[plane]
	f.mu.Unlock()
	if proxy == nil {
		var err error
		proxy, err = faultproxy.Start(faultproxy.Config{Upstream: f.Planes.Cluster(plane).RESTConfig(), Seed: f.options.Seed})
		if err != nil {
			return nil, fmt.Errorf("starting the proxy to cluster %s: %w", plane, err)
		}
		f.mu.Lock()
		f.proxies[plane] = proxy
		f.mu.Unlock()
	}
	content, err := f.accountKubeconfig(ctx, plane)
	if err != nil {
		return nil, err
	}
	return proxy.Kubeconfig(content)
}

// accountKubeconfig is the service account's, straight to the API server.
func (f *Fleet) accountKubeconfig(ctx context.Context, plane string) ([]byte, error) {
	path, err := f.site.Kubeconfig(ctx, plane)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of cluster %s: %w", plane, err)
	}
	return content, nil
}

// AddCluster makes a workload plane known to the replicas under a name.
func (f *Fleet) AddCluster(ctx context.Context, name, plane string) error {
	kubeconfig, err := f.ClusterKubeconfig(ctx, plane)
	if err != nil {
		return err
	}
	return f.AddKubeconfig(ctx, name, kubeconfig)
}

// AddKubeconfig makes or replaces the Secret of a workload cluster.
func (f *Fleet) AddKubeconfig(ctx context.Context, name string, kubeconfig []byte) error {
	return f.site.AddKubeconfig(ctx, name, kubeconfig)
}

// RemoveCluster takes a workload cluster from the replicas.
func (f *Fleet) RemoveCluster(ctx context.Context, name string) error {
	return f.site.RemoveCluster(ctx, name)
}

// Stop ends everything: replicas, proxies, planes.
func (f *Fleet) Stop() error {
	for _, r := range f.Replicas() {
		r.Kill()
	}
	f.mu.Lock()
	for _, proxies := range []map[string]*faultproxy.Proxy{f.proxies, f.homes} {
		for _, p := range proxies {
			p.Close()
		}
	}
	f.mu.Unlock()
	return f.Planes.Stop()
}
