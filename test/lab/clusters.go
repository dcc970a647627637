package lab

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kubeconfig is the file with which replicas reach a cluster: that of their service account.
func (f *Site) Kubeconfig(ctx context.Context, cluster string) (string, error) {
	if f.config.Traced {
		return f.planes.Cluster(cluster).UserKubeconfig(AccountUser, "system:serviceaccounts", "system:serviceaccounts:"+Namespace, "system:monitoring")
	}
	return f.planes.Cluster(cluster).ServiceAccountKubeconfig(ctx, Namespace, Account)
}

// AddCluster makes a plane known to the replicas, under its own name.
func (f *Site) AddCluster(ctx context.Context, cluster string) error {
	path, err := f.Kubeconfig(ctx, cluster)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of cluster %s: %w", cluster, err)
	}
	return f.AddKubeconfig(ctx, cluster, content)
}

// AddKubeconfig makes or replaces the Secret of a workload cluster.
func (f *Site) AddKubeconfig(ctx context.Context, name string, kubeconfig []byte) error {
	secrets := f.clients[Home].CoreV1().Secrets(Namespace)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name, Labels: map[string]string{ClusterLabel: "true"}},
		Data:       map[string][]byte{"kubeconfig": kubeconfig},
	}
	_, err := secrets.Create(ctx, secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("telling the replicas about cluster %s: %w", name, err)
	}
	return nil
}

// RemoveCluster takes a workload cluster from the replicas.
func (f *Site) RemoveCluster(ctx context.Context, name string) error {
	if err := f.clients[Home].CoreV1().Secrets(Namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("taking cluster %s from the replicas: %w", name, err)
	}
	return nil
}

// AddNamespace makes a namespace that is ready for Pods: they need its default service account, which a plane without
// a controller manager doesn't make, and one with it makes a moment later.
func (f *Site) AddNamespace(ctx context.Context, cluster, name string) error {
	core := f.clients[cluster].CoreV1()
	_, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err == nil {
		_, err = core.ServiceAccounts(name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // the controller manager was faster
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("making namespace %s in cluster %s: %w", name, cluster, err)
	}
	return nil
}
