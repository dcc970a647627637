package attacks

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/pkg/text"
	"github.com/tenure-dev/tenure/test/must"
)

// deploymentCase is described in testdata/deployments.yaml.
type deploymentCase struct {
	Name                string
	Namespace           string
	Labels, Annotations map[string]string
	Finalizers          []string
	Pod, Container      map[string]any
	Target              *map[string]string
	Missing, Create     bool
	Reason, Want        string
	Accepted            bool
}

func (c deploymentCase) caseName() string { return c.Name }

// side is a fake cluster that remembers what was written.
type side struct {
	cluster.Cluster
	client   client.Client
	recorder *events.FakeRecorder
	written  []string // as kind namespace/name
}

func (s *side) GetClient() client.Client                       { return s.client }
func (s *side) GetConfig() *rest.Config                        { return &rest.Config{} }
func (s *side) GetAPIReader() client.Reader                    { return s.client }
func (s *side) GetEventRecorder(string) recorder.EventRecorder { return s.recorder }

func newSide(objects ...client.Object) *side {
	scheme := runtime.NewScheme()
	utilruntime.Must(appsv1.AddToScheme(scheme))
	utilruntime.Must(corev1.AddToScheme(scheme))
	s := &side{recorder: events.NewFakeRecorder(1000)}
	note := func(kind, namespace, name string) {
		s.written = append(s.written, strings.TrimSpace(kind+" "+namespace+"/"+name))
	}
	applied := func(config runtime.ApplyConfiguration) {
		o := config.(metav1.Object)
		note("deployment", o.GetNamespace(), o.GetName())
	}
	s.client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(
		&appsv1.Deployment{}).WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				note(strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1."), o.GetNamespace(), o.GetName())
				return c.Create(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
				opts ...client.PatchOption) error {
				note("deployment", o.GetNamespace(), o.GetName())
				return c.Patch(ctx, o, p, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				note("deployment", o.GetNamespace(), o.GetName())
				return c.Delete(ctx, o, opts...)
			},
			Apply: func(ctx context.Context, c client.WithWatch, config runtime.ApplyConfiguration,
				opts ...client.ApplyOption) error {
				applied(config)
				return c.Apply(ctx, config, opts...)
			},
			SubResourceApply: func(ctx context.Context, c client.Client, sub string, config runtime.ApplyConfiguration,
				opts ...client.SubResourceApplyOption) error {
				applied(config)
				return c.SubResource(sub).Apply(ctx, config, opts...)
			},
		}).Build()
	return s
}

// sides are home, west, and a third cluster, whose namespaces aren't open to copies.
type sides map[multicluster.ClusterName]*side

func (s sides) GetCluster(_ context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	if c, found := s[name]; found {
		return c, nil
	}
	return nil, multicluster.ErrClusterNotFound
}

func (s sides) Names() []multicluster.ClusterName {
	return []multicluster.ClusterName{"home", "shut", "west"}
}

func (s sides) KeepsCopies(multicluster.ClusterName) (keeps, known bool) { return true, true }

func (s sides) Usable(name multicluster.ClusterName) (bool, time.Time) {
	return s[name] != nil, time.Time{}
}

func (s sides) Aliases() map[multicluster.ClusterName]multicluster.ClusterName { return nil }

func (s sides) PutOff(multicluster.ClusterName, string) (time.Duration, bool) { return 0, false }

func (s sides) RetryAfter(context.Context, multicluster.ClusterName) time.Duration { return 0 }

// source is the Deployment of a case: a harmless one with the case laid over it.
func (c deploymentCase) source(t testing.TB) *appsv1.Deployment {
	t.Helper()
	container := map[string]any{"name": "web", "image": "web:1",
		"env": []any{map[string]any{"name": "PASSWORD", "value": canary}}}
	maps.Copy(container, c.Container)
	pod := map[string]any{"containers": []any{container}}
	maps.Copy(pod, c.Pod)
	text, err := yaml.Marshal(pod)
	must.Succeed(t, err)
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: "web", UID: "uid-of-web", Generation: 1, Finalizers: c.Finalizers,
			Labels:      map[string]string{replication.LabelReplicate: "true"},
			Annotations: map[string]string{replication.AnnotationClusters: "west"},
		},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		},
	}
	must.Succeed(t, yaml.UnmarshalStrict(text, &d.Spec.Template.Spec))
	maps.Copy(d.Labels, c.Labels)
	for key, value := range c.Annotations {
		d.Annotations[key] = expand(value)
	}
	return d
}

