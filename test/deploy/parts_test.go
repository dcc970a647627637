package deploy

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/tenure-dev/tenure/shard"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// typed returns one of the objects that were rendered.
func typed[T any](t *testing.T, all map[string]map[string]any, name string) *T {
	t.Helper()
	object, ok := all[name]
	if !ok {
		t.Fatalf("%s isn't among %v", name, slices.Sorted(maps.Keys(all)))
	}
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, into, true); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return into
}

func deployment(t *testing.T, folder string) (map[string]map[string]any, *appsv1.Deployment) {
	t.Helper()
	all := kustomize(t, folder)
	return all, typed[appsv1.Deployment](t, all, "Deployment tenure-system/tenure")
}

func TestAReplicaHasTimeToLeaveAndAMemoryLimitToFollow(t *testing.T) {
	_, d := deployment(t, "../../config/default")
	pod := d.Spec.Template.Spec
	grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	if least := shard.DefaultDrainTimeout + 2*shard.DefaultLeaseDuration + 5*time.Second; grace < least {
		t.Errorf("a Pod gets %v to end, a replica may take %v", grace, least)
	}
	container := pod.Containers[0]
	if container.Resources.Limits.Memory().IsZero() {
		t.Error("there is no limit of memory for a replica to keep to")
	}
	if slices.ContainsFunc(container.Env, func(v corev1.EnvVar) bool { return v.Name == "GOMEMLIMIT" }) {
		t.Error("GOMEMLIMIT is set, and would stay when the limit of memory is changed")
	}
}

// All replicas are unready while home is away, those in other clusters, too: their nodes have to be drained all the
// same.
func TestReplicasThatServeNothingHoldUpNoDrain(t *testing.T) {
	for _, folder := range []string{"default", "remote"} {
		all, d := deployment(t, "../../config/"+folder)
		budget := typed[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget tenure-system/tenure").Spec
		if p := budget.UnhealthyPodEvictionPolicy; p == nil || *p != policyv1.AlwaysAllow {
			t.Errorf("config/%s: a Pod that isn't ready is evicted: %v", folder, p)
		}
		if !labels.SelectorFromSet(budget.Selector.MatchLabels).Matches(labels.Set(d.Spec.Template.Labels)) {
			t.Errorf("config/%s: the budget is for %v, replicas have %v", folder, budget.Selector.MatchLabels,
				d.Spec.Template.Labels)
		}
	}
}

// Another program's records go with their type, and its policies may be these.
func TestAllButTypesPoliciesAndNamespaceCanBeUninstalled(t *testing.T) {
	text, err := os.ReadFile("../../config/default/kustomization.yaml")
	must.Succeed(t, err)
	var all struct{ Resources []string }
	must.Succeed(t, yaml.Unmarshal(text, &all))
	var parts []string
	for _, part := range all.Resources {
		if !slices.Contains([]string{"namespace.yaml", "../crd", "../policy"}, part) {
			parts = append(parts, filepath.Base(part))
		}
	}
	slices.Reverse(parts) // replicas go before their rights
	page, err := os.ReadFile("../../docs/install.md")
	must.Succeed(t, err)
	if want := "for part in " + strings.Join(parts, " ") + ";"; !strings.Contains(string(page), want) {
		t.Errorf("docs/install.md doesn't say %q", want)
	}
}

// A replica elsewhere finds home by the Secret that docs/install.md has made, and names no Pod, which peers would look
// for in home.
func TestARemoteReplicaHasHomeFromASecretAndNamesNoPod(t *testing.T) {
	all, d := deployment(t, "../../config/remote")
	pod := d.Spec.Template.Spec
	container := pod.Containers[0]
	var path string
	for _, v := range pod.Volumes {
		i := slices.IndexFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name })
		if v.Secret != nil && v.Secret.SecretName == "tenure-home" && i >= 0 {
			path = container.VolumeMounts[i].MountPath
		}
	}
	page, err := os.ReadFile("../../docs/install.md")
	must.Succeed(t, err)
	for _, want := range []string{"generic tenure-home --from-file=token --from-file=kubeconfig\n",
		"tokenFile: " + path + "/token}"} {
		if path == "" || !strings.Contains(string(page), want) {
			t.Errorf("the Secret is mounted at %q, and docs/install.md doesn't say %q", path, want)
		}
	}
	if want := "--home-kubeconfig=" + path + "/kubeconfig"; !slices.Contains(container.Args, want) {
		t.Errorf("replicas get %q, want %s among it", container.Args, want)
	}
	for _, v := range container.Env {
		if v.Name == "TENURE_POD" || strings.Contains(v.Value, "POD_UID") {
			t.Errorf("a replica elsewhere says that it is a Pod of home: %v", v)
		}
	}
	account := typed[corev1.ServiceAccount](t, all, "ServiceAccount tenure-system/"+pod.ServiceAccountName)
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken || account.Name == "tenure" {
		t.Errorf("it runs as %s, with a token of that account: %v", account.Name, pod.AutomountServiceAccountToken)
	}
}

