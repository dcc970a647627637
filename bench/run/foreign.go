package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/bench/load"
	"github.com/tenure-dev/tenure/bench/load/feed"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/test/lab"
)

// foreign are clusters that somebody else runs, reached by kubeconfigs. All that is made in them is in namespaces of
// our own, which are deleted at the end.
type foreign struct {
	made map[string][]string // namespaces, by cluster
}

// uses adapts the scenario to the clusters of the kubeconfigs, or returns what can't be measured there.
func (o Options) uses(s scenario.Scenario) (scenario.Scenario, error) {
	if len(o.Kubeconfigs) == 0 {
		if s.Unwitnessed != "" && s.Load.Arrivals != scenario.Nothing {
			return s, errors.New("unwitnessed: what is written is judged, except with --kubeconfig, or where nothing arrives")
		}
		return s, nil
	}
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("--kubeconfig: "+format, args...))
		}
	}
	refuse(o.Kubeconfigs[homeCluster] == "" || len(o.Kubeconfigs) < 2,
		"want %s=FILE and at least one workload cluster", homeCluster)
	refuse(s.Unwitnessed == "", "nobody gives us the audit logs: say why that will do, --unwitnessed REASON")
	refuse(len(s.Compare) > 0, "references need control planes of their own: --set compare=[]")
	refuse(s.Load.Kind != scenario.Ats, "Ats only")
	refuse(s.Fleet.Kubeconfigs >= len(o.Kubeconfigs) && s.Load.Arrivals != scenario.Nothing,
		"a cluster under two names shows the same Ats: leave out fleet.kubeconfigs")
	refuse(len(s.Noises) > 0, "clusters of others aren't made bad neighbours")
	for _, step := range s.Steps {
		refuse(step.Do == scenario.PauseCluster, "clusters of others aren't paused")
	}
	s.Fleet.Clusters = len(o.Kubeconfigs) - 1
	if len(errs) == 0 {
		errs = append(errs, s.Validate())
	}
	return s, errors.Join(errs...)
}

// newForeignSite prepares the clusters of the kubeconfigs for one fleet. The kinds must be installed; the replicas run
// here, with the same kubeconfigs.
func newForeignSite(ctx context.Context, o Options, f scenario.Fleet) (_ *site, err error) {
	s := &site{
		foreign: &foreign{made: map[string][]string{}}, admins: map[string]client.Client{},
		kubeconfigs: o.Kubeconfigs, namespace: fmt.Sprintf("tenure-bench-%x", time.Now().UnixNano()),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	for _, name := range slices.Sorted(maps.Keys(o.Kubeconfigs)) {
		if err := s.reach(ctx, name); err != nil {
			return nil, fmt.Errorf("cluster %s: %w", name, err)
		}
	}
	if err := s.addNamespace(ctx, homeCluster, s.namespace); err != nil {
		return nil, err
	}
	return s, s.addSecrets(ctx, scenario.Scenario{Fleet: f}, false)
}

// reach connects to a cluster and makes sure that it has the kinds.
func (s *site) reach(ctx context.Context, name string) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfigs[name])
	if err != nil {
		return fmt.Errorf("reading its kubeconfig: %w", err)
	}
	config.UserAgent, config.QPS = "bench", -1
	if s.admins[name], err = client.New(config, client.Options{Scheme: lab.Scheme()}); err != nil {
		return err
	}
	c, err := load.NewCluster(name, config)
	if err != nil {
		return err
	}
	kind, manifests := feed.Ats, "config/workload"
	if name == homeCluster {
		s.home, kind, manifests = c, feed.Shards, "config/crd"
	}
	if _, err := c.Feed.Now(ctx, kind); err != nil {
		return fmt.Errorf("%w (kubectl apply -k %s installs what is needed)", err, manifests)
	}
	if name == homeCluster {
		return nil
	}
	nodes := &corev1.NodeList{}
	if err := s.admins[name].List(ctx, nodes, client.Limit(1)); err != nil {
		return fmt.Errorf("looking for nodes: %w", err)
	}
	c.Nodes = len(nodes.Items) > 0
	s.clusters = append(s.clusters, c)
	return nil
}

// clean deletes the namespaces, and with them all that was made.
func (s *site) clean() error {
	ctx, cancel := context.WithTimeout(context.Background(), servedWithin) // also after the run was interrupted
	defer cancel()
	var errs []error
	for cluster, names := range s.foreign.made {
		for _, name := range names {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if err := s.admins[cluster].Delete(ctx, namespace); client.IgnoreNotFound(err) != nil {
				errs = append(errs, fmt.Errorf("deleting namespace %s in cluster %s: %w", name, cluster, err))
			}
		}
	}
	return errors.Join(errs...)
}
