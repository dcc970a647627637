package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/test/lab/faultproxy"
	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/lab/virtual"
)

// Kubeconfig is the file with which replicas reach a plane itself: that of their service account.
func (f *Fleet) Kubeconfig(ctx context.Context, plane string) (string, error) {
	if f.Jaeger != nil {
		return f.Planes.Cluster(plane).UserKubeconfig(AccountUser, "system:serviceaccounts",
			"system:serviceaccounts:"+Namespace, "system:monitoring")
	}
	return f.Planes.Cluster(plane).ServiceAccountKubeconfig(ctx, Namespace, Account)
}

// through returns the replicas' kubeconfig of a plane, by way of a proxy, which it starts if there is none yet.
// With Options.Direct there is no proxy.
func (f *Fleet) through(ctx context.Context, plane string, proxies map[string]*faultproxy.Proxy, whose string,
	second *localplane.Second) ([]byte, error) {
	path, err := f.Kubeconfig(ctx, plane)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of cluster %s: %w", plane, err)
	}
	proxied := faultproxy.Config{Upstream: f.Planes.Cluster(plane).RESTConfig(), Seed: f.options.Seed}
	if plane == Home && f.Second != nil {
		proxied.Second = f.Second.RESTConfig()
	}
	if second != nil {
		proxied.Upstream = second.RESTConfig()
		if content, err = second.Kubeconfig(content); err != nil {
			return nil, err
		}
	}
	if f.options.Direct {
		return content, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if proxies[whose] == nil {
		if proxies[whose], err = faultproxy.Start(proxied); err != nil {
			return nil, fmt.Errorf("starting the proxy of %s to cluster %s: %w", whose, plane, err)
		}
	}
	return proxies[whose].Kubeconfig(content)
}

// ClusterKubeconfig is the kubeconfig that replicas get for a workload plane: the service account's, through the proxy.
func (f *Fleet) ClusterKubeconfig(ctx context.Context, plane string) ([]byte, error) {
	return f.through(ctx, plane, f.proxies, plane, nil)
}

// MakeHomeProxy starts the proxy between a replica and home before the replica itself is started, so that it is hurt
// from its first request on.
func (f *Fleet) MakeHomeProxy(name string) error {
	_, err := f.homeKubeconfig(name, nil)
	return err
}

// PutBehind makes a replica, which must not have been started yet, reach home through its second API server.
func (f *Fleet) PutBehind(second *localplane.Second, name string) error {
	_, err := f.homeKubeconfig(name, second)
	return err
}

