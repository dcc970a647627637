package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	tenurev1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/localplane"
)

// servedWithin bounds the wait for something the API server makes by itself: a CRD's endpoint, a default account.
const servedWithin = 30 * time.Second

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, cnatv1.AddToScheme, tenurev1.AddToScheme} {
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
}

// install puts into the clusters what a user would: the manifests of config/, and a kubeconfig Secret per cluster.
func install(ctx context.Context, s *settings, planes *localplane.Planes) (*fleet, error) {
	f := &fleet{settings: s, planes: planes, clients: map[string]client.Client{}}
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
	var group sync.WaitGroup
	failures := make([]error, 1+len(workloadClusters))
	group.Go(func() { failures[0] = f.installHome(ctx) })
	for i, name := range workloadClusters {
		group.Go(func() { failures[1+i] = f.installWorkload(ctx, name) })
	}
	group.Wait()
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	for _, name := range workloadClusters {
		if err := f.addCluster(ctx, name); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *fleet) installHome(ctx context.Context) error {
	var args []string
	for _, file := range []string{
		"default/namespace.yaml", "crd/tenure.dev_shards.yaml", "rbac/service_account.yaml", "rbac/home_role.yaml",
		"flowcontrol/flow_schema.yaml",
	} {
		args = append(args, "-f", filepath.Join(f.settings.config, file))
	}
	if err := f.apply(ctx, homeCluster, args...); err != nil {
		return err
	}
	if err := f.served(ctx, homeCluster, &tenurev1.ShardList{}); err != nil {
		return err
	}
	var err error
	f.homePath, err = f.planes.Cluster(homeCluster).ServiceAccountKubeconfig(ctx, namespace, account)
	return err
}

func (f *fleet) installWorkload(ctx context.Context, name string) error {
	if err := f.apply(ctx, name, "-k", filepath.Join(f.settings.config, "workload")); err != nil {
		return err
	}
	if err := f.served(ctx, name, &cnatv1.AtList{}); err != nil {
		return err
	}
	for _, ns := range atNamespaces {
		if err := f.addNamespace(ctx, name, ns); err != nil {
			return err
		}
	}
	return nil
}

// apply runs kubectl, which also knows kustomize.
func (f *fleet) apply(ctx context.Context, name string, what ...string) error {
	args := append([]string{"kubectl", "--kubeconfig", f.planes.Cluster(name).Kubeconfig(),
		"--cache-dir", filepath.Join(f.planes.Dir(), name, "kubectl-cache"), "apply"}, what...)
	command := exec.CommandContext(ctx, f.settings.controlplane, args...)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	err := localplane.StartChild(command)
	if err == nil {
		err = command.Wait()
	}
	if err != nil {
		return fmt.Errorf("applying %s in cluster %s: %w: %s", strings.Join(what, " "), name, err, strings.TrimSpace(output.String()))
	}
	return nil
}

// served waits until the API server answers for a new kind.
func (f *fleet) served(ctx context.Context, name string, list client.ObjectList) error {
	err := eventually(ctx, func() error { return f.clients[name].List(ctx, list, client.Limit(1)) })
	if err != nil {
		return fmt.Errorf("waiting until cluster %s serves its CRDs: %w", name, err)
	}
	return nil
}

// addNamespace makes a namespace that is ready for Pods: they need its default service account.
func (f *fleet) addNamespace(ctx context.Context, name, ns string) error {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	if err := f.clients[name].Create(ctx, object); err != nil {
		return fmt.Errorf("making namespace %s in cluster %s: %w", ns, name, err)
	}
	err := eventually(ctx, func() error {
		return f.clients[name].Get(ctx, client.ObjectKey{Namespace: ns, Name: "default"}, &corev1.ServiceAccount{})
	})
	if err != nil {
		return fmt.Errorf("waiting for the default service account of %s in cluster %s: %w", ns, name, err)
	}
	return nil
}

// addCluster makes a workload cluster known to the replicas.
func (f *fleet) addCluster(ctx context.Context, name string) error {
	path, err := f.planes.Cluster(name).ServiceAccountKubeconfig(ctx, namespace, account)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of cluster %s: %w", name, err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"},
		},
		Data: map[string][]byte{"kubeconfig": content},
	}
	if err := f.clients[homeCluster].Create(ctx, secret); err != nil {
		return fmt.Errorf("telling the replicas about cluster %s: %w", name, err)
	}
	return nil
}

// eventually repeats what fails until it doesn't, or until time is up.
func eventually(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, servedWithin)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		if waitErr := sleep(ctx, 50*time.Millisecond); waitErr != nil {
			return err
		}
	}
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
