package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tenure-dev/tenure/bench/load"
	"github.com/tenure-dev/tenure/bench/load/feed"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/test/lab"
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
	// planes and fleet are control planes that we run; nil where the clusters are foreign ones.
	planes    *localplane.Planes
	fleet     *lab.Site
	foreign   *foreign
	namespace string // of the records
	home      *feed.Client
	sources   *load.Cluster // home, as that of Deployments to be copied
	clusters  []*load.Cluster
	feeds     map[string]*feed.Client
	// kubeconfigs of the replicas' account.
	kubeconfigs map[string]string
	told        int // clusters that the replicas are told of
}

// newSite starts control planes below a folder and installs what config/ ships.
func newSite(ctx context.Context, dir string, o Options, of scenario.Scenario) (_ *site, err error) {
	f := of.Fleet
	if len(o.Kubeconfigs) > 0 {
		return newForeignSite(ctx, o, f)
	}
	// Not workload planes: see package load, "Kubelets".
	clusters := []localplane.ClusterConfig{{Name: homeCluster}}
	for i := range f.Clusters {
		clusters = append(clusters, localplane.ClusterConfig{Name: fmt.Sprintf("c%d", i+1)})
	}
	config := localplane.Config{Dir: dir, Binary: o.ControlPlane, Clusters: clusters, TmpfsData: f.Storage == scenario.Memory}
	if f.TracingTurns > 0 {
		config.GarbageFrom = memory("MemAvailable") / int64(2*f.Clusters)
	}
	planes, err := localplane.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	s := &site{
		planes: planes, namespace: lab.Namespace, feeds: map[string]*feed.Client{}, kubeconfigs: map[string]string{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, planes.Stop())
		}
	}()
	for _, plane := range planes.Clusters() {
		config := plane.RESTConfig()
		config.UserAgent = "bench"
		if s.feeds[plane.Name()], err = feed.NewClient(config); err != nil {
			return nil, fmt.Errorf("cluster %s: %w", plane.Name(), err)
		}
		c, err := load.NewCluster(plane.Name(), config)
		if err != nil {
			return nil, err
		}
		if plane.Name() == homeCluster {
			s.sources = c
			continue
		}
		s.clusters = append(s.clusters, c)
	}
	s.home = s.feeds[homeCluster]
	return s, s.install(ctx, o, of)
}

func (s *site) install(ctx context.Context, o Options, of scenario.Scenario) error {
	var err error
	s.fleet, err = lab.Install(ctx, s.planes, lab.SiteConfig{
		Manifests: o.Config, Binary: o.ControlPlane, UserAgent: "bench", Replication: of.Load.Kind == scenario.Deployments,
	})
	if err != nil {
		return err
	}
	for _, plane := range s.planes.Clusters() {
		if s.kubeconfigs[plane.Name()], err = s.fleet.Kubeconfig(ctx, plane.Name()); err != nil {
			return err
		}
	}
	return s.tellAll(ctx, of.Fleet)
}

// tellAll makes the workload clusters known to the replicas, some of them under several names if there are to be more.
func (s *site) tellAll(ctx context.Context, f scenario.Fleet) error {
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

// tell makes a cluster known to the replicas under a name.
func (s *site) tell(ctx context.Context, cluster, name string) error {
	if s.foreign != nil {
		return s.foreign.secret(ctx, s.namespace, name, s.kubeconfigs[cluster])
	}
	content, err := os.ReadFile(s.kubeconfigs[cluster])
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of cluster %s: %w", cluster, err)
	}
	return s.fleet.AddKubeconfig(ctx, name, content)
}

// addNamespace makes a namespace for a load, where the load comes. Those of copies are the replicas' business.
func (f *fleet) addNamespace(ctx context.Context, name string) error {
	add := f.site.fleet.AddNamespace
	if f.site.foreign != nil {
		add = f.site.foreign.addNamespace
	}
	for _, c := range f.receivers() {
		if err := add(ctx, c.Name, name); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the planes, or leaves foreign clusters as they were.
func (s *site) stop() error {
	if s.foreign != nil {
		return s.foreign.clean()
	}
	return s.planes.Stop()
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