// homeKubeconfig writes the replica's kubeconfig, through a proxy of its own, when it is first asked for.
func (f *Fleet) homeKubeconfig(name string, second *localplane.Second) (string, error) {
	path := filepath.Join(f.Planes.Dir(), "replicas", name+".kubeconfig")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("making a folder for the replicas: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), servedWithin)
	defer cancel()
	content, err := f.through(ctx, Home, f.homes, name, second)
	if err == nil {
		err = os.WriteFile(path+".new", content, 0o600) // half of one would be taken for whole the next time
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return "", fmt.Errorf("writing the kubeconfig of replica %s: %w", name, err)
	}
	return path, nil
}

// Proxy returns the proxy between all replicas and a workload cluster; nil if there is none.
func (f *Fleet) Proxy(cluster string) *faultproxy.Proxy {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.proxies[cluster]
}

// HomeProxy returns the proxy between one replica and the home cluster; nil if there is none, or the replica was
// never started.
func (f *Fleet) HomeProxy(replica string) *faultproxy.Proxy {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.homes[replica]
}

// Agent is the part of a User-Agent that every request of a replica's shards carries, whatever its incarnation.
func Agent(replica string) string { return "incarnation=" + replica + "-" }

// AddCluster makes a workload plane known to the replicas under a name.
func (f *Fleet) AddCluster(ctx context.Context, name, plane string) error {
	kubeconfig, err := f.ClusterKubeconfig(ctx, plane)
	if err != nil {
		return err
	}
	return f.AddKubeconfig(ctx, name, kubeconfig)
}

// MakeVirtual makes a virtual cluster on a workload plane, with the namespace "default" alone.
// [virtual.Cluster.Kubeconfig] makes the replicas' kubeconfig of it.
func (f *Fleet) MakeVirtual(ctx context.Context, plane, name string) (*virtual.Cluster, error) {
	f.mu.Lock()
	host := f.hosts[plane]
	f.mu.Unlock()
	if host == nil {
		var err error
		if host, err = virtual.NewHost(f.Planes.Cluster(plane).RESTConfig()); err != nil {
			return nil, fmt.Errorf("cluster %s: %w", plane, err)
		}
		f.mu.Lock()
		f.hosts[plane] = host
		f.mu.Unlock()
	}
	v, err := host.Add(ctx, name)
	if err != nil {
		return nil, err
	}
	return v, f.allowIdentity(ctx, plane, name)
}

// AddVirtual makes a virtual cluster and makes it known to the replicas.
func (f *Fleet) AddVirtual(ctx context.Context, plane, name string) (*virtual.Cluster, error) {
	v, err := f.MakeVirtual(ctx, plane, name)
	if err != nil {
		return nil, err
	}
	content, err := f.ClusterKubeconfig(ctx, plane)
	if err == nil {
		content, err = v.Kubeconfig(content)
	}
	if err == nil {
		err = f.AddKubeconfig(ctx, name, content)
	}
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.served = append(f.served, name)
	return v, nil
}

// allowIdentity lets replicas read the kube-system of a virtual cluster, as their role lets them in others: its name on
// the API server is another.
func (f *Fleet) allowIdentity(ctx context.Context, plane, name string) error {
	meta := metav1.ObjectMeta{Name: "virtual-" + name}
	for _, obj := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"namespaces"},
			ResourceNames: []string{name + "-" + metav1.NamespaceSystem}, Verbs: []string{"get"},
		}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: AccountUser}},
		},
	} {
		if err := f.Client(plane).Create(ctx, obj); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("letting replicas identify cluster %s: %w", name, err)
		}
	}
	return nil
}

// AddKubeconfig makes or replaces the Secret of a workload cluster.
func (f *Fleet) AddKubeconfig(ctx context.Context, name string, kubeconfig []byte) error {
	return AddKubeconfig(ctx, f.clients[Home], Namespace, name, kubeconfig)
}

// AddKubeconfig makes or replaces the Secret of a workload cluster in a namespace of the home cluster.
func AddKubeconfig(ctx context.Context, home client.Client, namespace, name string, kubeconfig []byte) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{ClusterLabel: "true"}},
		Data:       map[string][]byte{"kubeconfig": kubeconfig},
	}
	err := home.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		err = home.Update(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("telling the replicas about cluster %s: %w", name, err)
	}
	return nil
}

// RemoveCluster takes a workload cluster from the replicas.
func (f *Fleet) RemoveCluster(ctx context.Context, name string) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}}
	if err := f.clients[Home].Delete(ctx, secret); err != nil {
		return fmt.Errorf("taking cluster %s from the replicas: %w", name, err)
	}
	return nil
}

// OpenNamespace lets copies of Deployments into a namespace, with their Pods confined or, by another value of the label
// [replication.LabelTarget], not.
func OpenNamespace(ctx context.Context, c client.Client, name, value string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, replication.LabelTarget, value)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Patch(ctx, namespace, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("labelling namespace %s: %w", name, err)
	}
	return nil
}

// AddNamespace makes a namespace that is ready for Pods: they need its default service account, which a plane without
// a controller manager doesn't make, and one with it makes a moment later.
func AddNamespace(ctx context.Context, c client.Client, name string) error {
	err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err == nil {
		err = c.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}})
		if apierrors.IsAlreadyExists(err) { // the controller manager was faster
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("making namespace %s: %w", name, err)
	}
	return nil
}
