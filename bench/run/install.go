package run

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
	"k8s.io/client-go/kubernetes"

	"github.com/tenure-dev/tenure/bench/load"
	"github.com/tenure-dev/tenure/bench/load/feed"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/pkg/localplane"
)

const (
	homeCluster = "home"
	namespace   = "tenure-system"
	account     = "tenure"
	// accountUser is the account's name in an audit log.
	accountUser = "system:serviceaccount:" + namespace + ":" + account
	// servedWithin bounds the wait for what an API server makes by itself.
	servedWithin = 30 * time.Second
)

// site is the control planes of one fleet, with everything installed that replicas need.
type site struct {
	planes   *localplane.Planes
	home     *feed.Client
	clusters []*load.Cluster
	clients  map[string]kubernetes.Interface
	feeds    map[string]*feed.Client
	// kubeconfigs of the replicas' account.
	kubeconfigs map[string]string
	told        int // clusters that the replicas are told of
}

// newSite starts control planes below a folder and installs what config/ ships.
func newSite(ctx context.Context, dir string, o Options, f scenario.Fleet) (_ *site, err error) {
	// Not workload planes: see package load, "Kubelets".
	clusters := []localplane.ClusterConfig{{Name: homeCluster}}
	for i := range f.Clusters {
		clusters = append(clusters, localplane.ClusterConfig{Name: fmt.Sprintf("c%d", i+1)})
	}
	planes, err := localplane.Start(ctx, localplane.Config{
		Dir: dir, Binary: o.ControlPlane, Clusters: clusters, TmpfsData: f.Storage == scenario.Memory,
	})
	if err != nil {
		return nil, err
	}
	s := &site{
		planes: planes, clients: map[string]kubernetes.Interface{}, feeds: map[string]*feed.Client{},
		kubeconfigs: map[string]string{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, planes.Stop())
		}
	}()
	for _, plane := range planes.Clusters() {
		config := plane.RESTConfig()
		config.UserAgent = "bench"
		if s.clients[plane.Name()], err = kubernetes.NewForConfig(config); err != nil {
			return nil, fmt.Errorf("making a client of cluster %s: %w", plane.Name(), err)
		}
		if s.feeds[plane.Name()], err = feed.NewClient(config); err != nil {
			return nil, fmt.Errorf("cluster %s: %w", plane.Name(), err)
		}
		if plane.Name() == homeCluster {
			continue
		}
		c, err := load.NewCluster(plane.Name(), config)
		if err != nil {
			return nil, err
		}
		s.clusters = append(s.clusters, c)
	}
	s.home = s.feeds[homeCluster]
	return s, s.install(ctx, o, f)
}

func (s *site) install(ctx context.Context, o Options, f scenario.Fleet) error {
	var group sync.WaitGroup
	failures := make([]error, len(s.clusters)+1)
	group.Go(func() {
		var files []string
		for _, file := range []string{
			"default/namespace.yaml", "crd/tenure.dev_shards.yaml", "rbac/service_account.yaml", "rbac/home_role.yaml",
			"flowcontrol/flow_schema.yaml",
		} {
			files = append(files, "-f", filepath.Join(o.Config, file))
		}
		failures[0] = s.installIn(ctx, o, homeCluster, feed.Shards, files...)
	})
	for i, c := range s.clusters {
		group.Go(func() {
			failures[i+1] = s.installIn(ctx, o, c.Name, feed.Ats, "-k", filepath.Join(o.Config, "workload"))
		})
	}
	group.Wait()
	if err := errors.Join(failures...); err != nil {
		return err
	}
	for _, plane := range s.planes.Clusters() {
		path, err := plane.ServiceAccountKubeconfig(ctx, namespace, account)
		if err != nil {
			return err
		}
		s.kubeconfigs[plane.Name()] = path
	}
	s.told = max(f.Kubeconfigs, len(s.clusters))
	for i := range s.told {
		c := s.clusters[i%len(s.clusters)]
		name := c.Name
		if i >= len(s.clusters) {
			name = fmt.Sprintf("%s-%d", c.Name, i)
		}
		if err := s.tell(ctx, c.Name, name); err != nil {
			return err
		}
	}
	return nil
}

// installIn applies manifests in a cluster, and waits until it serves a kind of them.
func (s *site) installIn(ctx context.Context, o Options, name string, kind feed.Kind, what ...string) error {
	plane := s.planes.Cluster(name)
	command := exec.CommandContext(ctx, o.ControlPlane, append([]string{"kubectl", "--kubeconfig", plane.Kubeconfig(),
		"--cache-dir", filepath.Join(plane.Dir(), "kubectl-cache"), "apply"}, what...)...)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	err := localplane.StartChild(command)
	if err == nil {
		err = command.Wait()
	}
	if err != nil {
		return fmt.Errorf("applying %s in cluster %s: %w: %s", strings.Join(what, " "), name, err, strings.TrimSpace(output.String()))
	}
	if err := eventually(ctx, func() error { _, err := s.feeds[name].Now(ctx, kind); return err }); err != nil {
		return fmt.Errorf("waiting until cluster %s serves its CRDs: %w", name, err)
	}
	return nil
}

// tell makes a cluster known to the replicas under a name.
func (s *site) tell(ctx context.Context, cluster, name string) error {
	content, err := os.ReadFile(s.kubeconfigs[cluster])
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of cluster %s: %w", cluster, err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"},
		},
		Data: map[string][]byte{"kubeconfig": content},
	}
	if _, err := s.clients[homeCluster].CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("telling the replicas about cluster %s: %w", name, err)
	}
	return nil
}

// addNamespace makes a namespace in every workload cluster, with the account that Pods need: there is no controller
// manager that would make it.
func (s *site) addNamespace(ctx context.Context, name string) error {
	for _, c := range s.clusters {
		core := s.clients[c.Name].CoreV1()
		_, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err == nil {
			_, err = core.ServiceAccounts(name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
		}
		if err != nil {
			return fmt.Errorf("making namespace %s in cluster %s: %w", name, c.Name, err)
		}
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
		if sleep(ctx, 50*time.Millisecond) != nil {
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
