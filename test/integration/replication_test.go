package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

// TestReplication runs the replication reconciler over real control planes: an API server for the sources, and two
// clusters with the Deployment controller, a scheduler and KWOK's nodes for the copies.
func TestReplication(t *testing.T) {
	r := startRig(t)
	stop := r.run(t, "home", 4*time.Second)
	for _, story := range []struct {
		name string
		tell func(*testing.T, *rig, string)
	}{
		{"copies run, and kubectl can wait for them", converge},
		{"drift is repaired", drift},
		{"what others add stays", additions},
		{"an autoscaler keeps its replicas", autoscaler},
		{"somebody who changes a copy back each time is not fought", fight},
		{"a policy that changes what is applied causes no loop", mutatingPolicy},
		{"a foreign Deployment is left alone", foreign},
		{"a namespace that nobody opened gets nothing", closed},
		{"who may only edit at home makes nothing happen elsewhere", strangers},
		{"Pods get no more than their namespace allows", confined},
		{"a frozen cluster holds up nobody else", frozen},
		{"a share moves away from a cluster that is away, and back", divided},
	} {
		t.Run(story.name, func(t *testing.T) {
			namespace := fmt.Sprintf("story-%x", time.Now().UnixNano()&0xffffffff)
			r.namespaced(t, "home", namespace, "west", "east")
			story.tell(t, r, namespace)
		})
	}
	stop()
	t.Run("a crash in any act leads to the same end", func(t *testing.T) { crashes(t, r) })
	t.Run("rights can be given namespace by namespace", func(t *testing.T) { byNamespace(t, r) })
	t.Run("a new process finds nothing to do", func(t *testing.T) { newProcess(t, r) })
	t.Run("beside the Deployment controller", func(t *testing.T) { besideController(t, r) })
}

func converge(t *testing.T, r *rig, namespace string) {
	var sources []*appsv1.Deployment
	for i := range 10 {
		sources = append(sources, deployment(namespace, fmt.Sprintf("web-%d", i)))
		r.create(t, "home", sources[i])
	}
	if out, err := r.planes.Cluster("home").Kubectl(t.Context(), "", "-n", namespace, "wait", "--for=condition=Replicated",
		"deployment", "--all", "--timeout=60s"); err != nil {
		t.Fatalf("kubectl wait: %v\n%s", err, out)
	}
	for _, name := range []string{"west", "east"} {
		pods := &corev1.PodList{}
		if err := r.client[name].List(t.Context(), pods, client.InNamespace(namespace)); err != nil || len(pods.Items) != 20 {
			t.Errorf("%s: %d Pods, %v, want 20", name, len(pods.Items), err)
		}
	}
	r.probe = namespace
	t.Log(labtest.Condition(r.get(t, "home", sources[0]), replication.ConditionReplicated).Message)
}

// drift has what the sharded replicas' test of drifts doesn't.
func drift(t *testing.T, r *rig, namespace string) {
	source := deployment(namespace, "web")
	r.create(t, "home", source)
	r.replicated(t, source)
	must.Succeed(t, r.scale(t.Context(), "west", "kubectl", source, 7))
	labtest.Until(t, "the copy that was scaled by hand is scaled back",
		func() bool { return *r.get(t, "west", source).Spec.Replicas == 2 })
	r.edit(t, "west", "kubectl-edit", source, func(d *appsv1.Deployment) { d.Annotations = nil })
	labtest.Until(t, "the marks are back", func() bool {
		return r.get(t, "west", source).Annotations[replication.AnnotationOwnerUID] != ""
	})
	r.replicated(t, source)
	r.edit(t, "home", "kubectl", source, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}}
	})
	labtest.Until(t, "a new field arrives", func() bool {
		return len(r.get(t, "east", source).Spec.Template.Spec.Containers[0].Env) == 1
	})
	r.edit(t, "home", "kubectl", source, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Env = nil })
	labtest.Until(t, "a removed field goes", func() bool {
		return len(r.get(t, "east", source).Spec.Template.Spec.Containers[0].Env) == 0
	})
	labtest.Until(t, "events tell of the repairs",
		func() bool { return r.eventSeen(t, source, replication.ReasonRepaired) })
}

// newProcess starts the reconciler anew over all that the other stories have left behind.
func newProcess(t *testing.T, r *rig) {
	before := map[string]int{}
	for _, name := range []string{"home", "west", "east"} {
		before[name] = len(r.writes(t, name, ""))
	}
	stop := r.run(t, "home", time.Minute)
	defer stop()
	time.Sleep(5 * time.Second)
	for name, n := range before {
		if after := r.writes(t, name, ""); len(after) != n {
			t.Errorf("%s: written: %v", name, after[n:])
		}
	}
	probe := r.get(t, "home", deployment(r.probe, "web-0"))
	if probe == nil {
		t.Fatal("the source that was to be edited is gone")
	}
	r.edit(t, "west", "kubectl-edit", probe, imageTo("evil"))
	r.runs(t, "west", probe, "web:1") // the new process works
}

