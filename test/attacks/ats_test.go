package attacks

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/at"
	"github.com/tenure-dev/tenure/test/must"
)

// atCase is described in testdata/ats.yaml.
type atCase struct {
	Name              string
	Meta, Spec        map[string]any
	Refuse            *metav1.Status
	Pod, Unrestricted bool
	Reason, Want      string
}

func (c atCase) caseName() string { return c.Name }

func TestAts(t *testing.T) {
	security, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	must.Succeed(t, err)
	for _, c := range read[atCase](t, "ats") {
		t.Run(c.Name, func(t *testing.T) {
			object := c.object(t)
			key := client.ObjectKeyFromObject(object)
			west := farm(c, object)
			clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
			r, err := at.NewReconciler(at.Config{Clusters: sides{"west": west}, Clock: clock})
			must.Succeed(t, err)
			bounded(t, func() {
				for range 4 {
					_, _ = r.Reconcile(t.Context(), mcreconcile.Request{ClusterName: "west",
						Request: reconcile.Request{NamespacedName: key}})
					clock.Step(5 * time.Second) // an error is tried again, as by a queue
				}
			})
			pods := &corev1.PodList{}
			must.Succeed(t, west.client.List(t.Context(), pods))
			if made := len(pods.Items); made > 1 || (made == 1) != c.Pod {
				t.Errorf("%d Pods were made", made)
			}
			for i := range pods.Items {
				pod := &pods.Items[i]
				if owner := metav1.GetControllerOf(pod); pod.Namespace != key.Namespace || owner == nil || owner.UID != object.UID {
					t.Errorf("the Pod is %s/%s of %v", pod.Namespace, pod.Name, owner)
				}
				if len(pod.Labels) > 1 || len(pod.Annotations) > 0 || len(pod.Spec.Volumes) > 0 ||
					len(pod.Spec.Containers[0].Command) != 3 {
					t.Errorf("the Pod has more than it should: %v", pod)
				}
				level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
				if c.Unrestricted {
					continue // the namespace's Pod Security decides about such Pods
				}
				for _, result := range security.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec) {
					if !result.Allowed {
						t.Errorf("the Pod isn't %s: %s %s", level.Level, result.ForbiddenReason, result.ForbiddenDetail)
					}
				}
			}
			c.told(t, west, key)
		})
	}
}

// object is the At of a case: a harmless one with the case laid over it.
func (c atCase) object(t testing.TB) *cnatv1alpha1.At {
	t.Helper()
	fill := strings.NewReplacer("${LONG}", repeat("long", 32<<10/4), "${NAME253}", repeat("n", 253),
		"${NAMEDOTS}", repeat("n", 50)+repeat(".n", 90))
	meta := map[string]any{"namespace": "ours", "name": "job", "uid": "uid-of-job", "generation": 1}
	spec := map[string]any{"schedule": "2025-12-31T23:59:00Z", "command": "true", "image": "busybox"}
	lay(meta, c.Meta, fill)
	lay(spec, c.Spec, fill)
	text, err := yaml.Marshal(map[string]any{"metadata": meta, "spec": spec})
	must.Succeed(t, err)
	object := &cnatv1alpha1.At{}
	must.Succeed(t, yaml.Unmarshal(text, object)) // unknown fields are dropped, as by an API server
	if c.Refuse != nil {
		c.Refuse.Message = fill.Replace(c.Refuse.Message)
	}
	return object
}

// farm is a cluster with an At in it.
func farm(c atCase, object *cnatv1alpha1.At) *side {
	scheme := runtime.NewScheme()
	utilruntime.Must(cnatv1alpha1.AddToScheme(scheme))
	utilruntime.Must(corev1.AddToScheme(scheme))
	s := &side{recorder: events.NewFakeRecorder(1000)}
	s.client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&cnatv1alpha1.At{}).WithObjects(object).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, under client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if c.Refuse != nil {
					c.Refuse.Status = metav1.StatusFailure
					return &apierrors.StatusError{ErrStatus: *c.Refuse}
				}
				return under.Create(ctx, o, opts...)
			},
		}).Build()
	return s
}

// told checks what is shown of the At.
func (c atCase) told(t *testing.T, west *side, key client.ObjectKey) {
	t.Helper()
	now := &cnatv1alpha1.At{}
	must.Succeed(t, west.client.Get(t.Context(), key, now))
	found := c.Reason == ""
	for _, condition := range now.Status.Conditions {
		shown(t, condition.Message)
		if len(condition.Message) > 1024 {
			t.Errorf("a message of %d bytes", len(condition.Message))
		}
		found = found || condition.Reason == c.Reason && condition.Message != "" &&
			strings.Contains(condition.Message, c.Want)
	}
	if !found {
		t.Errorf("no condition has reason %s and %q: %v", c.Reason, c.Want, now.Status.Conditions)
	}
	for n := 0; len(west.recorder.Events) > 0; n++ {
		if event := <-west.recorder.Events; n > 8 {
			t.Errorf("one event more: %s", event)
		} else {
			shown(t, event)
		}
	}
}
