package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/rest"
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
	told        int                 // clusters that the replicas are told of
	receivers   []*load.Cluster     // those of them that a load comes to
	contents    map[string][]byte   // the kubeconfigs that the replicas are told, by cluster
	noisy       []*faultproxy.Proxy // what makes each of the last clusters a bad neighbour; none where none is wanted
	bad         int                 // how many of the last clusters are one, or are served apart
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
	if apart {
		if err := lab.AddHome(ctx, s.admins[homeCluster], apartNamespace); err != nil {
			return nil, err
		}
	}
	return s, s.tellAll(ctx, of, apart)
}

// last is the cluster that things are done to where they are done to one.
func (s *site) last() *load.Cluster { return s.receivers[len(s.receivers)-1] }

// disturbed reports whether a cluster is one of those that things are done to.
func (s *site) disturbed(cluster string) bool {
	return slices.ContainsFunc(s.receivers[len(s.receivers)-s.bad:],
		func(c *load.Cluster) bool { return c.Name == cluster })
}

// tellAll makes the workload clusters known to the replicas; virtual ones on their API servers if there are to be more.
// With apart, those that things are done to are told to the fleet that serves them alone.
func (s *site) tellAll(ctx context.Context, of scenario.Scenario, apart bool) error {
	s.told, s.bad, s.contents = max(of.Fleet.Kubeconfigs, len(s.clusters)), max(1, of.Noisy), map[string][]byte{}
	for i := range s.told {
		on := s.clusters[i%len(s.clusters)]
		name := on.Name
		content, err := s.kubeconfig(on.Name)
		if err != nil {
			return err
		}
		var upstream *rest.Config // as the admin
		switch {
		case s.foreign != nil:
			if i >= len(s.clusters) { // the same cluster under another name
				name = fmt.Sprintf("%s-%d", on.Name, i)
			}
		case s.told > len(s.clusters):
			name = fmt.Sprintf("%s-%d", on.Name, i)
			v, err := s.lab.MakeVirtual(ctx, on.Name, name)
			if err != nil {
				return err
			}
			if content, err = v.Kubeconfig(content); err != nil {
				return fmt.Errorf("cluster %s: %w", name, err)
			}
			upstream, on = v.RESTConfig(), on.Virtual(name)
		default:
			upstream = s.planes.Cluster(name).RESTConfig()
		}
		if s.foreign == nil || i < len(s.clusters) {
			s.receivers = append(s.receivers, on)
		}
		namespace, last := s.namespace, i >= s.told-s.bad
		if last && apart {
			namespace = apartNamespace
		}
		if last && len(of.Noises) > 0 {
			proxy, err := faultproxy.Start(faultproxy.Config{Upstream: upstream, Seed: of.Load.Seed + uint64(i)})
			if err == nil {
				s.noisy = append(s.noisy, proxy)
				content, err = proxy.Kubeconfig(content)
			}
			if err != nil {
				return fmt.Errorf("starting the proxy of cluster %s: %w", name, err)
			}
		}
		s.contents[name] = content
		if err := s.tell(ctx, namespace, name); err != nil {
			return err
		}
	}
	return nil
}

// tell makes a cluster known to the replicas of a namespace.
func (s *site) tell(ctx context.Context, namespace, name string) error {
	return lab.AddKubeconfig(ctx, s.admins[homeCluster], namespace, name, s.contents[name])
}

// kubeconfig is that of an API server, as one that needs no other file.
func (s *site) kubeconfig(cluster string) (content []byte, err error) {
	config, err := clientcmd.LoadFromFile(s.kubeconfigs[cluster])
	for _, step := range []func(*clientcmdapi.Config) error{clientcmd.ResolveLocalPaths, clientcmdapi.MinifyConfig,
		clientcmdapi.FlattenConfig} {
		if err == nil {
			err = step(config)
		}
	}
	if err == nil {
		content, err = clientcmd.Write(*config)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of cluster %s: %w", cluster, err)
	}
	return content, nil
}

// addNamespace makes a namespace for a load, where the load comes and, open to copies, where these go.
func (f *fleet) addNamespace(ctx context.Context, name string) error {
	for _, c := range f.receivers() {
		if c.IsVirtual() {
			continue
		}
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
	for _, proxy := range s.noisy {
		proxy.Close()
	}
	return s.lab.Stop()
}

// receivers are the clusters in which a load's objects are created.
func (f *fleet) receivers() []*load.Cluster {
	if f.load.Kind == scenario.Deployments {
		return []*load.Cluster{f.site.sources}
	}
	return f.site.receivers
}

// eventually repeats what fails until it doesn't, or until time is up.
func eventually(ctx context.Context, try func() error) error {
	return lab.Eventually(ctx, servedWithin, try)
}