// reconciled returns a function that waits until n more sources have been reconciled and none is waiting or in
// work. After that, what hasn't been written won't be.
func reconciled(t *testing.T, n int) (wait func()) {
	t.Helper()
	controller := map[string]string{"controller": "replication"}
	count := func(name string) float64 {
		families, err := metrics.Registry.Gather()
		must.Succeed(t, err)
		page := lab.Metrics{}
		for _, family := range families {
			page[family.GetName()] = family
		}
		_, sum := page.Count(name, controller)
		return sum
	}
	want := count("controller_runtime_reconcile_total") + float64(n)
	return func() {
		t.Helper()
		labtest.Until(t, fmt.Sprintf("%d more reconciles, and nothing to do", n), func() bool {
			return count("controller_runtime_reconcile_total") >= want &&
				count("workqueue_depth")+count("controller_runtime_active_workers") == 0
		})
	}
}

// eventSeen reports whether an event about a source has a reason.
func (r *rig) eventSeen(t *testing.T, source *appsv1.Deployment, reason string) bool {
	t.Helper()
	list := &corev1.EventList{}
	must.Succeed(t, r.client["home"].List(t.Context(), list, client.InNamespace(source.Namespace)))
	return slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
		return e.InvolvedObject.Name == source.Name && e.Reason == reason
	})
}

func additions(t *testing.T, r *rig, namespace string) {
	source := deployment(namespace, "web")
	r.create(t, "home", source)
	r.replicated(t, source)
	r.edit(t, "west", "injector", source, func(d *appsv1.Deployment) {
		d.Annotations["injected"] = "yes"
		d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers,
			corev1.Container{Name: "sidecar", Image: "sidecar:1"})
	})
	r.edit(t, "home", "kubectl", source, imageTo("web:2"))
	labtest.Until(t, "the new image arrives", func() bool {
		return slices.ContainsFunc(r.get(t, "west", source).Spec.Template.Spec.Containers,
			func(c corev1.Container) bool { return c.Image == "web:2" })
	})
	r.replicated(t, source)
	copy := r.get(t, "west", source)
	if len(copy.Spec.Template.Spec.Containers) != 2 || copy.Annotations["injected"] != "yes" {
		t.Errorf("taken away: %v %v", copy.Spec.Template.Spec.Containers, copy.Annotations)
	}
}

func autoscaler(t *testing.T, r *rig, namespace string) {
	source := deployment(namespace, "web")
	r.create(t, "home", source)
	r.replicated(t, source)
	must.Succeed(t, r.scale(t.Context(), "west", "kube-controller-manager", source, 5))
	labtest.Until(t, "the source shows the autoscaler's figure", func() bool {
		c := labtest.Condition(r.get(t, "home", source), replication.ConditionReplicated)
		return c.Status == corev1.ConditionTrue && strings.Contains(c.Message, "west 5/5")
	})
	r.edit(t, "home", "kubectl", source, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Image = "web:2"
		d.Spec.Replicas = new(int32(3))
	})
	labtest.Until(t, "image and replicas arrive in east, the image alone in west", func() bool {
		w, e := r.get(t, "west", source), r.get(t, "east", source)
		return imageOf(w) == "web:2" && imageOf(e) == "web:2" && *e.Spec.Replicas == 3
	})
	r.replicated(t, source)
	before, looked := len(r.writes(t, "west", namespace)), reconciled(t, 1)
	must.Succeed(t, r.scale(t.Context(), "west", "kube-controller-manager", source, 6))
	looked()
	if n := *r.get(t, "west", source).Spec.Replicas; n != 6 {
		t.Errorf("%d replicas in west, want the autoscaler's 6", n)
	}
	if after := r.writes(t, "west", namespace); len(after) != before {
		t.Errorf("written: %v", after[before:])
	}
}

