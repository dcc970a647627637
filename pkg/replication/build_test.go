package replication

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tenure-dev/tenure/test/must"
)

const (
	home    = multicluster.ClusterName("home")
	homeUID = types.UID("uid-of-home")
)

var (
	epoch       = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	key         = types.NamespacedName{Namespace: "shop", Name: "web"}
	testRequest = mcreconcile.Request{ClusterName: "home/01", Request: reconcile.Request{NamespacedName: key}}
)

// aSource is a Deployment that asks to be replicated to west and east, changed by the options.
func aSource(options ...func(*appsv1.Deployment)) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, UID: "uid-of-web", Generation: 1,
			Labels:      map[string]string{"app": "web", LabelReplicate: "true"},
			Annotations: map[string]string{AnnotationClusters: "west,east", "team": "shop"},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(3)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "web", Image: "web:1", Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}},
					Ports: []corev1.ContainerPort{{ContainerPort: 80, Protocol: corev1.ProtocolTCP}},
				}}},
			},
		},
	}
	for _, option := range options {
		option(d)
	}
	return d
}

func annotated(name, value string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Annotations[name] = value }
}

func mustWant(t *testing.T, source *appsv1.Deployment, replicas *int32) *forms {
	t.Helper()
	base, err := newTemplate(source, home, homeUID)
	must.Succeed(t, err)
	want, err := base.want(replicas, override{})
	must.Succeed(t, err)
	return want
}

// aCopy is the copy of aSource as an API server keeps it, rolled out, changed by the options.
func aCopy(t *testing.T, options ...func(*appsv1.Deployment)) *appsv1.Deployment {
	t.Helper()
	d, err := toDeployment(mustWant(t, aSource(), nil).Full)
	must.Succeed(t, err)
	d.UID, d.ResourceVersion, d.Generation = "uid-of-copy", "7", 2
	d.Spec.RevisionHistoryLimit = new(int32(10))
	d.Spec.Template.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 3}
	for _, option := range options {
		option(d)
	}
	return d
}

func image(name string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = name }
}

func scaled(n int32) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Replicas = &n }
}

// replicasBy makes spec.replicas belong to a manager.
func replicasBy(manager string, operation metav1.ManagedFieldsOperationType) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.ManagedFields = append(d.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, Operation: operation,
			FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{"f:replicas":{}}}`)}})
	}
}

// conditionByUs makes it look like a source, whose condition we have applied.
func conditionByUs(d *appsv1.Deployment) {
	d.ManagedFields = append(d.ManagedFields, metav1.ManagedFieldsEntry{Manager: FieldManager,
		Operation: metav1.ManagedFieldsOperationApply, Subresource: "status", FieldsType: "FieldsV1",
		FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:status":{"f:conditions":{}}}`)}})
}