func TestOptionalPartsNameWhatIsInstalled(t *testing.T) {
	all, d := deployment(t, "testdata/components")
	ports := map[string]bool{}
	for _, p := range d.Spec.Template.Spec.Containers[0].Ports {
		ports[p.Name] = true
	}
	policy := typed[networkingv1.NetworkPolicy](t, all, "NetworkPolicy tenure-system/tenure").Spec
	if !labels.SelectorFromSet(policy.PodSelector.MatchLabels).Matches(labels.Set(d.Spec.Template.Labels)) {
		t.Errorf("the NetworkPolicy selects %v, replicas have %v", policy.PodSelector.MatchLabels, d.Spec.Template.Labels)
	}
	if port := policy.Ingress[0].Ports[0].Port.StrVal; !ports[port] {
		t.Errorf("the NetworkPolicy opens port %q, replicas have %v", port, ports)
	}
	class := typed[schedulingv1.PriorityClass](t, all, "PriorityClass /tenure")
	if got := d.Spec.Template.Spec.PriorityClassName; got != class.Name {
		t.Errorf("replicas have the priority class %q, want %q", got, class.Name)
	}
	target := typed[autoscalingv2.HorizontalPodAutoscaler](t, all,
		"HorizontalPodAutoscaler tenure-system/tenure").Spec.ScaleTargetRef
	if target.Kind != "Deployment" || target.Name != d.Name || target.APIVersion != d.APIVersion {
		t.Errorf("the autoscaler scales %v", target)
	}
	if d.Spec.Replicas != nil {
		t.Errorf("the Deployment asks for %d replicas: every apply would undo what the autoscaler did", *d.Spec.Replicas)
	}
}

// The ServiceMonitor's own fields are checked in config/monitoring/gen.
func TestTheServiceMonitorSelectsOurService(t *testing.T) {
	all, _ := deployment(t, "testdata/scraped")
	service := typed[corev1.Service](t, all, "Service tenure-system/tenure-metrics")
	spec := all["ServiceMonitor tenure-system/tenure"]["spec"].(map[string]any)
	selected, _, err := unstructured.NestedStringMap(spec, "selector", "matchLabels")
	must.Succeed(t, err)
	if len(selected) == 0 || !labels.SelectorFromSet(selected).Matches(labels.Set(service.Labels)) {
		t.Errorf("the ServiceMonitor selects %v, the Service has %v", selected, service.Labels)
	}
	port := spec["endpoints"].([]any)[0].(map[string]any)["port"]
	if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == port }) {
		t.Errorf("the ServiceMonitor scrapes port %v, the Service has %v", port, service.Spec.Ports)
	}
	// Who may read the metrics can find them, too.
	reads := typed[rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding /tenure-metrics-reader")
	finds := typed[rbacv1.RoleBinding](t, all, "RoleBinding tenure-system/tenure-discovery")
	expect.Equal(t, "the one who reads and the one who finds", reads.Subjects, finds.Subjects)
	role := typed[rbacv1.Role](t, all, "Role "+finds.Namespace+"/"+finds.RoleRef.Name)
	for _, resource := range []string{"services", "endpoints", "endpointslices", "pods"} {
		if !slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, "watch")
		}) {
			t.Errorf("nobody may watch %s", resource)
		}
	}
}

// config/policy says how to name a fleet that runs under another name. That changes the policies that name the
// fleet, and no others.
func TestAnotherNameIsAddedToEachPolicyThatNamesTheFleet(t *testing.T) {
	const name = "'replica@elsewhere'"
	comment, err := os.ReadFile("../../config/policy/kustomization.yaml")
	must.Succeed(t, err)
	for overlay, folder := range map[string]string{"identity-home": "replication/home",
		"identity-target": "replication/target"} {
		overlaid, err := os.ReadFile("testdata/" + overlay + "/kustomization.yaml")
		must.Succeed(t, err)
		_, patch, _ := strings.Cut(string(overlaid), "patches:\n")
		for line := range strings.Lines(patch) {
			if !strings.Contains(string(comment), line) {
				t.Errorf("testdata/%s has %q, which config/policy doesn't say", overlay, line)
			}
		}
		all, named := kustomize(t, "testdata/"+overlay), 0
		for key, was := range kustomize(t, "../../config/"+folder) {
			before, _, _ := unstructured.NestedSlice(was, "spec", "variables")
			after, _, _ := unstructured.NestedSlice(all[key], "spec", "variables")
			if len(before) > 0 && before[0].(map[string]any)["name"] == "fleet" {
				named++
				if expression := after[0].(map[string]any)["expression"].(string); !strings.Contains(expression, name) {
					t.Errorf("%s: the fleet is %s", key, expression)
				}
				continue
			}
			expect.Equal(t, key+", with another name", was, all[key])
		}
		if named < 2 {
			t.Errorf("config/%s has %d policies that name the fleet", folder, named)
		}
	}
}
