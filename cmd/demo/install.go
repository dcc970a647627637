package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/localjaeger"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, cnatv1alpha1.AddToScheme, tenurev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // two kinds of one name: a mistake in this program
		}
	}
	return scheme
}

// fleet is what the replicas find: clusters with the CRDs and with exactly the rights that config/ ships.
type fleet struct {
	settings *settings
	planes   *localplane.Planes
	clients  map[string]client.Client // by cluster, as admin
	homePath string                   // kubeconfig of the replicas' account at home
	jaeger   *localjaeger.Jaeger
}

// install puts into the clusters what a user would, and makes them known.
func install(ctx context.Context, s *settings, planes *localplane.Planes, jaeger *localjaeger.Jaeger) (*fleet, error) {
	f := &fleet{settings: s, planes: planes, clients: map[string]client.Client{}, jaeger: jaeger}
	scheme := newScheme()
	for _, plane := range planes.Clusters() {
		config := plane.RESTConfig()
		config.UserAgent = "demo"
		c, err := client.New(config, client.Options{Scheme: scheme})
		if err != nil {
			return nil, fmt.Errorf("making a client for cluster %s: %w", plane.Name(), err)
		}
		f.clients[plane.Name()] = c
	}
	site, err := lab.Install(ctx, planes, lab.SiteConfig{
		Manifests: s.config, Binary: s.controlplane, Replication: true, Traced: true, UserAgent: "demo",
	})
	if err != nil {
		return nil, err
	}
	// Only at home: where copies need it, the replicas make it.
	if err := site.AddNamespace(ctx, homeCluster, sourceNamespace); err != nil {
		return nil, err
	}
	for _, name := range workloadClusters {
		for _, ns := range atNamespaces {
			if err := site.AddNamespace(ctx, name, ns); err != nil {
				return nil, err
			}
		}
		if err := site.AddCluster(ctx, name); err != nil {
			return nil, err
		}
	}
	f.homePath, err = site.Kubeconfig(ctx, homeCluster)
	return f, err
}

// sleep waits, or returns why the context ended first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