func fight(t *testing.T, r *rig, namespace string) {
	source := deployment(namespace, "web")
	r.create(t, "home", source)
	r.replicated(t, source)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			d := &appsv1.Deployment{}
			if err := r.client["west"].Get(ctx, client.ObjectKeyFromObject(source), d); err == nil && *d.Spec.Replicas != 9 {
				_ = r.scale(ctx, "west", "some-bot", source, 9) // what fails is tried again
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	defer func() { cancel(); <-ended }()
	r.shows(t, source, replication.ReasonContested, "spec.replicas")
	before := len(r.writes(t, "west", namespace))
	time.Sleep(6 * time.Second)
	if writes := len(r.writes(t, "west", namespace)) - before; writes > 4 {
		t.Errorf("%d writes within 6 s, want ever fewer", writes)
	}
	if !r.eventSeen(t, source, replication.ReasonContested) {
		t.Error("no event tells of it")
	}
	cancel()
	<-ended
	labtest.Until(t, "the copy is repaired once it is left in peace",
		func() bool { return *r.get(t, "west", source).Spec.Replicas == 2 })
}

func foreign(t *testing.T, r *rig, namespace string) {
	stranger := deployment(namespace, "web", func(d *appsv1.Deployment) {
		d.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: "web"}
		d.Spec.Template.Spec.Containers[0].Image = "other:1"
	})
	r.create(t, "west", stranger)
	source := deployment(namespace, "web")
	r.create(t, "home", source)
	r.shows(t, source, replication.ReasonForeign, "")
	labtest.Until(t, "east has its copy", func() bool { return r.get(t, "east", source) != nil })
	got := r.get(t, "west", source)
	if imageOf(got) != "other:1" || len(r.writes(t, "west", namespace)) > 0 ||
		slices.ContainsFunc(got.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			return e.Manager == replication.FieldManager
		}) {
		t.Errorf("touched: %v", got)
	}
	labtest.Until(t, "an event tells of it", func() bool { return r.eventSeen(t, source, replication.ReasonForeign) })
	must.Succeed(t, r.client["west"].Delete(t.Context(), got))
	r.replicated(t, source)
}

func closed(t *testing.T, r *rig, namespace string) {
	source, missing := deployment(namespace, "web"), deployment(namespace+"-missing", "web")
	r.open(t, "west", namespace, "")
	r.namespaced(t, "home", missing.Namespace, "east")
	r.create(t, "home", source)
	r.create(t, "home", missing)
	r.shows(t, source, replication.ReasonNotTarget,
		"west: namespace "+namespace+" isn't a target: label it there tenure.dev/replication-target=true")
	r.shows(t, missing, replication.ReasonNotTarget, "west: there is no namespace "+missing.Namespace)
	labtest.Until(t, "an event tells of it", func() bool { return r.eventSeen(t, source, replication.ReasonNotTarget) })
	labtest.Until(t, "east has both", func() bool {
		return r.get(t, "east", source) != nil &&
			r.get(t, "east", missing) != nil
	})
	for _, d := range []*appsv1.Deployment{source, missing} {
		if writes := r.writes(t, "west", d.Namespace); len(writes) > 0 {
			t.Errorf("written in west, namespace %s: %v", d.Namespace, writes)
		}
	}
	r.open(t, "west", namespace, replication.TargetConfined)
	r.namespaced(t, "west", missing.Namespace)
	r.open(t, "west", missing.Namespace, replication.TargetUnrestricted)
	r.replicated(t, source)
	r.replicated(t, missing)

	r.open(t, "west", namespace, "")
	time.Sleep(6 * time.Second) // the state of a namespace is cached for 5 s
	before := len(r.writes(t, "west", namespace))
	r.edit(t, "home", "kubectl", source, imageTo("web:2"))
	r.edit(t, "west", "kubectl", source, func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(1)) })
	r.shows(t, source, replication.ReasonNotTarget, "west: namespace "+namespace)
	r.runs(t, "east", source, "web:2")
	if copied := r.get(t, "west", source); imageOf(copied) != "web:1" || *copied.Spec.Replicas != 1 {
		t.Errorf("the copy in west is %v, want it left alone", copied)
	}
	if writes := r.writes(t, "west", namespace); len(writes) != before {
		t.Errorf("written in west since its namespace was closed: %v", writes[before:])
	}
	must.Succeed(t, r.client["home"].Delete(t.Context(), source))
	labtest.Until(t, "the finalizer deletes what is ours", func() bool {
		return r.get(t, "home", source) == nil && r.get(t, "west", source) == nil
	})
}

func confined(t *testing.T, r *rig, namespace string) {
	source := deployment(namespace, "web", func(d *appsv1.Deployment) {
		pods := &d.Spec.Template.Spec
		pods.ServiceAccountName, pods.HostPID = "admin", true
		pods.Volumes = []corev1.Volume{{Name: "root",
			VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		pods.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	})
	r.create(t, "home", source)
	for _, words := range []string{`service account "admin"`, "hostPID=true", "hostPath", "privileged"} {
		r.shows(t, source, replication.ReasonNotAllowed, words)
	}
	labtest.Until(t, "an event tells of it", func() bool { return r.eventSeen(t, source, replication.ReasonNotAllowed) })
	for _, name := range []string{"west", "east"} {
		if writes := r.writes(t, name, namespace); len(writes) > 0 {
			t.Errorf("written in %s: %v", name, writes)
		}
	}
	r.open(t, "west", namespace, replication.TargetUnrestricted)
	labtest.Until(t, "west, which allows it, has it", func() bool { return r.get(t, "west", source) != nil })
	if r.get(t, "east", source) != nil {
		t.Error("east has it, too")
	}
}
