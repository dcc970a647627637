package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const root = "../.."

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// render is what helm install makes of the chart: its objects by KIND NAMESPACE/NAME.
func render(t *testing.T, values map[string]any) (map[string]map[string]any, error) {
	t.Helper()
	chart, err := loader.Load(filepath.Join(root, "config", "chart"))
	must(t, err)
	all, err := chartutil.ToRenderValues(chart, values,
		chartutil.ReleaseOptions{Name: "tenure", Namespace: "default"}, nil)
	if err != nil {
		return nil, err // the schema refuses the values
	}
	files, err := engine.Render(chart, all)
	must(t, err)
	objects := map[string]map[string]any{}
	for _, text := range files {
		parse(t, text, objects)
	}
	return objects, nil
}

func parse(t *testing.T, text string, into map[string]map[string]any) {
	t.Helper()
	for documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := documents.Decode(o); err == io.EOF {
			return
		} else if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		into[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = o.Object
	}
}

func TestHelmInstallsWhatKubectlInstalls(t *testing.T) {
	text, err := kustomized(root)
	must(t, err)
	want := map[string]map[string]any{}
	parse(t, text, want)
	got, err := render(t, nil)
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" || len(got) < 20 {
		t.Errorf("%d objects (- kubectl, + helm; make chart writes the templates anew):\n%s", len(got), diff)
	}
}

func TestValuesDoWhatTheySayAndNothingElse(t *testing.T) {
	plain, err := render(t, nil)
	must(t, err)
	changed, err := render(t, map[string]any{
		"image": "r/t:v1", "replicas": 5, "args": []any{"--lease-duration=5s", "--log-level=debug"},
		"requests": map[string]any{"cpu": "1"}, "memory": map[string]any{"limit": "2Gi"},
		"priorityClassName": "tenure", "terminationGracePeriodSeconds": 90,
		"env": []any{map[string]any{"name": "A", "value": "b"}},
	})
	must(t, err)
	const name = "Deployment tenure-system/tenure"
	d, was := changed[name], plain[name]
	spec := d["spec"].(map[string]any)
	pod := spec["template"].(map[string]any)["spec"].(map[string]any)
	container := pod["containers"].([]any)[0].(map[string]any)
	args := container["args"].([]any)
	got := []any{spec["replicas"], pod["priorityClassName"], pod["terminationGracePeriodSeconds"], container["image"],
		args[len(args)-2:], container["resources"]}
	want := []any{
		int64(5), "tenure", int64(90), "r/t:v1", []any{"--lease-duration=5s", "--log-level=debug"},
		map[string]any{"limits": map[string]any{"memory": "2Gi"}, "requests": map[string]any{"cpu": "1", "memory": "128Mi"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(- want, + got):\n%s", diff)
	}
	pod = was["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	before := pod["containers"].([]any)[0].(map[string]any)["args"].([]any)
	if len(args) != len(before)+2 {
		t.Errorf("args are %q, were %q", args, before)
	}
	env := container["env"].([]any)
	env, added := env[:len(env)-1], env[len(env)-1]
	if diff := cmp.Diff(map[string]any{"name": "A", "value": "b"}, added); diff != "" {
		t.Errorf("variable (- want, + got):\n%s", diff)
	}
	if diff := cmp.Diff(pod["containers"].([]any)[0].(map[string]any)["env"], any(env)); diff != "" {
		t.Errorf("other variables (- want, + got):\n%s", diff)
	}
	unnumbered, err := render(t, map[string]any{"replicas": nil, "args": []any{"--pod-selector=a=b"}})
	must(t, err)
	if n, there := unnumbered[name]["spec"].(map[string]any)["replicas"]; there {
		t.Errorf("without a number of replicas, the Deployment has %v: an upgrade would undo what an autoscaler did", n)
	}
	delete(changed, name)
	delete(plain, name)
	if diff := cmp.Diff(plain, changed); diff != "" {
		t.Errorf("something else than the Deployment changed:\n%s", diff)
	}
}

func TestTheSchemaRefusesWhatIsNoValue(t *testing.T) {
	for what, values := range map[string]map[string]any{
		"an unknown value":          {"replica": 3},
		"no replicas":               {"replicas": 0},
		"a number of replicas":      {"replicas": "three"},
		"a port of its own":         {"args": []any{"--log-level=debug", "--metrics-bind-address=:9090"}},
		"another port for probes":   {"args": []any{"--health-probe-bind-address", ":9090"}},
		"another home":              {"args": []any{"--home-kubeconfig=/home.yaml"}},
		"one name for all":          {"args": []any{"--replica=r1"}},
		"another namespace":         {"args": []any{"--namespace=elsewhere"}},
		"another Pod":               {"args": []any{"--pod="}},
		"an argument that is none":  {"args": []any{"lease-duration=5s"}},
		"a variable without a name": {"env": []any{map[string]any{"value": "b"}}},
		"a variable for --replica":  {"env": []any{map[string]any{"name": "TENURE_REPLICA", "value": "r1"}}},
		"a part of --pod":           {"env": []any{map[string]any{"name": "POD_UID", "value": "1"}}},
		"a limit of CPU":            {"memory": map[string]any{"cpu": "1"}},
		"a limit of Go's":           {"memory": map[string]any{"go": "920MiB"}},
		"no quantity":               {"requests": map[string]any{"memory": "much"}},
	} {
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), "schema") {
			t.Errorf("%s: %v, want it refused by the schema", what, err)
		}
	}
}

func TestTheTemplatesAreThoseOfConfig(t *testing.T) {
	to := filepath.Join(t.TempDir(), "templates")
	must(t, write(root, to))
	if diff := cmp.Diff(contents(t, to), contents(t, filepath.Join(root, "config", "chart", "templates"))); diff != "" {
		t.Errorf("run make chart (- as it would be, + as it is):\n%s", diff)
	}
}

func contents(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(folder)
	must(t, err)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		must(t, err)
		all[e.Name()] = string(text)
	}
	return all
}
