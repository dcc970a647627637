package labtest

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-dev/tenure/pkg/replication"
)

// Deployment asks to be replicated to all clusters, with one Pod in each.
func Deployment(namespace, name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels:      map[string]string{replication.LabelReplicate: "true"},
			Annotations: map[string]string{replication.AnnotationClusters: "*"},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}
}

// Condition is a Deployment's of a type; an empty one if it has none, or d is nil.
func Condition(d *appsv1.Deployment, kind appsv1.DeploymentConditionType) appsv1.DeploymentCondition {
	if d != nil {
		for _, c := range d.Status.Conditions {
			if c.Type == kind {
				return c
			}
		}
	}
	return appsv1.DeploymentCondition{}
}
