package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/bench/load"
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
	// lab and planes are the control planes that we run; nil if the clusters are foreign.
	lab       *lab.Fleet
	planes    *localplane.Planes
	foreign   *foreign
	admins    map[string]client.Client
	namespace string // of the records
	home      *load.Cluster
	clusters  []*load.Cluster
	// kubeconfigs of the replicas' account.
	kubeconfigs map[string]string
	told        int                 // number of clusters that the replicas know
	receivers   []*load.Cluster     // the clusters that get a load of Ats
	contents    map[string][]byte   // the replicas' kubeconfigs, by cluster
	noisy       []*faultproxy.Proxy // each makes one of the last clusters a bad neighbour; empty without noises
	bad         int                 // how many of the last clusters are bad neighbours, or served apart
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
		kubeconfigs: map[string]string{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	for _, plane := range s.planes.Clusters() {
		name, config := plane.Name(), plane.RESTConfig()
		config.UserAgent = "bench"
		c, err := load.NewCluster(name, config)
		if err != nil {
			return nil, err
		}
		if s.kubeconfigs[name], err = fleet.Kubeconfig(ctx, name); err != nil {
			return nil, err
		}
		s.admins[name] = fleet.Client(name)
		if name == homeCluster {
			s.home = c
			continue
		}
		s.clusters = append(s.clusters, c)
	}
	if apart {
		if err := lab.AddHome(ctx, s.admins[homeCluster], apartNamespace); err != nil {
			return nil, err
		}
	}
	return s, s.addSecrets(ctx, of, apart)
}

// last returns the cluster that is disturbed if only one is.
func (s *site) last() *load.Cluster { return s.receivers[len(s.receivers)-1] }

// disturbed reports whether a cluster is one of those that a noise or a pause disturbs.
func (s *site) disturbed(cluster string) bool {
	return slices.ContainsFunc(s.receivers[len(s.receivers)-s.bad:],
		func(c *load.Cluster) bool { return c.Name == cluster })
}

// addSecrets makes the workload clusters known to the replicas. If there must be more clusters than API servers, they
// are virtual ones. With apart, the disturbed clusters are made known only to the fleet that serves them alone.
func (s *site) addSecrets(ctx context.Context, of scenario.Scenario, apart bool) error {
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
		if err := s.addSecret(ctx, namespace, name); err != nil {
			return err
		}
	}
	return nil
}

// addSecret makes a cluster known to the replicas of a namespace.
func (s *site) addSecret(ctx context.Context, namespace, name string) error {
	return lab.AddKubeconfig(ctx, s.admins[homeCluster], namespace, name, s.contents[name])
}

// kubeconfig returns the kubeconfig of an API server, with all files that it refers to included.
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

// addNamespace makes a namespace for a load in the clusters that get it. For Deployments it also makes the
// namespace in the clusters that get the copies, and opens it to them.
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
	if s.foreign != nil { // a create that is refused doesn't tell whether it was there
		switch err := s.admins[cluster].Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}); {
		case err == nil:
			return fmt.Errorf("cluster %s: namespace %s: it is there already, and isn't this run's: delete it, or use another "+
				"cluster", cluster, name)
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("cluster %s: looking for namespace %s: %w", cluster, name, err)
		}
	}
	err := lab.AddNamespace(ctx, s.admins[cluster], name)
	if s.foreign != nil && !apierrors.IsAlreadyExists(err) { // one that was there is somebody else's, and stays
		s.foreign.made[cluster] = append(s.foreign.made[cluster], name)
	}
	if err != nil {
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

// receivers returns the clusters in which the objects of a load are created.
func (f *fleet) receivers() []*load.Cluster {
	if f.load.Kind == scenario.Deployments {
		return []*load.Cluster{f.site.home}
	}
	return f.site.receivers
}

// eventually repeats what fails until it doesn't, or until time is up.
func eventually(ctx context.Context, try func() error) error {
	return lab.Eventually(ctx, servedWithin, try)
}
