package main

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-dev/tenure/pkg/replication"
)

const (
	sourceNamespace = "web"
	copyReplicas    = 2
	firstImage      = "nginx:1.28"
	nextImage       = "nginx:1.29"
)

// deploymentID names a Deployment among all clusters: a source if the cluster is home, else a copy.
type deploymentID struct{ cluster, name string }

// planDeployments says which Deployments to create at home: each is to be kept in every workload cluster.
func planDeployments(count int) []*appsv1.Deployment {
	list := make([]*appsv1.Deployment, count)
	for i := range list {
		labels := map[string]string{"app": fmt.Sprintf("app-%02d", i+1)}
		d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(copyReplicas)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: firstImage}}},
			},
		}}
		d.Namespace, d.Name = sourceNamespace, labels["app"]
		d.Labels = map[string]string{replication.LabelReplicate: "true"}
		d.Annotations = map[string]string{replication.AnnotationClusters: "*"}
		list[i] = d
	}
	return list
}

// conditionOf returns a source's condition Replicated, nil unless the condition is about the present generation.
func conditionOf(source *appsv1.Deployment) *appsv1.DeploymentCondition {
	c := replication.Condition(source)
	if c == nil || !strings.HasPrefix(c.Message, fmt.Sprintf("generation %d: ", source.Generation)) {
		return nil
	}
	return c
}

func isReplicated(source *appsv1.Deployment) bool {
	c := conditionOf(source)
	return c != nil && c.Status == corev1.ConditionTrue
}

// showsAway reports whether a source's condition says that this cluster, and no other, is away.
func showsAway(source *appsv1.Deployment, cluster string) bool {
	c := conditionOf(source)
	if c == nil || c.Status == corev1.ConditionTrue || c.Reason != replication.ReasonAway ||
		!strings.Contains(c.Message, cluster+": ") {
		return false
	}
	for _, name := range workloadClusters {
		if name != cluster && !strings.Contains(c.Message, fmt.Sprintf("%s %d/%d", name, copyReplicas, copyReplicas)) {
			return false
		}
	}
	return true
}

// isCurrent says that a copy is as the source wants it, rolled out and available.
func isCurrent(copied, source *appsv1.Deployment) bool {
	if copied == nil || source == nil || copied.Spec.Replicas == nil || *copied.Spec.Replicas != *source.Spec.Replicas {
		return false
	}
	want, status := *source.Spec.Replicas, copied.Status
	return copied.Spec.Template.Spec.Containers[0].Image == source.Spec.Template.Spec.Containers[0].Image &&
		status.ObservedGeneration >= copied.Generation &&
		status.Replicas == want && status.UpdatedReplicas == want && status.AvailableReplicas == want
}

// setDeployment takes a new version of a source or copy.
func (b *board) setDeployment(cluster string, d *appsv1.Deployment) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept[deploymentID{cluster, d.Name}] = d
}

func (b *board) deployment(cluster, name string) *appsv1.Deployment {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.kept[deploymentID{cluster, name}]
}

// countSources counts the sources for which so is true.
func (b *board) countSources(so func(*appsv1.Deployment) bool) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, d := range b.kept {
		if id.cluster == homeCluster && so(d) {
			n++
		}
	}
	return n
}

// freeze marks a cluster as frozen; "" ends that.
func (b *board) freeze(cluster string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.frozen = cluster
}

// countCopies completes the clusters' views, and returns the number of Deployments that are replicated. The lock is
// held.
func (b *board) countCopies(clusters []clusterView) (replicated int) {
	for i := range clusters {
		clusters[i].frozen = clusters[i].name == b.frozen
	}
	for id, source := range b.kept {
		if id.cluster != homeCluster {
			continue
		}
		if isReplicated(source) {
			replicated++
		}
		for i := range clusters {
			if isCurrent(b.kept[deploymentID{clusters[i].name, id.name}], source) {
				clusters[i].copies++
			}
		}
	}
	return replicated
}
