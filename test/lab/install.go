package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/lab/rights"
)

// Names that config/ ships.
const (
	// Home is the cluster of the coordination records.
	Home      = "home"
	Namespace = "tenure-system"
	// Account is the service account that replicas run as; AccountUser is its name in an audit log.
	Account     = "tenure"
	AccountUser = rights.User
	// ClusterLabel marks the Secrets that are workload clusters.
	ClusterLabel = "sigs.k8s.io/multicluster-runtime-kubeconfig"
)

// servedWithin bounds the wait until an API server answers for a new kind.
const servedWithin = 30 * time.Second

// Paths that are served once the kinds have arrived.
const (
	homeServes     = "/apis/tenure.dev/v1alpha1/shards"
	workloadServes = "/apis/cnat.programming-kubernetes.info/v1alpha1/ats"
)

// install applies config/ to all planes at the same time, and returns when they serve the new kinds.
func (f *Fleet) install(ctx context.Context) error {
	failures := make([]error, len(f.Planes.Clusters()))
	var group sync.WaitGroup
	for i, plane := range f.Planes.Clusters() {
		group.Go(func() {
			if plane.Name() != Home && f.options.Empty {
				return
			}
			if plane.Name() != Home {
				folder := "workload"
				if f.options.Replication {
					folder = "replication/target"
				}
				failures[i] = installWorkload(ctx, plane, folder)
				return
			}
			folder := "default"
			if f.options.Replication {
				folder = "replication/home"
			}
			// All of it: no Pod comes of the Deployment, since home has no controllers.
			failures[i] = install(ctx, plane, homeServes, "-k", filepath.Join(f.root, "config", folder))
		})
	}
	group.Wait()
	return errors.Join(failures...)
}

// AddHome makes one more namespace for the records of a fleet in a home cluster, with the rights that config/ gives
// replicas in [Namespace]: two fleets share a home, and each knows the clusters of its own namespace alone.
func AddHome(ctx context.Context, home client.Client, namespace string) error {
	if err := AddNamespace(ctx, home, namespace); err != nil {
		return err
	}
	bindings := &rbacv1.RoleBindingList{}
	if err := home.List(ctx, bindings, client.InNamespace(Namespace)); err != nil {
		return fmt.Errorf("reading who has which rights in namespace %s: %w", Namespace, err)
	}
	for _, b := range bindings.Items {
		role := &rbacv1.Role{}
		if err := home.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: b.RoleRef.Name}, role); err != nil {
			return fmt.Errorf("reading role %s: %w", b.RoleRef.Name, err)
		}
		role.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: role.Name}
		b.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: b.Name}
		for _, obj := range []client.Object{role, &b} {
			if err := home.Create(ctx, obj); client.IgnoreAlreadyExists(err) != nil {
				return fmt.Errorf("giving replicas their rights in namespace %s: %w", namespace, err)
			}
		}
	}
	return nil
}

// InstallWorkload installs what config/workload has.
func InstallWorkload(ctx context.Context, plane *localplane.Plane) error {
	return installWorkload(ctx, plane, "workload")
}

// installWorkload installs what a folder of config/ has, config/workload being among it.
func installWorkload(ctx context.Context, plane *localplane.Plane, folder string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	return install(ctx, plane, workloadServes, "-k", filepath.Join(root, "config", folder))
}

// install applies manifests and waits until a path is served.
func install(ctx context.Context, plane *localplane.Plane, serves string, what ...string) error {
	if _, err := plane.Kubectl(ctx, "", append([]string{"apply", "--validate=strict"}, what...)...); err != nil {
		return fmt.Errorf("installing in cluster %s: %w", plane.Name(), err)
	}
	c, err := kubernetes.NewForConfig(plane.RESTConfig())
	if err != nil {
		return fmt.Errorf("making a client of cluster %s: %w", plane.Name(), err)
	}
	err = Eventually(ctx, servedWithin, func() error {
		return c.Discovery().RESTClient().Get().AbsPath(serves).Param("limit", "1").Do(ctx).Error()
	})
	if err != nil {
		return fmt.Errorf("waiting until cluster %s serves its CRDs: %w", plane.Name(), err)
	}
	return nil
}

// Root is the folder of the repository that the working directory is in.
func Root() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for the repository: %w", err)
	}
	for {
		if info, err := os.Stat(filepath.Join(folder, "config", "crd", "kustomization.yaml")); err == nil &&
			info.Mode().IsRegular() {
			return folder, nil
		}
		if folder == filepath.Dir(folder) {
			return "", errors.New("no config/crd here or above: run this inside a checkout of tenure")
		}
		folder = filepath.Dir(folder)
	}
}

// FindTenure returns the replicas' binary: the one that is named; if none is, the one beside this program, or else
// bin/tenure of the repository.
func FindTenure(named string) (string, error) {
	return localplane.FindProgram("tenure", named, "--tenure", "make build")
}
