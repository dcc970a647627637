package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/bench/load"
	"github.com/tenure-dev/tenure/bench/load/feed"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/faultproxy"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

const (
	homeCluster = lab.Home
	accountUser = lab.AccountUser
	// servedWithin bounds the wait for what an API server makes by itself.
	servedWithin = 30 * time.Second
)

// site is the clusters of one fleet, with everything installed that replicas need.
type site struct {
	// lab is control planes that we run, planes are they; nil where the clusters are foreign ones.
	lab       *lab.Fleet
	planes    *localplane.Planes
	foreign   *foreign
	admins    map[string]client.Client
	namespace string // of the records
	home      *feed.Client
	sources   *load.Cluster // home, as that of Deployments to be copied
	clusters  []*load.Cluster
	feeds     map[string]*feed.Client
	// kubeconfigs of the replicas' account.
	kubeconfigs map[string]string
	told        int // clusters that the replicas are told of
	// noisy is what makes the last cluster a bad neighbour; nil where none is wanted.
	noisy *faultproxy.Proxy
}

// apartNamespace has the records and the kubeconfig of a fleet that serves the last cluster alone.
const apartNamespace = "tenure-apart"

// newSite starts control planes below a folder and installs what config/ ships.
func newSite(ctx context.Context, dir string, o Options, of scenario.Scenario, apart bool) (_ *site, err error) {
	f := of.Fleet
	if len(o.Kubeconfigs) > 0 {
		return newForeignSite(ctx, o, f)
	}
	options := lab.Options{
		Planes: localplane.Config{Dir: dir, Binary: o.ControlPlane, TmpfsData: f.Storage == scenario.Memory},
		Bare:   true, // see package load, "Kubelets"
		Untold: true, Direct: true, Tenure: o.Tenure, UserAgent: "bench", Replication: of.Load.Kind == scenario.Deployments,
	}
	for i := range f.Clusters {
		options.Workloads = append(options.Workloads, fmt.Sprintf("c%d", i+1))
	}
	if f.TracingTurns > 0 {
		_, available := memory()
		options.Planes.GarbageFrom = available / int64(2*f.Clusters)
	}
	fleet, err := lab.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	s := &site{
		lab: fleet, planes: fleet.Planes, namespace: lab.Namespace, admins: map[string]client.Client{},
		feeds: map[string]*feed.Client{}, kubeconfigs: map[string]string{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	for _, plane := range s.planes.Clusters() {
		name, config := plane.Name(), plane.RESTConfig()
		config.UserAgent = "bench"
		if s.feeds[name], err = feed.NewClient(config); err != nil {
			return nil, fmt.Errorf("cluster %s: %w", name, err)
		}
		c, err := load.NewCluster(name, config)
		if err != nil {
			return nil, err
		}
		if s.kubeconfigs[name], err = fleet.Kubeconfig(ctx, name); err != nil {
			return nil, err
		}
		s.admins[name] = fleet.Client(name)
		if name == homeCluster {
			s.sources = c
			continue
		}
		s.clusters = append(s.clusters, c)
	}
	s.home = s.feeds[homeCluster]
	if len(of.Noises) > 0 {
		if s.noisy, err = faultproxy.Start(faultproxy.Config{Upstream: s.planes.Cluster(s.last().Name).RESTConfig(), Seed: of.Load.Seed}); err != nil {
			return nil, fmt.Errorf("starting the proxy of cluster %s: %w", s.last().Name, err)
		}
	}
	if apart {
		if err := lab.AddHome(ctx, s.admins[homeCluster], apartNamespace); err != nil {
			return nil, err
		}
	}
	return s, s.tellAll(ctx, f, apart)
}

// last is the cluster that things are done to.
func (s *site) last() *load.Cluster { return s.clusters[len(s.clusters)-1] }

// tellAll makes the workload clusters known to the replicas, and virtual ones on their API servers if there are to be more.
// With apart, the last is told to the fleet that serves it alone.
func (s *site) tellAll(ctx context.Context, f scenario.Fleet, apart bool) error {
	s.told = max(f.Kubeconfigs, len(s.clusters))
	for i := range s.told {
		c := s.clusters[i%len(s.clusters)]
		var err error
		switch name := fmt.Sprintf("%s-%d", c.Name, i); {
		case i < len(s.clusters) && apart && c == s.last():
			err = s.tell(ctx, apartNamespace, c.Name, c.Name)
		case i < len(s.clusters):
			err = s.tell(ctx, s.namespace, c.Name, c.Name)
		case s.foreign != nil: // the same cluster under another name
			err = s.tell(ctx, s.namespace, c.Name, name)
		default:
			_, err = s.lab.AddVirtual(ctx, c.Name, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tell makes a cluster known to the replicas of a namespace under a name, by a kubeconfig that needs no other file.
func (s *site) tell(ctx context.Context, namespace, cluster, name string) error {
	config, err := clientcmd.LoadFromFile(s.kubeconfigs[cluster])
	for _, step := range []func(*clientcmdapi.Config) error{clientcmd.ResolveLocalPaths, clientcmdapi.MinifyConfig, clientcmdapi.FlattenConfig} {
		if err == nil {
			err = step(config)
		}
	}
	var content []byte
	if err == nil {
		content, err = clientcmd.Write(*config)
	}
	if err == nil && s.noisy != nil && cluster == s.last().Name {
		content, err = s.noisy.Kubeconfig(content)
	}
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of cluster %s: %w", cluster, err)
	}
	return lab.AddKubeconfig(ctx, s.admins[homeCluster], namespace, name, content)
}

// addNamespace makes a namespace for a load, where the load comes and, open to copies, where these go.
func (f *fleet) addNamespace(ctx context.Context, name string) error {
	for _, c := range f.receivers() {
		if err := f.site.addNamespace(ctx, c.Name, name); err != nil {
			return err
		}
	}
	if f.load.Kind != scenario.Deployments {
		return nil
	}
	for _, c := range f.site.clusters {
		if err := f.site.addNamespace(ctx, c.Name, name); err != nil {
			return err
		}
		if err := lab.OpenNamespace(ctx, f.site.admins[c.Name], name, replication.TargetConfined); err != nil {
			return fmt.Errorf("cluster %s: %w", c.Name, err)
		}
	}
	return nil
}

func (s *site) addNamespace(ctx context.Context, cluster, name string) error {
	if s.foreign != nil {
		s.foreign.made[cluster] = append(s.foreign.made[cluster], name)
	}
	if err := lab.AddNamespace(ctx, s.admins[cluster], name); err != nil {
		return fmt.Errorf("cluster %s: %w", cluster, err)
	}
	return nil
}

// stop ends the planes, or leaves foreign clusters as they were.
func (s *site) stop() error {
	if s.foreign != nil {
		return s.clean()
	}
	if s.noisy != nil {
		s.noisy.Close()
	}
	return s.lab.Stop()
}

// receivers are the clusters in which a load's objects are created.
func (f *fleet) receivers() []*load.Cluster {
	if f.load.Kind == scenario.Deployments {
		return []*load.Cluster{f.site.sources}
	}
	return f.site.clusters
}

// eventually repeats what fails until it doesn't, or until time is up.
func eventually(ctx context.Context, try func() error) error {
	return lab.Eventually(ctx, servedWithin, try)
}
