package localplane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// startWorkload starts what makes Pods run, and waits until one could.
func (p *Plane) startWorkload(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(p.RESTConfig())
	if err != nil {
		return fmt.Errorf("making a client for cluster %s: %w", p.config.Name, err)
	}
	if err := p.createNodes(ctx, client); err != nil {
		return err
	}
	type component struct {
		name string
		args []string
	}
	wanted := []component{{"kube-controller-manager", controllerManagerArgs()}}
	if !p.config.NoNodes {
		wanted = append(wanted, component{"kube-scheduler", schedulerArgs()}, component{"kwok", kwokArgs()})
	}
	for _, component := range wanted {
		helper, err := p.startProcess(component.name, component.args)
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.helpers = append(p.helpers, helper)
		p.mu.Unlock()
	}
	p.mu.Lock()
	components := append([]*Process{p.etcd, p.apiServer}, p.helpers...)
	p.mu.Unlock()
	err = p.await(ctx, func(ctx context.Context) error { return p.workloadMissing(ctx, client) }, components...)
	if err != nil {
		return err
	}
	for _, helper := range components[2:] {
		helper.supervise(p.onDeath)
	}
	return nil
}

// nodes is how many fake nodes there are.
func (p *Plane) nodes() int {
	if p.config.NoNodes {
		return 0
	}
	return fakeNodes
}

// createNodes makes the fake nodes; those of a plane that was restored may be there already.
func (p *Plane) createNodes(ctx context.Context, client kubernetes.Interface) error {
	for i := range p.nodes() {
		name := fmt.Sprintf("%s-node-%d", p.config.Name, i+1)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname:   name,
				corev1.LabelOSStable:   "linux",
				corev1.LabelArchStable: "amd64",
				"type":                 "kwok",
			},
			Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
		}}
		_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			// KWOK leaves a node alone until the last KWOK's lease on it has run out. That one is gone for good.
			err = client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(ctx, name, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				err = nil
			}
		}
		if err != nil {
			return fmt.Errorf("creating node %s: %w", name, err)
		}
	}
	return nil
}

// workloadMissing says what is still missing before a Pod in the default namespace would be admitted and scheduled,
// nil when nothing is: its service account exists and the nodes are ready and free of taints.
func (p *Plane) workloadMissing(ctx context.Context, client kubernetes.Interface) error {
	if _, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default",
		metav1.GetOptions{}); err != nil {
		return fmt.Errorf("the default service account: %w", err)
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready := 0
	for _, node := range nodes.Items {
		if nodeReady(node) {
			ready++
		}
	}
	if ready < p.nodes() {
		return fmt.Errorf("%d of %d nodes are ready", ready, p.nodes())
	}
	return nil
}

func nodeReady(node corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return len(node.Spec.Taints) == 0
		}
	}
	return false
}
