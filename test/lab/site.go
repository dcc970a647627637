package lab

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

	"k8s.io/client-go/kubernetes"

	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// Names that config/ ships.
const (
	// Home is the cluster of the coordination records.
	Home      = "home"
	Namespace = "tenure-system"
	// Account is the service account that replicas run as; AccountUser is its name in an audit log.
	Account     = "tenure"
	AccountUser = "system:serviceaccount:" + Namespace + ":" + Account
	// ClusterLabel marks the Secrets that are workload clusters.
	ClusterLabel = "sigs.k8s.io/multicluster-runtime-kubeconfig"
)

const (
	// servedWithin bounds the wait until an API server answers for a new kind.
	servedWithin = 30 * time.Second
	pollEvery    = 50 * time.Millisecond
)

// SiteConfig says what to install. The zero value is good inside the repository.
type SiteConfig struct {
	// Manifests is the folder config/ of the repository. Empty: that around the working directory, see Root.
	Manifests string
	// Binary is the control-plane binary, which is kubectl too. Empty: see localplane.FindBinary.
	Binary string
	// Replication adds the right to replicate Deployments of the home cluster.
	Replication bool
	// Traced has replicas be in the group system:monitoring too, so that API servers hang their spans below those of the
	// replicas. Their rights stay those of the service account.
	Traced bool
	// UserAgent of our own requests, as in an audit log.
	UserAgent string
}

// Site is control planes with everything that replicas need.
type Site struct {
	config  SiteConfig
	planes  *localplane.Planes
	clients map[string]kubernetes.Interface
}

// homeManifests are those parts of config/default that need no image.
var homeManifests = []string{
	"default/namespace.yaml", "crd/tenure.dev_shards.yaml", "rbac/service_account.yaml", "rbac/home_role.yaml",
	"flowcontrol/flow_schema.yaml",
}

// Paths that are served once the kinds have arrived.
const (
	homeServes     = "/apis/tenure.dev/v1alpha1/shards"
	workloadServes = "/apis/cnat.programming-kubernetes.info/v1alpha1/ats"
)

// Install applies config/ to all planes at the same time, and returns when they serve the new kinds.
func Install(ctx context.Context, planes *localplane.Planes, config SiteConfig) (*Site, error) {
	if config.Manifests == "" {
		root, err := Root()
		if err != nil {
			return nil, err
		}
		config.Manifests = filepath.Join(root, "config")
	}
	if config.Binary == "" {
		var err error
		if config.Binary, err = localplane.FindBinary(); err != nil {
			return nil, err
		}
	}
	f := &Site{config: config, planes: planes, clients: map[string]kubernetes.Interface{}}
	for _, plane := range planes.Clusters() {
		rest := plane.RESTConfig()
		rest.UserAgent = config.UserAgent
		var err error
		if f.clients[plane.Name()], err = kubernetes.NewForConfig(rest); err != nil {
			return nil, fmt.Errorf("making a client of cluster %s: %w", plane.Name(), err)
		}
	}
	failures := make([]error, len(planes.Clusters()))
	var group sync.WaitGroup
	for i, plane := range planes.Clusters() {
		group.Go(func() { failures[i] = f.install(ctx, plane) })
	}
	group.Wait()
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *Site) install(ctx context.Context, plane *localplane.Plane) error {
	what, serves := []string{"-k", f.manifest("workload")}, workloadServes
	if plane.Name() == Home {
		what, serves = nil, homeServes
		for _, file := range homeManifests {
			what = append(what, "-f", f.manifest(file))
		}
		if f.config.Replication {
			what = append(what, "-f", f.manifest("replication/cluster_role.yaml"))
		}
	}
	if err := f.apply(ctx, plane, what); err != nil {
		return err
	}
	served := func() error {
		return f.clients[plane.Name()].Discovery().RESTClient().Get().AbsPath(serves).Param("limit", "1").Do(ctx).Error()
	}
	if err := Eventually(ctx, servedWithin, served); err != nil {
		return fmt.Errorf("waiting until cluster %s serves its CRDs: %w", plane.Name(), err)
	}
	return nil
}

func (f *Site) manifest(path string) string { return filepath.Join(f.config.Manifests, path) }

// apply runs kubectl, which also knows kustomize. It ends with us.
func (f *Site) apply(ctx context.Context, plane *localplane.Plane, what []string) error {
	args := append([]string{"kubectl", "--kubeconfig", plane.Kubeconfig(), "--cache-dir", filepath.Join(plane.Dir(), "kubectl-cache"),
		"apply", "--validate=strict"}, what...)
	command := exec.CommandContext(ctx, f.config.Binary, args...)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	err := localplane.StartChild(command)
	if err == nil {
		err = command.Wait()
	}
	if err != nil {
		return fmt.Errorf("applying %s in cluster %s: %w: %s", strings.Join(what, " "), plane.Name(), err, strings.TrimSpace(output.String()))
	}
	return nil
}

// Client is the admin's client of a cluster.
func (f *Site) Client(cluster string) kubernetes.Interface { return f.clients[cluster] }

// Eventually repeats what fails until it doesn't; the last failure is returned when time is up.
func Eventually(ctx context.Context, within time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %w", within, err)
		case <-time.After(pollEvery):
		}
	}
}

// Root is the folder of the repository that the working directory is in.
func Root() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for the repository: %w", err)
	}
	for {
		if info, err := os.Stat(filepath.Join(folder, "config", "crd", "kustomization.yaml")); err == nil && info.Mode().IsRegular() {
			return folder, nil
		}
		if folder == filepath.Dir(folder) {
			return "", errors.New("no config/crd here or above: run this inside a checkout of tenure")
		}
		folder = filepath.Dir(folder)
	}
}