// tooLong is what would be too long to write down: <<COUNT TEXT>>, with %d for the number in the count.
var tooLong = regexp.MustCompile(`<<(\d+) (.+?)>>`)

func expand(text string) string {
	return tooLong.ReplaceAllStringFunc(text, func(match string) string {
		parts := tooLong.FindStringSubmatch(match)
		count, _ := strconv.Atoi(parts[1])
		all := make([]string, count)
		for i := range all {
			all[i] = strings.ReplaceAll(parts[2], "%d", strconv.Itoa(i))
		}
		return strings.Join(all, "")
	})
}

// target is what is in the cluster that a case aims at.
func (c deploymentCase) target() []client.Object {
	if c.Missing {
		return nil
	}
	labels := map[string]string{replication.LabelTarget: replication.TargetConfined}
	if c.Target != nil {
		labels = *c.Target
	}
	theirs := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "tenure-system", Name: "web",
		Annotations: map[string]string{
			replication.AnnotationSource: "home/" + c.Namespace + "/web"}}}
	return []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace, Labels: labels}}, theirs}
}

func TestDeployments(t *testing.T) {
	for _, c := range read[deploymentCase](t, "deployments") {
		if c.Namespace == "" {
			c.Namespace = "shop"
		}
		t.Run(c.Name, func(t *testing.T) {
			source := c.source(t)
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}}
			all := sides{"home": newSide(source, namespace.DeepCopy()), "west": newSide(c.target()...),
				"shut": newSide(namespace)}
			clock := clocktesting.NewFakeClock(time.Now())
			r, err := replication.NewReconciler(replication.Config{Clusters: all, Targets: all, Clock: clock,
				ForbiddenNamespaces: []string{"tenure-system", "vault-*"}, CreateNamespaces: c.Create})
			must.Succeed(t, err)
			request := mcreconcile.Request{ClusterName: "home", Request: reconcile.Request{
				NamespacedName: types.NamespacedName{Namespace: c.Namespace, Name: "web"}}}
			bounded(t, func() {
				for range 4 {
					if _, err := r.Reconcile(t.Context(), request); err != nil {
						t.Error(err)
					}
					clock.Step(11 * time.Second)
				}
			})
			c.judge(t, all)
		})
	}
}

// judge checks what a case has led to.
func (c deploymentCase) judge(t *testing.T, all sides) {
	own, made := "deployment "+c.Namespace+"/web", "Namespace /"+c.Namespace
	for name, s := range all {
		for _, written := range s.written {
			allowed := written == own && (name == "home" || name == "west" && c.Accepted) ||
				written == made && c.Create && c.Accepted && name == "west"
			if !allowed {
				t.Errorf("%s: written: %s", name, written)
			}
		}
	}
	if written := slices.Contains(all["west"].written, own); written != c.Accepted {
		t.Errorf("west has it: %v", written)
	}
	source := &appsv1.Deployment{}
	must.Succeed(t, all["home"].client.Get(t.Context(), client.ObjectKey{Namespace: c.Namespace, Name: "web"},
		source))
	message, reason := "", ""
	for _, condition := range source.Status.Conditions {
		if condition.Type == replication.ConditionReplicated {
			message, reason = condition.Message, condition.Reason
		}
	}
	if !c.Accepted && (reason != c.Reason || !strings.Contains(message, c.Want)) {
		t.Errorf("the source shows %s: %s, want %s: %s", reason, message, c.Reason, c.Want)
	}
	shown(t, message)
	told := 0
	for len(all["home"].recorder.Events) > 0 {
		event := <-all["home"].recorder.Events
		shown(t, event)
		if len(event) > text.Note+100 {
			t.Errorf("an event of %d bytes", len(event))
		}
		told++
	}
	if len(message) > text.Note || told > 1 || !c.Accepted && told == 0 {
		t.Errorf("a message of %d bytes, %d events, want one where it isn't accepted", len(message), told)
	}
	if written := len(all["home"].written); c.Reason == replication.ReasonInvalidAnnotation && written != 1 {
		t.Errorf("home is written %d times, want once", written)
	}
}
